"""Many sentences through a search, batch by batch: the plain way, which every model can go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from transduce.decoding.hypotheses import Hypothesis, Request
from transduce.decoding.search import Roles, search
from transduce.models.seq2seq import Seq2Seq


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
        for batch in batches(range(len(requests)), sizes, roles.slots, roles.size):
            together = search(self.model, [requests[i] for i in batch], roles, self.device)
            for i, hypotheses in zip(batch, together, strict=True):
                results[i] = hypotheses
            found(len(batch))
        return results


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
