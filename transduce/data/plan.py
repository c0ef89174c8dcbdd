"""Which sentences share a batch: two layouts, in an order that (seed, epoch) decides alone.

`buckets`: one sentence a row, among sentences of about its length. `packed`: several sentences a row, put by first fit
into rows of one fixed shape; a row holds the same sentences on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

POOL = 100  # a bucket pool holds about this many batches: long enough to sort, short enough to stay random
OPEN = 16  # rows of a packed batch that are being filled

Plan = np.ndarray  # (sentences, 2) of one batch: place in the store, row


class Slots(NamedTuple):
    """Slots that each place of a store needs: its tokens, and END on the source side, BEGIN on the target side."""

    source: np.ndarray
    target: np.ndarray

    @property
    def longest(self) -> int:
        return int(max(side.max(initial=0) for side in self))


def bucketed(order: np.ndarray, slots: Slots, budget: int) -> list[Plan]:
    """Batches of sentences of about one length, from an order of places; sentences of a pool are sorted."""
    mean = (slots.source.mean() + slots.target.mean()) / 2
    size = max(1, int(POOL * budget / mean))
    pools = (order[i : i + size] for i in range(0, len(order), size))
    return [batch for pool in pools for batch in _by_length(pool, slots, budget)]


def _by_length(pool: np.ndarray, slots: Slots, budget: int) -> Iterator[Plan]:
    """Sorted by length and cut where rows x longest side would pass the budget."""
    source, target = slots.source[pool], slots.target[pool]
    pool = pool[np.lexsort((source, np.maximum(source, target)))]
    longest = np.maximum(slots.source[pool], slots.target[pool])
    begin = 0
    while begin < len(pool):
        most = budget // longest[begin]
        used = longest[begin : begin + most] * np.arange(1, len(longest[begin : begin + most]) + 1)
        rows = int(np.count_nonzero(used <= budget))
        yield np.column_stack([pool[begin : begin + rows], np.arange(rows, dtype=np.int32)])
        begin += rows


def packed(order: np.ndarray, slots: Slots, height: int, width: int) -> Iterator[Plan]:
    """Each sentence into the first open row with room on both sides; a batch ends when its rows are used up.

    At most OPEN rows are open: then the fullest is closed, which hardly costs room and saves most of the looking.
    """
    lengths = slots.source[order].tolist(), slots.target[order].tolist()
    plan: list[tuple[int, int]] = []
    rows: list[list[int]] = []  # open ones: room for source, room for target, number
    opened = 0
    for pair, source, target in zip(order.tolist(), *lengths, strict=True):
        for row in rows:
            if row[0] >= source and row[1] >= target:
                break
        else:
            if opened == height:
                yield _by_row(plan)
                plan, rows, opened = [], [], 0
            elif len(rows) == OPEN:
                rows.remove(min(rows))
            row = [width, width, opened]
            rows.append(row)
            opened += 1
        row[0] -= source
        row[1] -= target
        plan.append((pair, row[2]))
    if plan:
        yield _by_row(plan)


def _by_row(plan: list[tuple[int, int]]) -> Plan:
    rows = np.array(plan, np.int32)
    return rows[np.argsort(rows[:, 1], kind="stable")]
