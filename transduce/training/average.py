"""Averages of weights: one that moves along with training, and the mean of some that were kept.

Averaged weights lie in the middle of the region that training jumps about in, and are often better than any it visits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.models.folder import read_tensors
from transduce.training.flat import FlatWeights


class MovingAverage:
    """w̄ ← decay · w̄ + (1 - decay) · w after every update (EMA); in the beginning the decay is smaller, so that the
    random weights of the start are soon forgotten."""

    def __init__(self, flat: FlatWeights, decay: float) -> None:
        self.flat, self.decay = flat, decay
        self.weights = flat.weights.detach().clone()

    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        self.weights.lerp_(self.flat.weights.detach(), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the model holds the average."""
        held = self.flat.weights.detach().clone()
        self.flat.weights.data.copy_(self.weights)
        try:
            yield
        finally:
            self.flat.weights.data.copy_(held)


def mean_of(paths: Iterable[Path]) -> dict[str, Tensor] | None:
    """The mean of the weights in some files, damaged ones left out; None when there are fewer than two."""
    mean: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        try:
            weights = read_tensors(path)
        except ModelError:
            continue
        count += 1
        for name, weight in weights.items():
            mean[name] = mean.get(name, torch.zeros(())) + weight.double()
    return {name: (total / count).float() for name, total in mean.items()} if count > 1 else None
