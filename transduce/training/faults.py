"""What may go wrong in an update, noticed without waiting for the GPU: no numbers, or a loss that jumps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

JUMP = 1.5  # a loss this many times the usual one is a spike
SETTLED = 5  # lines of metrics.jsonl before one is expected to be like those before it


def is_bad(total: Tensor, norm: Tensor) -> Tensor:
    """1.0 where loss or gradient is infinite or no number, else 0.0; stays on the device."""
    return (~(total.isfinite() & norm.isfinite())).float()


class Tried(NamedTuple):
    """An update, made or skipped."""

    step: int
    places: np.ndarray  # of its sentences in the store


class Updates:
    """Those whose verdict nobody has read yet."""

    def __init__(self) -> None:
        self._unread: list[tuple[Tried, Tensor]] = []

    def add(self, step: int, places: np.ndarray, bad: Tensor) -> None:
        self._unread.append((Tried(step, places), bad))

    def read(self) -> list[tuple[bool, Tried]]:
        """In order, whether each was skipped; waits for the GPU once."""
        if not self._unread:
            return []
        verdicts = torch.stack([bad for _, bad in self._unread]).tolist()
        found = [(bool(bad), update) for bad, (update, _) in zip(verdicts, self._unread, strict=True)]
        self._unread = []
        return found


class UsualLoss:
    """A running mean of the losses in metrics.jsonl, to tell a spike from noise."""

    def __init__(self, mean: float = 0.0, lines: int = 0) -> None:
        self.mean, self.lines = mean, lines

    def jumps_to(self, loss: float) -> bool:
        """Whether this is a spike; it then counts for little in the mean."""
        jump = self.lines >= SETTLED and loss > JUMP * self.mean
        share = 0.02 if jump else max(0.2, 1 / (self.lines + 1))
        self.mean, self.lines = self.mean + share * (loss - self.mean), self.lines + 1
        return jump
