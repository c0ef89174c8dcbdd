"""How good some weights are on held-out text: a loss, and a score where text is decoded."""

from __future__ import annotations

import math
from typing import NamedTuple

NOISE = 3.0  # percent: below this, BLEU counts a few chance matches
GUESS = 0.97  # of the loss of a guess: what is above has learned how frequent words are, and hardly more
HARDLY = 0.8  # of it: what is above has learned what words stand side by side, and little of what they translate


class Validation(NamedTuple):
    """How good one set of weights is."""

    loss: float  # nats a token, no smoothing
    score: float | None  # by the measure; None: no text is decoded

    def better_than(self, other: Validation | None) -> bool:
        """By score, but by loss where it is missing, equal or nothing but noise."""
        if other is None:
            return True
        if self.score is None or other.score is None or self.score == other.score:
            return self.loss < other.loss
        if max(self.score, other.score) < NOISE:
            return self.loss < other.loss
        return self.score > other.score

    def is_a_guess(self, guess: float) -> bool:
        """Whether it is no better than guessing words by their frequency, which has a loss of `guess`."""
        return self.loss > GUESS * guess and (self.score is None or self.score < NOISE)

    def is_hardly_more(self, guess: float) -> bool:
        """Whether it is better than such a guess, but not by much."""
        return self.loss > HARDLY * guess and (self.score is None or self.score < NOISE)

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 99))

    def describe(self, measure: str) -> str:
        score = "" if self.score is None else f", {measure} {self.score:.1f}"
        return f"loss {self.loss:.3f}, perplexity {self.perplexity:.2f}{score}"
