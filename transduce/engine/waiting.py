"""Sentences that wait for a place in a recorded search, laid out on the GPU before there is one."""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from transduce.core.hypotheses import Request
from transduce.core.special import END
from transduce.engine.recorded import ARRIVING, MOST, SOURCE, TOKENS

AHEAD = 16  # parts that lie on the GPU and have no place yet
SLOTS = 2**16  # of a part, empty ones included, where it has more than one sentence


class Waiting:
    """Sentences that have no place yet, the longest first; parts of them lie on the GPU already."""

    def __init__(self, requests: list[Request], send: Callable[[Tensor], Tensor], source_end: bool) -> None:
        self._sources = list(map(operator.attrgetter("source"), requests))
        self._send, self._source_end = send, source_end
        self.lengths = np.fromiter(map(len, self._sources), np.int64, len(requests))
        self.most = np.fromiter(map(operator.attrgetter("most"), requests), np.int64, len(requests))
        self._order = np.argsort(-self.lengths, kind="stable")
        self._laid_out: deque[tuple[np.ndarray, Tensor]] = deque()
        self._begin = 0  # of what is not laid out yet
        self.part = 1  # sentences that are laid out together

    def next_size(self) -> int:
        """How many sentences the next part has; 0: nobody waits."""
        return len(self._laid_out[0][0]) if self._laid_out else len(self._next())

    def _next(self) -> np.ndarray:
        """Sentences that are laid out next: as many as are wanted, or fewer where they are long."""
        longest = self.lengths[self._order[self._begin : self._begin + 1]].max(initial=0) + 1
        count = min(self.part, max(size for size in ARRIVING if size == 1 or size * longest <= SLOTS))
        return self._order[self._begin : self._begin + count]

    def take(self) -> tuple[np.ndarray, Tensor]:
        """The next part: which requests, and their table on the GPU, in which places are still to be said."""
        if not self._laid_out:
            self.lay_out()
        return self._laid_out.popleft()

    def can_lay_out(self) -> bool:
        return self._begin < len(self._order) and len(self._laid_out) < AHEAD

    def lay_out(self) -> None:
        """Another part onto the GPU, padded to the longest sentence there."""
        which = self._next()
        self._begin += len(which)
        lengths = self.lengths[which]
        sources = map(self._sources.__getitem__, which.tolist())
        flat = np.fromiter(itertools.chain.from_iterable(sources), np.int32, lengths.sum())
        at = np.arange(lengths.max(initial=0) + 1)
        table = np.zeros((len(which), TOKENS + len(at)), np.int32)
        table[:, SOURCE] = lengths + 1 if self._source_end else lengths
        table[:, MOST] = self.most[which]
        tokens = table[:, TOKENS:]
        tokens[at < lengths[:, None]] = flat
        tokens[at == lengths[:, None]] = END
        self._laid_out.append((which, self._send(torch.from_numpy(table))))
