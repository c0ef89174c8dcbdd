"""Beam search under hard constraints: a translation contains its terms.

Hypotheses that have written more of their terms are less probable, and would lose against those that write none. So
every number of terms that are written has a beam of its own (grid beam search, Hokamp and Liu 2017; banks, Post and
Vilar 2018), and every point within a term that is being written has a place. The beam of those that have written none
is then that of a search without terms, and a term may begin wherever one of them stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.core.choose import Chosen, End
from transduce.core.hypotheses import IMPOSSIBLE, Beams
from transduce.core.special import END
from transduce.core.terms import Begun, Term, Written

WIDEST = 64  # hypotheses of a sentence, if its beam or its terms are not more


def width_of(terms: Sequence[Term], beam: int) -> int:
    """Hypotheses of a sentence with such terms."""
    points = sum(len(alternative) - 1 for term in terms for alternative in term.alternatives)
    return max(beam, len(terms) + 1, min(beam * (len(terms) + 1) + points * len(terms), WIDEST))


class Continuation(NamedTuple):
    """A hypothesis and a token that could continue it."""

    score: float
    parent: int
    token: int
    written: Written


class Banks:
    """Choose so that all terms are written. `word_start` (V,): tokens that begin a word, or end the sentence."""

    def __init__(self, word_start: Tensor, beam: int) -> None:
        self.word_start = word_start
        self.beam = beam

    def __call__(self, log_p: Tensor, beams: Beams) -> Chosen:
        if beams.length == 0:
            beams.written = [[Written()] * log_p.size(1) for _ in beams.requests]
        scores = beams.scores.tolist()
        ways = self._ways(self._forbid(log_p, beams, scores), beams)
        ends: list[End] = []
        kept: list[list[Continuation]] = []
        for row, request in enumerate(beams.requests):
            followed = zip(scores[row], beams.written[row], ways[row], strict=True)
            candidates = sorted(_continued(followed, request.terms), key=lambda c: -c.score)
            done = [c for c in candidates if len(c.written.met) == len(request.terms)][: self.beam]
            ends += [End(row, c.parent, c.score) for c in done if c.token == END]
            going_on = share_out([c for c in candidates if c.token != END], self.beam)
            kept.append(going_on[: min(width_of(request.terms, self.beam), log_p.size(1))])
        nobody = Continuation(IMPOSSIBLE, 0, END, Written())
        kept = [[*row, *[nobody] * (log_p.size(1) - len(row))] for row in kept]
        beams.written = [[c.written for c in row] for row in kept]
        numbers = torch.tensor([[(c.parent, c.token) for c in row] for row in kept], device=log_p.device)
        totals = torch.tensor([[c.score for c in row] for row in kept], device=log_p.device)
        return Chosen(numbers[..., 0], numbers[..., 1], totals, ends)

    def _forbid(self, log_p: Tensor, beams: Beams, scores: list[list[float]]) -> Tensor:
        """No end before all terms are there; after a term, a new word; and no detour once there is no room for it."""
        log_p = log_p.clone()
        for row, request in enumerate(beams.requests):
            if beams.length < len(request.prefix):
                continue  # there is no choice
            for beam, written in enumerate(beams.written[row]):
                if scores[row][beam] == IMPOSSIBLE:
                    continue
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

    def _ways(self, log_p: Tensor, beams: Beams) -> list[list[dict[int, float]]]:
        """For each hypothesis the log-probabilities of what may come next: the likeliest tokens, and those of its
        terms."""
        likeliest = log_p.topk(min(2 * self.beam, log_p.size(2)), 2)
        values, tokens = likeliest.values.tolist(), likeliest.indices.tolist()
        own = [sorted({t for term in request.terms for t in term.tokens()}) for request in beams.requests]
        every = sorted({token for some in own for token in some})
        of_terms, place = log_p[..., every].tolist(), {token: i for i, token in enumerate(every)}
        return [
            [
                {**dict(zip(*usual, strict=True)), **{token: some[place[token]] for token in own[row]}}
                for some, *usual in zip(of_terms[row], tokens[row], values[row], strict=True)
            ]
            for row in range(len(own))
        ]


def _continued(
    followed: Iterable[tuple[float, Written, dict[int, float]]], terms: Sequence[Term]
) -> Iterator[Continuation]:
    """Every hypothesis with every token that may come next, and what is then written."""
    for beam, (score, written, ways) in enumerate(followed):
        if score == IMPOSSIBLE:
            continue
        wanted = set(written.next_tokens(terms))
        elsewhere = Written(written.met)  # where any other token leads
        for token, value in ways.items():
            if value > IMPOSSIBLE:
                after = written.advance(token, terms) if token in wanted else elsewhere
                yield Continuation(score + value, beam, token, after)


def share_out(candidates: list[Continuation], beam: int) -> list[Continuation]:
    """Which candidates, best first, go on: for every number of terms written the best, then for every point
    within a term, then the second for every number, and so on."""
    before: Counter[int] = Counter()  # candidates with so many terms
    points: set[tuple[int, frozenset[Begun]]] = set()
    ranked: list[tuple[int, bool, Continuation]] = []
    for candidate in candidates:
        number, begun = len(candidate.written.met), candidate.written.begun
        rank = before[number]
        before[number] += 1
        is_new_point = bool(begun) and (number, begun) not in points
        if is_new_point:
            points.add((number, begun))
        if is_new_point and rank:
            ranked.append((0, True, candidate))
        elif rank < beam:
            ranked.append((rank, False, candidate))
    return [candidate for _, _, candidate in sorted(ranked, key=lambda one: one[:2])]
