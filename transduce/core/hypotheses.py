"""What a search is asked for, what it follows, and what it finds.

Letters: R sentences of a batch, B hypotheses of each, V vocabulary, S slots of the source, t tokens so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.core.terms import Term, Written

IMPOSSIBLE = float("-inf")


class Request(NamedTuple):
    """A sentence to translate, in token ids, with what is asked of its translation."""

    source: Sequence[int]  # without END
    most: int  # tokens of the translation, END counted
    least: int = 0  # END not counted
    prefix: Sequence[int] = ()  # what it begins with
    terms: Sequence[Term] = ()  # what must occur in it
    vocabulary: np.ndarray | None = None  # tokens it may be written with, ascending; None: all
    unwritable: bool = False  # something was asked for that the vocabulary cannot write


class Hypothesis(NamedTuple):
    """A target that was found."""

    tokens: list[int]  # without BEGIN and END
    score: float  # log-probability by length penalty, coverage added
    log_probability: float
    complete: bool  # ended by END, not by the length limit


class Penalty(NamedTuple):
    """From a log-probability to a score that targets of different length can be compared by."""

    alpha: float = 0.0
    plain: bool = False  # length ** alpha instead of the paper's form
    beta: float = 0.0  # of coverage
    before: int = 0  # tokens that stand before a translation, which count too
    forced_end: bool = False  # what its limit cuts is given an END, which counts too

    def of_length(self, length: int) -> float:
        """((5 + length) / 6) ** alpha, END counted."""
        length += self.before
        return (length if self.plain else (5 + length) / 6) ** self.alpha

    def score(self, total: float, length: int, coverage: float = 0.0) -> float:
        return total / self.of_length(length) + self.beta * coverage


@dataclass
class Beams:
    """All that a search knows about the sentences still in the batch."""

    tokens: Tensor  # (R, B, t) so far, BEGIN left out
    scores: Tensor  # (R, B) log-probability; impossible: nobody follows this one
    requests: list[Request]  # of each row
    sentences: list[int]  # which sentence of the batch each row is
    finished: list[list[Hypothesis]]  # ended hypotheses of every sentence of the batch
    looked: Tensor | None = None  # (R, B, S) attention that each slot of the source has got, where it is counted
    chances: Tensor | None = None  # (R, B, most) what samples are drawn by
    written: list[list[Written]] = field(default_factory=list)  # (R, B) how far terms are written, where there are any

    @staticmethod
    def begin(requests: list[Request], size: int, device: str) -> Beams:
        """Every hypothesis empty. Only the first may be continued, or there would be `size` copies of it."""
        scores = torch.full((len(requests), size), IMPOSSIBLE, device=device)
        scores[:, 0] = 0.0
        tokens = torch.empty(len(requests), size, 0, dtype=torch.long, device=device)
        return Beams(tokens, scores, requests, list(range(len(requests))), [[] for _ in requests])

    @property
    def length(self) -> int:
        return self.tokens.size(2)

    def choosing(self) -> Tensor:
        """(R, 1) whether the prefix of a sentence is over: before, there is no choice that a rule could forbid."""
        over = [[self.length >= len(request.prefix)] for request in self.requests]
        return torch.tensor(over, device=self.tokens.device)

    def coverage(self, row: int, beam: int) -> float:
        """Σ log min(attention that a source token has got, 1), END's too."""
        if self.looked is None:
            return 0.0
        seen = self.looked[row, beam, : len(self.requests[row].source) + 1]
        return float(seen.clamp(math.ulp(0.0), 1).log().sum())

    def finish(self, row: int, beam: int, total: float, penalty: Penalty, complete: bool) -> None:
        """Put a hypothesis as it stands, with an END or without, among those that are finished. What groups of beams
        have found before is no other one; a sample is."""
        tokens, finished = self.tokens[row, beam].tolist(), self.finished[self.sentences[row]]
        if self.chances is None and any(h.tokens == tokens and h.complete == complete for h in finished):
            return
        has_end = complete or penalty.forced_end
        score = penalty.score(total, len(tokens) + has_end, self.coverage(row, beam))
        finished.append(Hypothesis(tokens, score, total, complete))

    def keep(self, rows: list[int]) -> None:
        """Only these sentences go on."""
        chosen = torch.tensor(rows, dtype=torch.long, device=self.scores.device)
        self.tokens, self.scores = self.tokens[chosen], self.scores[chosen]
        self.looked = None if self.looked is None else self.looked[chosen]
        self.chances = None if self.chances is None else self.chances[chosen]
        self.requests = [self.requests[r] for r in rows]
        self.sentences = [self.sentences[r] for r in rows]
        self.written = [self.written[r] for r in rows] if self.written else []


def ranked(hypotheses: list[Hypothesis], ended_first: bool = True) -> list[Hypothesis]:
    """Best first; what ran into its limit comes after what ended, or has its place by its score."""
    return sorted(hypotheses, key=lambda h: (ended_first and not h.complete, -h.score))
