"""Many sentences through a search, batch by batch: the plain way, which every model can go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch

from transduce.decoding.hypotheses import Hypothesis, Request
from transduce.decoding.search import Roles, search
from transduce.models.seq2seq import Seq2Seq

MOST_WORKERS = 4  # threads; Python runs one at a time, and more would wait for one another
Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """What finds translations of any number of sentences, in its own order and batches."""

    chunk: int  # lines that are worth having at once
    name: str  # with where it computes and how, for a report

    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        """The hypotheses of each, best first. `found` is told how many more are done."""


class PlainEngine:
    """The readable search of search.py, on batches of like length, longest first."""

    chunk = 4096

    def __init__(self, model: Seq2Seq, device: str, name: str = "plain") -> None:
        self.model = model
        self.device = device
        self.name = f"{name} on {device}"

    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        self.model.eval()
        results: list[list[Hypothesis]] = [[] for _ in requests]
        sizes = [len(request.source) + 1 for request in requests]
        groups = list(batches(range(len(requests)), sizes, roles.slots, roles.size))

        def search_all(group: list[int]) -> list[list[Hypothesis]]:
            return search(self.model, [requests[i] for i in group], roles, self.device)

        for batch, together in zip(groups, side_by_side(search_all, groups, self.device), strict=True):
            for i, hypotheses in zip(batch, together, strict=True):
                results[i] = hypotheses
            found(len(batch))
        return results


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], device: str) -> Iterator[Result]:
    """The work on each item, in order. On a CPU every core has its own item, which is faster than all of them on one:
    many operations are too small to be shared."""
    cores = torch.get_num_threads()
    workers = min(cores, len(items), MOST_WORKERS) if device == "cpu" else 1
    if workers <= 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(cores // workers,))
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)


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
