"""All weights of a model end to end in one tensor, so that their gradients can lie in another.

The model does not notice: its weights become views. But what is done to every weight (norm, clipping, update,
setting gradients to zero) is now done once, not once for each of hundreds of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

ALIGNED = 64  # numbers; every weight begins at a multiple of 256 bytes, as kernels like it


class Place(NamedTuple):
    """Where a weight lies."""

    name: str
    shape: torch.Size
    begin: int

    @property
    def end(self) -> int:
        return self.begin + math.prod(self.shape)

    def of(self, flat: Tensor) -> Tensor:
        return flat[self.begin : self.end].view(self.shape)


class FlatWeights:
    """Takes over the weights of a model that learn; those of one shape lie side by side."""

    def __init__(self, model: nn.Module) -> None:
        learn = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        named = sorted(learn, key=lambda item: (item[1].dim(), tuple(item[1].shape)))
        self.places: list[Place] = []
        end = 0
        for name, weight in named:
            self.places.append(Place(name, weight.shape, end))
            end += -(-weight.numel() // ALIGNED) * ALIGNED
        like = named[0][1]
        self.weights = nn.Parameter(torch.zeros(end, dtype=like.dtype, device=like.device))
        for place, (_, weight) in zip(self.places, named, strict=True):
            place.of(self.weights.data).copy_(weight.data)
            weight.data = place.of(self.weights.data)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Within, the weights may be changed; afterwards they are what they were."""
        held = self.weights.detach().clone()
        try:
            yield
        finally:
            self.weights.data.copy_(held)

    def gaps(self) -> list[tuple[int, int]]:
        """Where no weight lies."""
        begins = [*(place.begin for place in self.places[1:]), self.weights.numel()]
        return [(place.end, begin) for place, begin in zip(self.places, begins, strict=True) if place.end < begin]

    @property
    def gradient(self) -> Tensor:
        """The gradient of all weights, once there is one."""
        assert self.weights.grad is not None
        return self.weights.grad

    def by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """A tensor that lies like the weights, or like the first of them, cut into views."""
        return {place.name: place.of(flat) for place in self.places if place.end <= flat.numel()}
