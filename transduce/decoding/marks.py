"""Marks for what passes through (text/protect.py), as search sees them: tokens of which a translation has those of its
source, each once.

A model that has learned them mostly does so by itself, in any engine. A sentence in which it did not is searched again
by a rule that leaves no other way. (Marks as terms were measured too, when a beam was still shared out among them, and
the texts were worse.)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.core.hypotheses import IMPOSSIBLE, Beams, Hypothesis, Request
from transduce.core.special import END
from transduce.text.protect import MARKS
from transduce.text.tokenizers import Tokenizer


class Marks:
    """The marks of a model's vocabularies. A tokenizer may have several tokens for one, with and without a space."""

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self._read, self._written = marks_of(source), marks_of(target)  # type: ignore[arg-type]

    def ids(self, source: Sequence[int]) -> list[list[int]]:
        """For each mark of a source, the tokens that write it."""
        wanted = dict.fromkeys(self._read[token] for token in source if token in self._read)
        return [[token for token, mark in self._written.items() if mark == one] for one in wanted]

    def are_kept(self, source: Sequence[int], target: Sequence[int]) -> bool:
        """Whether a target has the marks of its source, each once, and no others."""
        wanted = {self._read[token] for token in source if token in self._read}
        written = [self._written[token] for token in target if token in self._written]
        return len(written) == len(wanted) and wanted.issuperset(written) and len(set(written)) == len(written)

    def astray(self, requests: Sequence[Request], found: list[list[Hypothesis]]) -> list[int]:
        """Which sentences have to be searched again."""
        together = enumerate(zip(requests, found, strict=True))
        return [i for i, (r, some) in together if not all(self.are_kept(r.source, h.tokens) for h in some)]

    def with_room(self, request: Request, positions: int) -> Request:
        """A request whose translation may be long enough for its marks: they come before a limit."""
        asked = len(request.prefix) + sum(term.shortest for term in request.terms)
        room = asked + len(self.ids(request.source)) + 1
        return request._replace(most=min(max(request.most, room), positions))

    def each_once(self, log_p: Tensor, beams: Beams) -> None:
        """A rule: no mark but those that are still to come, and they come before END: at the latest when END is the
        likeliest, or when there is no room for anything else."""
        every, known = torch.tensor(list(self._written)), beams.tokens.tolist()
        held = log_p.cpu()  # once, and not a question to a GPU for every beam
        for row, request in enumerate(beams.requests):
            if beams.length < len(request.prefix):
                continue  # there is no choice
            marks, terms = self.ids(request.source), sum(term.shortest for term in request.terms)
            for beam, written in enumerate(known[row]):
                here = held[row, beam]
                missing = [tokens for tokens in marks if not set(tokens) & set(written)]
                allowed = [token for tokens in missing for token in tokens]
                values = here[allowed].clone()
                no_room = request.most - 1 - beams.length <= len(missing) + terms  # END takes a place too
                if missing and (no_room or int(here.argmax()) == END):
                    here.fill_(IMPOSSIBLE)
                here[every] = IMPOSSIBLE
                if missing:
                    here[END] = IMPOSSIBLE
                here[allowed] = values
        log_p.copy_(held)


@functools.lru_cache(maxsize=16)  # to go through a vocabulary takes as long as to translate a sentence
def marks_of(tokenizer: Any) -> dict[int, str]:
    """Tokens that are marks, with and without a space before them, and which one each is."""
    pieces = enumerate(tokenizer.pieces(range(tokenizer.size)))
    return {i: bare for i, piece in pieces if len(bare := piece.removeprefix("▁")) == 1 and bare in MARKS}
