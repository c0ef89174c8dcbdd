"""Averages of weights: one that moves along with training, and the mean of some that were kept.

Averaged weights lie in the middle of the region that training jumps about in, and are often better than any it visits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from transduce.core.flat import FlatWeights
from transduce.errors import ModelError
from transduce.files.manifest import verify
from transduce.models.weights import Shape, read_shapes, read_weights


class MovingAverage:
    """w̄ ← decay · w̄ + (1 - decay) · w after every update (EMA); in the beginning the decay is smaller, so that the
    random weights of the start are soon forgotten."""

    def __init__(self, flat: FlatWeights, decay: float) -> None:
        self.flat, self.decay = flat, decay
        self.weights = flat.weights.detach().clone()

    def update(self, step: int, bad: Tensor) -> None:
        """`bad`: 1 where there was no update, which then does not count."""
        decay = min(self.decay, (1 + step) / (10 + step))
        self.weights.lerp_(self.flat.weights.detach(), (1 - decay) * (1 - bad))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the model holds the average."""
        with self.flat.restored():
            self.flat.weights.data.copy_(self.weights)
            yield


def mean_of(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights in some files, which must all be whole and of one model."""
    total: dict[str, Tensor] = {}
    paths = list(paths)
    for path in paths:
        weights = read_weights(path)
        shapes = {name: weight.shape for name, weight in weights.items()}
        if total and shapes != {name: weight.shape for name, weight in total.items()}:
            raise ModelError(f"{path} holds weights of another shape than {paths[0]}; remove what is not of this run")
        for name, weight in weights.items():
            total[name] = total.get(name, torch.zeros(())) + weight.double()
    return {name: (weight / len(paths)).float() for name, weight in total.items()}


def is_whole(path: Path, shapes: Mapping[str, Shape]) -> bool:
    """Whether kept weights are what they were when they were kept, and of this model."""
    try:
        if read_shapes(path) != shapes:
            return False
        verify(path.parent, [path.name])
        read_weights(path)
    except ModelError:
        return False
    return True
