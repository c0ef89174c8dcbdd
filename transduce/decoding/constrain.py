"""Beam search under hard constraints: a translation contains its terms (dynamic beam allocation, Post and Vilar 2018).

Hypotheses that have written more of their terms are less probable, and would lose against those that write none.
So the beam is shared out among banks, one for each number of tokens still to be written, and each bank keeps its best.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.decoding.choose import Chosen, End
from transduce.decoding.hypotheses import IMPOSSIBLE, Beams, Request
from transduce.decoding.terms import Written
from transduce.text.special import END


class Continuation(NamedTuple):
    """A hypothesis and a token that could continue it."""

    score: float
    parent: int
    token: int
    written: Written
    remaining: int


class Banks:
    """Choose so that all terms are written. `word_start` (V,): tokens that begin a word, or end the sentence."""

    def __init__(self, word_start: Tensor) -> None:
        self.word_start = word_start

    def __call__(self, log_p: Tensor, beams: Beams) -> Chosen:
        if beams.length == 0:
            beams.written = [[Written()] * log_p.size(1) for _ in beams.requests]
        log_p = self._forbid(log_p, beams)
        values, tokens = log_p.topk(min(2 * log_p.size(1), log_p.size(2)), 2)
        usual = torch.stack([values, tokens.to(values.dtype)], -1).tolist()  # (R, B, 2 B, 2)
        ends: list[End] = []
        kept: list[list[Continuation]] = []
        for row, request in enumerate(beams.requests):
            candidates = self._candidates(row, request, log_p, beams, usual[row])
            done = [c for c in candidates[: log_p.size(1)] if c.token == END]
            ends += [End(row, c.parent, c.score) for c in done]
            kept.append(share_out([c for c in candidates if c.token != END], log_p.size(1)))
        beams.written = [[c.written for c in row] for row in kept]
        numbers = torch.tensor([[(c.parent, c.token) for c in row] for row in kept], device=log_p.device)
        scores = torch.tensor([[c.score for c in row] for row in kept], device=log_p.device)
        return Chosen(numbers[..., 0], numbers[..., 1], scores, ends)

    def _forbid(self, log_p: Tensor, beams: Beams) -> Tensor:
        """No end before all terms are there; after a term, a new word; and no detour once there is no room for it."""
        log_p = log_p.clone()
        for row, request in enumerate(beams.requests):
            if beams.length < len(request.prefix):
                continue  # there is no choice
            for beam, written in enumerate(beams.written[row]):
                remaining = written.remaining(request.terms)
                here = log_p[row, beam]
                if written.at_word_end:
                    here[~self.word_start] = IMPOSSIBLE
                if remaining:
                    here[END] = IMPOSSIBLE
                    if request.most - 1 - beams.length <= remaining:  # END takes a place too
                        allowed = written.nearest_tokens(request.terms)
                        values = here[allowed].clone()
                        here.fill_(IMPOSSIBLE)
                        here[allowed] = values
        return log_p

    def _candidates(
        self, row: int, request: Request, log_p: Tensor, beams: Beams, usual: list[list[list[float]]]
    ) -> list[Continuation]:
        """The usual ones, and those that bring a term nearer; best first."""
        found: dict[tuple[int, int], Continuation] = {}
        for beam, (score, written) in enumerate(zip(beams.scores[row].tolist(), beams.written[row], strict=True)):
            if score == IMPOSSIBLE:
                continue
            wanted = written.next_tokens(request.terms)
            ways = [(int(token), value) for value, token in usual[beam]]
            ways += zip(wanted, log_p[row, beam, wanted].tolist(), strict=True)
            for token, value in ways:
                if value > IMPOSSIBLE and (beam, token) not in found:
                    after = written if token == END else written.advance(token, request.terms)
                    found[beam, token] = Continuation(score + value, beam, token, after, after.remaining(request.terms))
        return sorted(found.values(), key=lambda c: -c.score)


def share_out(candidates: list[Continuation], size: int) -> list[Continuation]:
    """`size` of them, best first: each bank its share, what a bank cannot fill to the best of the others."""
    banks: dict[int, list[Continuation]] = defaultdict(list)
    for candidate in candidates:
        banks[candidate.remaining].append(candidate)
    order = sorted(banks)  # those that are nearest to having all terms first
    share = {bank: size // len(order) + (place < size % len(order)) for place, bank in enumerate(order)}
    chosen = [c for bank in order for c in banks[bank][: share[bank]]]
    rest = sorted((c for bank in order for c in banks[bank][share[bank] :]), key=lambda c: -c.score)
    chosen = sorted([*chosen, *rest[: size - len(chosen)]], key=lambda c: -c.score)
    nothing = Continuation(IMPOSSIBLE, 0, END, Written(), 0)
    return [*chosen, *[nothing] * (size - len(chosen))]
