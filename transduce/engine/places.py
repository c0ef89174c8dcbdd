"""Who is in which place of a recorded search, how long still at most, and who has left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

FREE = -1


class Look(NamedTuple):
    """Who was still searched behind a round of steps; on its way from the GPU until `arrived`."""

    round: int
    active: Tensor  # (R,) int32
    arrived: torch.cuda.Event | None

    def is_here(self) -> bool:
        return self.arrived is None or self.arrived.query()

    def read(self) -> np.ndarray:
        """Waits for it."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.active.numpy()


class Places:
    """The R places of a search."""

    def __init__(self, number: int) -> None:
        self.owner = np.full(number, FREE)  # which request is there
        self._since = np.zeros(number, np.int64)  # its first round
        self._left = np.zeros(number, np.int64)  # steps that it may still take
        self.round = 0

    def are_taken(self) -> bool:
        return bool((self.owner != FREE).any())

    def free(self) -> np.ndarray:
        return np.flatnonzero(self.owner == FREE)

    def take(self, places: np.ndarray, requests: np.ndarray, most: np.ndarray) -> None:
        self.owner[places], self._since[places], self._left[places] = requests, self.round, most

    def stepped(self, steps: int) -> None:
        """A round of so many steps is in the queue."""
        self._left -= steps
        self.round += 1

    def done(self, look: Look | None) -> np.ndarray:
        """Places whose sentence is done: `look` saw it, or it has no step left, so that there is nothing to look for.
        What a look says of those who came after it is of their predecessors."""
        is_done = self._left <= 0
        if look is not None:
            is_done |= (look.read() == 0) & (self._since <= look.round)
        return np.flatnonzero(is_done & (self.owner != FREE))

    def leave(self, places: np.ndarray) -> np.ndarray:
        """Give up these places; gives the requests that were there."""
        requests = self.owner[places]
        self.owner[places] = FREE
        return requests
