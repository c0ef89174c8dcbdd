"""What a translation may not contain, or must: rules that change the log-probabilities of the next token.

A rule is called with log-probabilities (R, B, V), which it changes in place, and the hypotheses they continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from transduce.core.hypotheses import IMPOSSIBLE, Beams
from transduce.core.special import BEGIN, END, PAD, SPECIAL, UNKNOWN

Rule = Callable[[Tensor, Beams], None]
MOST_WAYS = 200  # of a forbidden word to be cut into tokens, where they have to be listed


def never_written(log_p: Tensor, beams: Beams | None = None) -> None:
    """What is never a translation."""
    log_p[..., [PAD, BEGIN, UNKNOWN]] = IMPOSSIBLE


def at_least(log_p: Tensor, beams: Beams) -> None:
    """No END before a translation is as long as it must be."""
    too_short = [row for row, request in enumerate(beams.requests) if beams.length < request.least]
    log_p[too_short, :, END] = IMPOSSIBLE


def begin_with_prefix(log_p: Tensor, beams: Beams) -> None:
    """While the prefix lasts there is no choice."""
    for row, request in enumerate(beams.requests):
        if beams.length < len(request.prefix):
            token = request.prefix[beams.length]
            kept = log_p[row, :, token].clone()
            log_p[row] = IMPOSSIBLE
            log_p[row, :, token] = kept


def within_vocabulary(log_p: Tensor, beams: Beams) -> None:
    """Nothing outside a sentence's shortlist, whose probabilities sum to one."""
    short = [row for row, request in enumerate(beams.requests) if request.vocabulary is not None]
    outside = torch.ones(len(short), log_p.size(-1), dtype=torch.bool)
    for mask, row in zip(outside, short, strict=True):
        mask[torch.from_numpy(beams.requests[row].vocabulary)] = False
    inside = log_p[short].masked_fill(outside.unsqueeze(1).to(log_p.device), IMPOSSIBLE)
    log_p[short] = inside - inside.logsumexp(-1, keepdim=True)


class NoRepeat:
    """No sequence of `n` tokens twice."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, log_p: Tensor, beams: Beams) -> None:
        if beams.length < self.n:
            return
        written = beams.tokens.unfold(2, self.n, 1)  # (R, B, t - n + 1, n) every sequence so far
        last = beams.tokens[:, :, beams.length - self.n + 1 :]  # (R, B, n - 1) what the next token would end
        again = (written[..., :-1] == last.unsqueeze(2)).all(-1) & beams.choosing().unsqueeze(2)
        for row, beam, place in again.nonzero().tolist():
            log_p[row, beam, written[row, beam, place, -1]] = IMPOSSIBLE


class RepetitionPenalty:
    """A token that was written before is so many times less likely, in log-probability."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, log_p: Tensor, beams: Beams) -> None:
        log_p.scatter_(2, beams.tokens, log_p.gather(2, beams.tokens) * self.factor)


class Forbid:
    """Words that must not be written, however they are cut into tokens: what would end one is impossible.

    `words`: as their tokens spell them; `pieces`: the text of each token.
    """

    def __init__(self, words: Iterable[str], pieces: Sequence[str]) -> None:
        self.words, self.pieces = frozenset(words), pieces
        self.ids = {piece: i for i, piece in enumerate(pieces) if i >= len(SPECIAL)}
        self.largest = max(map(len, self.ids))
        self.ending: dict[str, list[int]] = {}  # the tokens that end a word, by what of it comes before
        for word in self.words:
            for end in self._last_pieces(word, len(word)):
                self.ending.setdefault(word[:end], []).append(self.ids[word[end:]])
        self.longest = max(map(len, self.ending), default=0)

    def __call__(self, log_p: Tensor, beams: Beams) -> None:
        choosing = beams.choosing().flatten().tolist()
        written = beams.tokens[:, :, max(0, beams.length - self.longest) :].tolist()  # a token has a letter or more
        wrong = [
            (row, beam, token)
            for row, hypotheses in enumerate(written)
            for beam, tokens in enumerate(hypotheses)
            if choosing[row]
            for token in self._wrong_behind(tokens)
        ]
        if wrong:
            log_p[tuple(torch.tensor(wrong, device=log_p.device).T)] = IMPOSSIBLE

    def _wrong_behind(self, tokens: Sequence[int]) -> list[int]:
        """What would end a word that the last of these tokens begin."""
        text, found = "", [*self.ending.get("", ())]
        for token in reversed(tokens):
            text = self.pieces[token] + text
            if len(text) > self.longest:
                break
            found += self.ending.get(text, ())
        return found

    def is_in(self, tokens: Sequence[int]) -> bool:
        """Whether one of the words is among these tokens."""
        return any(token in self._wrong_behind(tokens[:place]) for place, token in enumerate(tokens))

    def can_write(self, word: str) -> bool:
        """Whether the tokens can spell a word at all."""
        reached = {0}
        for end in range(1, len(word) + 1):
            if any(begin in reached for begin in self._last_pieces(word, end)):
                reached.add(end)
        return len(word) in reached

    def sequences(self) -> list[list[int]]:
        """The ways to cut the words into tokens; of many ways, the shortest."""
        return [way for word in sorted(self.words) for way in self._ways(word)]

    def _ways(self, word: str) -> list[list[int]]:
        ways: list[list[list[int]]] = [[[]], *([] for _ in word)]
        for end in range(1, len(word) + 1):
            for begin in self._last_pieces(word, end):
                ways[end] += [[*way, self.ids[word[begin:end]]] for way in ways[begin]]
            ways[end] = sorted(ways[end], key=len)[:MOST_WAYS]
        return ways[-1]

    def _last_pieces(self, word: str, end: int) -> Iterator[int]:
        """Where a token can begin that ends at this place of a word."""
        return (begin for begin in range(max(0, end - self.largest), end) if word[begin:end] in self.ids)
