"""Beam search under hard constraints: a translation contains its terms.

Hypotheses that have written more of their terms are less probable, and would lose against those that write none. So
every number of terms that are written has a beam of its own (grid beam search, Hokamp and Liu 2017; banks, Post and
Vilar 2018), and every point within a term that is being written has a place. The beam of those that have written none
is then that of a search without terms, and a term may begin wherever one of them stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.decoding.choose import Chosen, End
from transduce.decoding.hypotheses import IMPOSSIBLE, Beams, Request
from transduce.decoding.terms import Term, Written
from transduce.text.special import END

WIDEST = 64  # hypotheses of a sentence


def width_of(terms: Sequence[Term], beam: int) -> int:
    """Hypotheses of a sentence with such terms."""
    points = sum(max(map(len, term.alternatives)) - 1 for term in terms)
    return max(beam, min(beam * (len(terms) + 1) + points, WIDEST))


class Continuation(NamedTuple):
    """A hypothesis and a token that could continue it."""

    score: float
    parent: int
    token: int
    written: Written
    remaining: int


class Banks:
    """Choose so that all terms are written. `word_start` (V,): tokens that begin a word, or end the sentence."""

    def __init__(self, word_start: Tensor, beam: int) -> None:
        self.word_start = word_start
        self.beam = beam

    def __call__(self, log_p: Tensor, beams: Beams) -> Chosen:
        if beams.length == 0:
            beams.written = [[Written()] * log_p.size(1) for _ in beams.requests]
        log_p = self._forbid(log_p, beams)
        values, tokens = log_p.topk(min(2 * self.beam, log_p.size(2)), 2)
        usual = torch.stack([values, tokens.to(values.dtype)], -1).tolist()  # (R, B, 2 beam, 2)
        ends: list[End] = []
        kept: list[list[Continuation]] = []
        for row, request in enumerate(beams.requests):
            candidates = sorted(self._candidates(row, request, log_p, beams, usual[row]), key=lambda c: -c.score)
            done = [c for c in candidates if len(c.written.met) == len(request.terms)][: self.beam]
            ends += [End(row, c.parent, c.score) for c in done if c.token == END]
            going_on = share_out([c for c in candidates if c.token != END], self.beam)
            kept.append(going_on[: min(width_of(request.terms, self.beam), log_p.size(1))])
        nobody = Continuation(IMPOSSIBLE, 0, END, Written(), 0)
        kept = [[*row, *[nobody] * (log_p.size(1) - len(row))] for row in kept]
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
    ) -> Iterator[Continuation]:
        """The usual ones, and those that bring a term nearer."""
        for beam, (score, written) in enumerate(zip(beams.scores[row].tolist(), beams.written[row], strict=True)):
            if score == IMPOSSIBLE:
                continue
            wanted = written.next_tokens(request.terms)
            ways = {int(token): value for value, token in usual[beam]}
            ways |= zip(wanted, log_p[row, beam, wanted].tolist(), strict=True)
            elsewhere = Written(written.met)  # where any other token leads
            left = elsewhere.remaining(request.terms)
            for token, value in ways.items():
                if value == IMPOSSIBLE:
                    continue
                if token in wanted:
                    after = written.advance(token, request.terms)
                    yield Continuation(score + value, beam, token, after, after.remaining(request.terms))
                else:
                    yield Continuation(score + value, beam, token, elsewhere, left)


def share_out(candidates: list[Continuation], beam: int) -> list[Continuation]:
    """Of candidates, best first, those that go on: the best of each bank before the second of any."""
    before: Counter[int] = Counter()  # candidates of each number of terms
    points: set[tuple[int, int]] = set()
    ranked: list[tuple[int, Continuation]] = []
    for candidate in candidates:
        number = len(candidate.written.met)
        rank, point = before[number], (number, candidate.remaining)
        before[number] += 1
        if candidate.written.begun and point not in points:
            points.add(point)
            rank = 0
        if rank < beam:
            ranked.append((rank, candidate))
    return [candidate for _, candidate in sorted(ranked, key=lambda one: one[0])]
