"""Any number of sentences through a recorded search: who is done leaves, who waits takes the place.

So the GPU always works on a full batch, whatever the lengths; and it does not wait for Python: before the results of
those that left are looked at, others are in their places and the next steps in the queue.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.decoding.garbage import garbage_collection_paused
from transduce.decoding.hypotheses import Hypothesis, Request
from transduce.decoding.search import Roles
from transduce.engine.incremental import Incremental
from transduce.engine.recorded import ARRIVING, Arrivals, RecordedSearch, Shape
from transduce.engine.walk_back import Found, hypotheses_of
from transduce.text.special import END

SIZES = (1, 8, 64, 256, 1024, 4096, 8192)  # hypotheses that are searched side by side; each is recorded by itself
KEPT = 6  # recordings
PARTS = 8  # that a full batch arrives in, so that not all are done at the same time


class Left(NamedTuple):
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
        text = _Text(requests, self._send)
        places = search.shape.sentences
        waiting = np.argsort(text.lengths, kind="stable")[::-1]  # the longest first
        owner = np.full(places, -1)  # which request is in each place
        results: list[list[Hypothesis]] = [[] for _ in requests]
        left: Left | None = None
        steps = 2 if places >= 512 else 4  # before somebody looks who is done
        # Where more wait than fit they come a part at a time, so that they do not leave all at the same time either.
        staggered = len(requests) > places
        part = max(1, places // PARTS) if staggered else min(places, ARRIVING[-1])
        while len(waiting) or left or (owner >= 0).any():
            free = np.flatnonzero(owner < 0)
            while len(waiting) and len(free) >= min(len(waiting), part):
                some = min(part, len(waiting))
                owner[free[:some]] = waiting[:some]
                search.put(text.arrivals(waiting[:some], free[:some]))
                waiting, free = waiting[some:], free[some:]
                if staggered:
                    break
            if (owner >= 0).any():
                for _ in range(steps):
                    search.step()
            if left:  # while the GPU is busy
                for i, hypotheses in zip(left.requests.tolist(), _look_at(left, roles), strict=True):
                    results[i] = hypotheses
                found(len(left.requests))
            left = self._leave(search, owner)
        return results

    def _leave(self, search: RecordedSearch, owner: np.ndarray) -> Left | None:
        """Wait for the GPU; who is done gives up the place, and the tables are asked for."""
        done = np.flatnonzero((owner >= 0) & (search.slots.active.cpu().numpy() == 0))
        if not len(done):
            return None
        requests = owner[done]
        owner[done] = -1
        s, where = search.slots, self._send(torch.from_numpy(done))
        tables = [
            t.index_select(0, where)
            for t in (s.length, s.most, s.history, s.parents, s.end_totals, s.end_parents, s.scores)
        ]
        if self.device != "cuda":
            return Left(requests, tables, None)
        here = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True) for t in tables]
        arrived = torch.cuda.Event()
        arrived.record()
        return Left(requests, here, arrived)

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


def _look_at(left: Left, roles: Roles) -> list[list[Hypothesis]]:
    if left.arrived is not None:
        left.arrived.synchronize()
    return hypotheses_of(Found(*(table.numpy() for table in left.tables)), roles.n_best, roles.penalty)


class _Text:
    """All sentences end to end on the GPU, from where they are laid out when their turn comes."""

    def __init__(self, requests: list[Request], send: Callable[[Tensor], Tensor]) -> None:
        flat = array("i")
        for request in requests:
            flat.extend(request.source)
            flat.append(END)
        self.lengths = np.fromiter((len(request.source) + 1 for request in requests), np.int64, len(requests))
        most = np.fromiter((request.most for request in requests), np.int64, len(requests))
        begins = np.cumsum(self.lengths) - self.lengths
        self._send = send
        self._flat = send(torch.from_numpy(np.frombuffer(flat, np.int32).copy()))
        self._facts = send(torch.from_numpy(np.stack([begins, self.lengths, most])))

    def arrivals(self, requests: np.ndarray, places: np.ndarray) -> Arrivals:
        """These, longest first, for these places."""
        which, where = self._send(torch.from_numpy(np.stack([requests, places]))).unbind()
        begin, length, most = self._facts[:, which].unbind()
        slots = torch.arange(int(self.lengths[requests[0]]), device=which.device)
        tokens = self._flat[(begin.unsqueeze(1) + slots).clamp_(max=len(self._flat) - 1)]
        return Arrivals(tokens, length.int(), most.int(), where.int())


def _round_up(size: int) -> int:
    """To 32, 64, 128, ..."""
    return max(32, 1 << (size - 1).bit_length())
