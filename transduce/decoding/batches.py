"""Many sentences through a search, batch by batch: the plain way, which every model can go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch

from transduce.core.choose import Best
from transduce.core.hypotheses import Hypothesis, Request
from transduce.core.rules import at_least, within_vocabulary
from transduce.core.search import Roles, search
from transduce.core.seq2seq import Seq2Seq

FEW = 20  # lines: whoever asks for fewer at a time may do so again and again
MOST_WORKERS = 4  # threads; Python runs one at a time, and more would wait for one another
CORES = threading.Lock()
Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """What finds translations of any number of sentences, in its own order and batches."""

    chunk: int  # lines that are worth having at once
    takes_rules: bool  # of ours, whatever they forbid
    name: str  # with where it computes and how, for a report
    alone: int  # lines that came a few at a time, as in a service, and may come so again

    def warm_up(self) -> None:
        """Whatever must be done once, now."""

    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        """The hypotheses of each, best first. `found` is told how many more are done."""


@runtime_checkable
class HasPart(Protocol):
    """A model that can be had for a part of the vocabulary."""

    def within(self, columns: torch.Tensor) -> Seq2Seq:
        """Its tokens are called by their place in `columns`, ascending, special ones as ever."""


class PlainEngine:
    """The readable search of search.py, on batches of like length, longest first."""

    chunk = 4096
    takes_rules = True
    alone = 0

    def __init__(self, model: Seq2Seq, device: str, name: str = "plain", larger: int = 1) -> None:
        """`larger`: times as large batches as are asked for."""
        self.model = model
        self.device = device
        self.name = f"{name} on {device}"
        self.larger = larger

    def warm_up(self) -> None:
        """Nothing here."""

    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        try:
            return self._find(requests, roles, found)
        except torch.OutOfMemoryError:
            if self.larger == 1:
                raise
            self.larger = 1
            return self._find(requests, roles, found)

    def _find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        if self.model.training:
            self.model.eval()  # goes through all of its parts, which takes longer than a step
        results: list[list[Hypothesis]] = [[] for _ in requests]
        sizes = [len(request.source) + 1 for request in requests]
        workers = torch.get_num_threads() if self.device == "cpu" else 1
        groups = shared_out(range(len(requests)), sizes, self.larger * roles.slots, roles.size + roles.room, workers)

        def search_all(group: list[int]) -> list[list[Hypothesis]]:
            return self._search([requests[i] for i in group], roles)

        for batch, together in zip(groups, side_by_side(search_all, groups, self.device), strict=True):
            for i, hypotheses in zip(batch, together, strict=True):
                results[i] = hypotheses
            found(len(batch))
        return results

    def _search(self, requests: list[Request], roles: Roles) -> list[list[Hypothesis]]:
        """One batch. With shortlists a model that can do so computes only what is on one of them."""
        lists = [request.vocabulary for request in requests if request.vocabulary is not None]
        simple = all(rule in (within_vocabulary, at_least) for rule in roles.rules) and isinstance(roles.choose, Best)
        if len(lists) < len(requests) or not simple or not isinstance(self.model, HasPart):
            return search(self.model, requests, roles, self.device)
        columns = np.unique(np.concatenate([*lists, np.array(roles.begin, np.int64)]))
        own = [r._replace(vocabulary=np.searchsorted(columns, v)) for r, v in zip(requests, lists, strict=True)]
        roles = roles._replace(begin=tuple(np.searchsorted(columns, roles.begin).tolist()))
        found = search(self.model.within(torch.from_numpy(columns).to(self.device)), own, roles, self.device)
        return [[h._replace(tokens=columns[h.tokens].tolist()) for h in hypotheses] for hypotheses in found]


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], device: str) -> Iterator[Result]:
    """The work on each item, in order. On a CPU up to four items share the cores, which is faster than all cores on
    one: many operations are too small to be shared."""
    if device != "cpu" or len(items) <= 1:
        yield from map(work, items)
        return
    with CORES:  # the number of PyTorch's threads is the process's
        cores = torch.get_num_threads()
        workers = min(cores, len(items), MOST_WORKERS)
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(cores // workers,))
        try:
            yield from pool.map(work, items)
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(cores)


def shared_out(items: Sequence[int], sizes: list[int], slots: int, width: int, workers: int) -> list[list[int]]:
    """Batches in a number that so many workers can share, all about as full: with five, or a small last one, one of two
    would stand idle at the end."""
    workers = min(workers, MOST_WORKERS)
    groups = list(batches(items, sizes, slots, width))
    most = -(-len(groups) // workers) * workers
    if workers == 1 or not 1 < len(groups) <= 8 * workers:
        return groups
    low, high = width * max(sizes) - 1, slots  # the fewest slots that make no more batches than that
    while high - low > 1:
        middle = (low + high) // 2
        fewer = len(list(batches(items, sizes, middle, width))) <= most
        low, high = (low, middle) if fewer else (middle, high)
    return list(batches(items, sizes, high, width))


def batches(items: Iterable[int], sizes: list[int], slots: int, width: int = 1) -> Iterator[list[int]]:
    """Items of like size together, largest first, each batch within `slots`, of which an item takes `width` rows."""
    return budget(sorted(items, key=lambda i: -sizes[i]), lambda i: sizes[i] * width, slots)


def budget(items: Iterable[int], size: Callable[[int], int], most: int) -> Iterator[list[int]]:
    """Cut items, largest first, into groups whose count x largest size stays within `most`."""
    group: list[int] = []
    for item in items:
        if group and (len(group) + 1) * size(group[0]) > most:
            yield group
            group = []
        group.append(item)
    if group:
        yield group
