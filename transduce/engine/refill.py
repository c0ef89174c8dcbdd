"""Any number of sentences through a recorded search: who is done leaves, who waits takes the place.

So the GPU always works on a full batch, whatever the lengths; and it does not wait for Python: while somebody looks who
was done after a round of steps, the next round runs already. Results are read, and others laid out, in the time left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.core.hypotheses import Hypothesis, Request
from transduce.core.search import Roles
from transduce.engine.incremental import Incremental
from transduce.engine.places import Look, Places
from transduce.engine.recorded import ARRIVING, RecordedSearch, Shape
from transduce.engine.recorded_encoder import RecordedEncoder
from transduce.engine.waiting import Waiting
from transduce.engine.walk_back import Found, Only
from transduce.errors import SettingsError
from transduce.fast.kernels.walk_back import columns, walk_back

SIZES = (1, 8, 64, 256, 1024, 4096, 8192, 16384)  # hypotheses side by side; each is recorded by itself
MANY = 512  # sentences side by side, of which some are always done: then a round is one step, if the GPU has work
PARTS = 8  # of the places; so many must be free before others are put into them, all in one go
MOST_DONE = 32  # parts whose results may wait
KEPT = 6  # recordings
SEARCHING = threading.Lock()  # a recording has one set of places, and what another thread does would be recorded too


class Done(NamedTuple):
    """Sentences that are done, and their tables once they have come from the GPU."""

    requests: np.ndarray
    tables: list[Tensor]  # one, where only the best is wanted
    arrived: torch.cuda.Event | None

    def hypotheses(self, roles: Roles) -> list[list[Hypothesis]]:
        """Waits for them."""
        if self.arrived is not None:
            self.arrived.synchronize()
        tables = [table.numpy() for table in self.tables]
        found = Only(*columns(*tables)) if len(tables) == 1 else Found(*tables)
        return found.hypotheses(roles)


class RefillEngine:
    """Greedy and beam search on a GPU."""

    def __init__(self, model: Incremental, device: str) -> None:
        self.model = model
        self.device = device
        self._recordings: dict[Shape, RecordedSearch] = {}

    @cached_property
    def _encoder(self) -> RecordedEncoder:
        return RecordedEncoder(self.model)  # of a model that only ever steps its weights need not be laid out

    @torch.inference_mode()
    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        try:
            with SEARCHING:
                return self._find(requests, roles, found)
        except torch.OutOfMemoryError as error:
            raise SettingsError(
                "the memory of this GPU is full; let nothing else use it, or try fewer --workers, "
                "a smaller search.beam, or --device cpu"
            ) from error

    def _find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        waiting = Waiting(requests, self._send, self.model.source_end)
        search = self._recording(waiting, roles)
        number = search.shape.sentences
        waiting.part = number if len(requests) <= number else max(1, number // PARTS)
        places = Places(number)
        results: list[list[Hypothesis]] = [[]] * len(requests)  # each is replaced
        done: deque[Done] = deque()
        before: Look | None = None
        while waiting.next_size() or done or places.are_taken():
            self._fill(search, waiting, places)
            now = self._stepped(search, places, before) if places.are_taken() else None
            while waiting.can_lay_out() and before is not None and not before.is_here():
                waiting.lay_out()
            while done and (now is None or len(done) > MOST_DONE or _can_read(done[0], before)):
                some = done.popleft()
                for i, hypotheses in zip(some.requests.tolist(), some.hypotheses(roles), strict=True):
                    results[i] = hypotheses
                found(len(some.requests))
            if now is not None:
                done.extend(self._leave(search, places, before))
            before = now
        return results

    def _fill(self, search: RecordedSearch, waiting: Waiting, places: Places) -> None:
        """Sentences that wait into places that are free, a part at a time."""
        free = places.free()
        if not 0 < waiting.next_size() <= len(free):
            return
        there = self._send(torch.from_numpy(free.astype(np.int32)))
        while 0 < waiting.next_size() <= len(free):
            which, arrivals = waiting.take()
            places.take(free[: len(which)], which, waiting.most[which])
            search.put(arrivals, there[: len(which)])
            free, there = free[len(which) :], there[len(which) :]

    def _stepped(self, search: RecordedSearch, places: Places, before: Look | None) -> Look:
        """A round of steps into the GPU's queue, and behind them the question who is still searched. Where the GPU had
        to wait for Python, because the model is small, it gets more to do; what is found does not depend on it."""
        has_waited = before is not None and before.is_here()
        steps = 1 if search.shape.sentences >= MANY and not has_waited else 2
        for _ in range(steps):
            search.step()
        (active,), arrived = self._on_its_way([search.slots.active])
        look = Look(places.round, active, arrived)
        places.stepped(steps)
        return look

    def _leave(self, search: RecordedSearch, places: Places, look: Look | None) -> Iterator[Done]:
        """Who is done gives up the place, and the tables are asked for."""
        done = places.done(look)
        part = ARRIVING[-1]  # one that can be read while a few steps run
        for begin in range(0, len(done), part):
            some = done[begin : begin + part]
            yield self._asked_for(search, places.leave(some), some)

    def _asked_for(self, search: RecordedSearch, requests: np.ndarray, some: np.ndarray) -> Done:
        """What was found in some places."""
        s = search.slots
        where = self._send(torch.from_numpy(some))
        if search.shape.wanted == 1:
            ended_first, forced_end = search.shape.ended_first, search.shape.penalty.forced_end
            best = walk_back(s, where, search.penalties, ended_first, forced_end)
            return Done(requests, *self._on_its_way([best]))
        tables = (s.length, s.most, s.history, s.parents, s.end_totals, s.end_parents, s.scores)
        return Done(requests, *self._on_its_way([table.index_select(0, where) for table in tables]))

    def _on_its_way(self, tables: list[Tensor]) -> tuple[list[Tensor], torch.cuda.Event | None]:
        """Copies of these that come from the GPU by themselves, and when they are here."""
        if self.device != "cuda":
            return [table.clone() for table in tables], None
        here = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True) for t in tables]
        arrived = torch.cuda.Event()
        arrived.record()
        return here, arrived

    def _recording(self, waiting: Waiting, roles: Roles) -> RecordedSearch:
        """For as many sentences as there are, and as long ones; sizes are rounded up, so that few are recorded."""
        steps, sources = _round_up(int(waiting.most.max())), _round_up(int(waiting.lengths.max()) + 1)
        rows = next((size for size in SIZES if size >= len(waiting.most) * roles.size), SIZES[-1])
        each = self._bytes_of_one(steps, sources, roles.size)

        def of(rows: int) -> Shape:
            number = max(1, rows // roles.size)
            sizes = (number, roles.size, steps, sources, roles.n_best, roles.needed)
            return Shape(*sizes, roles.penalty, roles.stop, roles.ended_first)

        while (shape := of(rows)) not in self._recordings and rows > 64 and rows * each > self._room():
            rows //= 2
        if shape not in self._recordings:
            while len(self._recordings) >= KEPT or (self._recordings and rows * each > self._room()):
                del self._recordings[next(iter(self._recordings))]
            self._recordings[shape] = RecordedSearch(self._encoder, shape, self.device)
        return self._recordings[shape]

    def _bytes_of_one(self, steps: int, sources: int, beams: int) -> int:
        """What a hypothesis takes, logits included."""
        w = self.model.weights
        heads = w.self_heads
        slot = len(w.layers) * heads.number * (heads.d_k + heads.d_v) * w.projection.weight.element_size()
        return slot * (steps + sources // beams) + 8 * w.projection.weight.size(0)

    def _room(self) -> int:
        """Half of what is free, for one recording; of this process's share, where several use the GPU together."""
        if self.device != "cuda":
            return 2**31
        torch.cuda.empty_cache()  # what nobody uses; what stays reserved is that of other recordings
        free, all_of_it = torch.cuda.mem_get_info()
        share = int(torch.cuda.get_per_process_memory_fraction() * all_of_it)
        return min(free, share - torch.cuda.memory_reserved()) // 2

    def _send(self, x: torch.Tensor) -> torch.Tensor:
        return x.pin_memory().to(self.device, non_blocking=True) if self.device == "cuda" else x


def _can_read(done: Done, before: Look | None) -> bool:
    """Whether there is time to read these results: they are here, and the GPU has more than a round to do."""
    return before is not None and not before.is_here() and (done.arrived is None or done.arrived.query())


def _round_up(size: int) -> int:
    """To 32, 64, 128, ..."""
    return max(32, 1 << (size - 1).bit_length())
