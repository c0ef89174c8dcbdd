"""How good the weights are on held-out text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from transduce.data.batches import Batches
from transduce.models.seq2seq import Seq2Seq
from transduce.training.distributed import Processes
from transduce.training.loss import cross_entropy


class Measure(NamedTuple):
    """What is decoded from validation text and counted, in percent."""

    name: str  # BLEU, or accuracy
    of: Callable[[Seq2Seq], float]


class Validation(NamedTuple):
    """Of one set of weights."""

    loss: float  # nats a token, no smoothing
    score: float | None  # by the measure; None: no text is decoded

    def better_than(self, other: Validation | None) -> bool:
        """By score where both have one, by loss where it is equal or missing."""
        if other is None:
            return True
        if self.score is None or other.score is None or self.score == other.score:
            return self.loss < other.loss
        return self.score > other.score

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 99))

    def told(self, measure: Measure | None) -> str:
        score = "" if self.score is None or measure is None else f", {measure.name} {self.score:.1f}"
        return f"loss {self.loss:.3f}, perplexity {self.perplexity:.2f}{score}"


@torch.no_grad()
def validate(
    model: Seq2Seq, batches: Batches, measure: Measure | None, device: str, processes: Processes
) -> Validation:
    """Loss without smoothing, and the measure by decoding; every process takes its share."""
    model.eval()
    total, count = 0.0, 0
    for batch in itertools.islice(batches.epoch(0), processes.rank, None, processes.count):
        batch = batch.to(device)
        loss = cross_entropy(model(batch.source, batch.target_in), batch.target_out)
        total += float(loss.total)
        count += int(loss.tokens)
    totals, counts = zip(*processes.gather([total, count]), strict=True)
    loss_a_token = sum(totals) / sum(counts)
    return Validation(loss_a_token, measure.of(model) if measure else None)
