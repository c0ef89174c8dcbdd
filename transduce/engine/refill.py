"""Any number of sentences through a recorded search: who is done leaves, who waits takes the place.

So the GPU always works on a full batch, whatever the lengths; and it does not wait for Python: before the results of
those that left are looked at, others are in their places and the next steps in the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.decoding.garbage import garbage_collection_paused
from transduce.decoding.hypotheses import Hypothesis, Request
from transduce.decoding.search import Roles
from transduce.engine.incremental import Incremental
from transduce.engine.recorded import ARRIVING, RecordedSearch, Shape
from transduce.engine.waiting import Waiting
from transduce.engine.walk_back import Found, hypotheses_of

SIZES = (1, 8, 64, 256, 1024, 4096, 8192, 16384)  # hypotheses side by side; each is recorded by itself
MANY_STEPS, FEW_STEPS = 2, 4  # before somebody looks who is done; of many sentences some always are
PARTS = 8  # of the places; so many must be free before others are put into them, all in one go
MOST_DONE = 32  # parts whose results may wait
KEPT = 6  # recordings


class Done(NamedTuple):
    """Sentences that are done, and their tables once they have come from the GPU."""

    requests: np.ndarray
    tables: list[Tensor]
    arrived: torch.cuda.Event | None


class RefillEngine:
    """Greedy and beam search on a GPU."""

    def __init__(self, model: Incremental, device: str) -> None:
        self.model = model
        self.device = device
        self._recordings: dict[Shape, RecordedSearch] = {}

    @torch.inference_mode()
    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        with garbage_collection_paused():
            return self._find(requests, roles, found)

    def _find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        search = self._recording(requests, roles)
        places = search.shape.sentences
        part = ARRIVING[-1] if len(requests) <= places else min(ARRIVING[-1], max(1, places // PARTS))
        waiting = Waiting(requests, part, self._send, self.model.source_end)
        owner = np.full(places, -1)  # which request is in each place
        results: list[list[Hypothesis]] = [[] for _ in requests]
        done: deque[Done] = deque()
        while waiting.next_size() or done or (owner >= 0).any():
            self._fill(search, waiting, owner)
            working = bool((owner >= 0).any())
            if working:
                for _ in range(MANY_STEPS if len(owner) >= 512 else FEW_STEPS):
                    search.step()
            is_idle = self._idle_after()
            while waiting.can_lay_out() and not is_idle():
                waiting.lay_out()
            while done and (not working or len(done) > MOST_DONE or not is_idle()):
                some = done.popleft()
                for i, hypotheses in zip(some.requests.tolist(), _hypotheses(some, roles), strict=True):
                    results[i] = hypotheses
                found(len(some.requests))
            if working:
                done.extend(self._leave(search, owner))
        return results

    def _fill(self, search: RecordedSearch, waiting: Waiting, owner: np.ndarray) -> None:
        """Sentences that wait into places that are free, a part at a time."""
        free = np.flatnonzero(owner < 0)
        if not 0 < waiting.next_size() <= len(free):
            return
        there = self._send(torch.from_numpy(free.astype(np.int32)))
        while 0 < waiting.next_size() <= len(free):
            which, arrivals = waiting.take()
            owner[free[: len(which)]] = which
            search.put(arrivals._replace(places=there[: len(which)]))
            free, there = free[len(which) :], there[len(which) :]

    def _idle_after(self) -> Callable[[], bool]:
        """Whether the GPU has done all that was asked of it so far; a CPU never has to be kept busy."""
        if self.device != "cuda":
            return lambda: False
        event = torch.cuda.Event()
        event.record()
        return event.query

    def _leave(self, search: RecordedSearch, owner: np.ndarray) -> Iterator[Done]:
        """Wait for the GPU; who is done gives up the place, and the tables are asked for."""
        done = np.flatnonzero((owner >= 0) & (search.slots.active.cpu().numpy() == 0))
        part = max(1, len(owner) // PARTS)
        for begin in range(0, len(done), part):
            some = done[begin : begin + part]
            requests = owner[some]
            owner[some] = -1
            yield self._asked_for(search, requests, self._send(torch.from_numpy(some)))

    def _asked_for(self, search: RecordedSearch, requests: np.ndarray, where: Tensor) -> Done:
        s = search.slots
        tables = [
            t.index_select(0, where)
            for t in (s.length, s.most, s.history, s.parents, s.end_totals, s.end_parents, s.scores)
        ]
        if self.device != "cuda":
            return Done(requests, tables, None)
        here = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True) for t in tables]
        arrived = torch.cuda.Event()
        arrived.record()
        return Done(requests, here, arrived)

    def _recording(self, requests: list[Request], roles: Roles) -> RecordedSearch:
        """For as many sentences as there are, and as long ones; sizes are rounded up, so that few are recorded."""
        steps = _round_up(max(request.most for request in requests))
        sources = _round_up(max(len(request.source) for request in requests) + 1)
        rows = next((size for size in SIZES if size >= len(requests) * roles.size), SIZES[-1])
        while rows > 64 and rows * self._bytes_of_one(steps, sources, roles.size) > self._room():
            rows //= 2
        shape = Shape(max(1, rows // roles.size), roles.size, steps, sources, roles.n_best, roles.penalty, roles.exact)
        if shape not in self._recordings:
            while len(self._recordings) >= KEPT:
                del self._recordings[next(iter(self._recordings))]
            self._recordings[shape] = RecordedSearch(self.model, shape, self.device)
        return self._recordings[shape]

    def _bytes_of_one(self, steps: int, sources: int, beams: int) -> int:
        """What a hypothesis takes, logits included."""
        w = self.model.weights
        heads = w.self_heads
        slot = len(w.layers) * heads.number * (heads.d_k + heads.d_v) * w.projection.weight.element_size()
        return slot * (steps + sources // beams) + 8 * w.projection.weight.size(0)

    def _room(self) -> int:
        """Half of what is free, for one recording."""
        return torch.cuda.mem_get_info()[0] // 2 if self.device == "cuda" else 2**31

    def _send(self, x: torch.Tensor) -> torch.Tensor:
        return x.pin_memory().to(self.device, non_blocking=True) if self.device == "cuda" else x


def _hypotheses(done: Done, roles: Roles) -> list[list[Hypothesis]]:
    if done.arrived is not None:
        done.arrived.synchronize()
    return hypotheses_of(Found(*(table.numpy() for table in done.tables)), roles.n_best, roles.penalty)


def _round_up(size: int) -> int:
    """To 32, 64, 128, ..."""
    return max(32, 1 << (size - 1).bit_length())
