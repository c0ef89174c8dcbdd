"""From a store to batches: rows with segment ids, in an order that (seed, epoch) decides alone.

Two layouts. `buckets`: one sentence a row, among sentences of about its length. `packed`: several sentences a row,
put by first fit into rows of one fixed shape; a row holds the same sentences on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from transduce.config import BatchSettings
from transduce.data.store import Store
from transduce.errors import DataError
from transduce.nn.rows import Rows
from transduce.text.tokenizer import BEGIN, END, PAD, UNKNOWN, Tokenizers

POOL = 100  # a bucket pool holds about this many batches: long enough to sort, short enough to stay random
OPEN_ROWS = 64  # rows that first fit tries before it opens a new one

Row = list[int]  # the pairs that share a row, by their place in the store


class Batch(NamedTuple):
    """What the model reads, writes after, and should write."""

    source: Rows
    target_in: Rows
    target_out: torch.Tensor  # (R, T): target_in shifted by one, PAD in empty slots
    pairs: list[int]  # places in the store

    def to(self, device: str) -> Batch:
        target_out = self.target_out.to(device, non_blocking=True)
        return Batch(self.source.to(device), self.target_in.to(device), target_out, self.pairs)


class Fill(NamedTuple):
    """How full the batches of an epoch are, both sides together."""

    tokens: int
    slots: int

    @property
    def empty(self) -> float:
        return 1 - self.tokens / max(self.slots, 1)


class Batches:
    """The batches of a store."""

    def __init__(
        self, store: Store, settings: BatchSettings, tokenizers: Tokenizers, seed: int, sampling: float = 0.0
    ) -> None:
        self.store = store
        self.settings = settings
        self.tokenizers = tokenizers
        self.seed = seed
        self.sampling = sampling
        # + 1: the source ends with END, the target begins with BEGIN
        self.source_slots = store.source_lengths + 1
        self.target_slots = store.target_lengths + 1
        longest = int(max(self.source_slots.max(initial=0), self.target_slots.max(initial=0)))
        limit, name = (settings.row, "row") if settings.layout == "packed" else (settings.tokens, "tokens")
        if longest > limit:
            raise DataError(f"a sentence of {longest} tokens does not fit: raise batch.{name}={limit} or lower data.max_tokens")

    def plan(self, epoch: int) -> list[list[Row]]:
        """The rows of every batch of an epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.store))
        if self.settings.layout == "packed":
            rows = list(self._first_fit(order))
            height = self.settings.tokens // self.settings.row
            return [rows[i : i + height] for i in range(0, len(rows), height)]
        batches = [batch for pool in self._pools(order) for batch in self._by_length(pool)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, without the first `skip`."""
        for number, rows in enumerate(self.plan(epoch)):
            if number >= skip:
                yield self.assemble(rows, seed=hash((self.seed, epoch, number)))

    def fill(self, epoch: int) -> Fill:
        tokens = int(self.source_slots.sum() + self.target_slots.sum())
        if self.settings.layout == "packed":
            height = self.settings.tokens // self.settings.row
            return Fill(tokens, 2 * len(self.plan(epoch)) * height * self.settings.row)
        slots = 0
        for rows in self.plan(epoch):
            pairs = [pair for row in rows for pair in row]
            slots += len(pairs) * int(self.source_slots[pairs].max() + self.target_slots[pairs].max())
        return Fill(tokens, slots)

    def _pools(self, order: np.ndarray) -> Iterator[np.ndarray]:
        mean = (self.source_slots.mean() + self.target_slots.mean()) / 2
        size = max(1, int(POOL * self.settings.tokens / mean))
        return (order[i : i + size] for i in range(0, len(order), size))

    def _by_length(self, pool: np.ndarray) -> Iterator[list[Row]]:
        """Sorted by length and cut where rows x longest side would pass the budget."""
        source, target = self.source_slots[pool], self.target_slots[pool]
        batch: list[Row] = []
        longest = 0
        for pair in pool[np.lexsort((source, np.maximum(source, target)))]:
            width = max(longest, int(self.source_slots[pair]), int(self.target_slots[pair]))
            if batch and (len(batch) + 1) * width > self.settings.tokens:
                yield batch
                batch, width = [], max(int(self.source_slots[pair]), int(self.target_slots[pair]))
            batch.append([int(pair)])
            longest = width
        if batch:
            yield batch

    def _first_fit(self, order: np.ndarray) -> Iterator[Row]:
        """Each sentence into the first open row with room on both sides; the fullest row gives way to a new one."""
        length = self.settings.row
        rows: list[Row] = []
        room: list[list[int]] = []  # [source slots, target slots] left in each open row
        for pair in order:
            source, target = int(self.source_slots[pair]), int(self.target_slots[pair])
            for row, left in zip(rows, room, strict=True):
                if left[0] >= source and left[1] >= target:
                    break
            else:
                if len(rows) == OPEN_ROWS:
                    fullest = min(range(OPEN_ROWS), key=lambda i: sum(room[i]))
                    yield rows.pop(fullest)
                    room.pop(fullest)
                row, left = [], [length, length]
                rows.append(row)
                room.append(left)
            row.append(int(pair))
            left[0] -= source
            left[1] -= target
        yield from rows

    def assemble(self, rows: Sequence[Row], seed: int = 0) -> Batch:
        """Tensors of these rows; with subword sampling, of one random segmentation of their text."""
        sources = [[self.store.source(pair).tolist() for pair in row] for row in rows]
        targets = [[self.store.target(pair).tolist() for pair in row] for row in rows]
        if self.sampling:
            sources = self._sample(sources, self.tokenizers.source.decode, self.tokenizers.source.sample, seed)
            targets = self._sample(targets, self.tokenizers.target.decode, self.tokenizers.target.sample, seed + 1)
        packed = self.settings.layout == "packed"
        height = self.settings.tokens // self.settings.row if packed else len(rows)
        width = self.settings.row if packed else None
        source = lay_out([[[*s, END] for s in row] for row in sources], height, width)
        target_in = lay_out([[[BEGIN, *t] for t in row] for row in targets], height, width)
        target_out = lay_out([[[*t, END] for t in row] for row in targets], height, width)
        return Batch(source, target_in, target_out.tokens, [pair for row in rows for pair in row])

    def _sample(self, rows, decode, sample, seed: int) -> list[list[list[int]]]:  # type: ignore[no-untyped-def]
        """Another segmentation of each sentence. One with unknown characters has no text to go back to and stays;
        so does one that grew longer than any sentence of the store, or whose row would overflow its fixed shape."""
        texts = [decode(ids) for row in rows for ids in row]
        drawn = iter(sample(texts, self.sampling, seed))
        longest = max(self.source_slots.max(), self.target_slots.max())
        changed = []
        for row in rows:
            # zip asks the row first, so that nothing drawn is lost where it ends
            new = [ids if UNKNOWN in ids or len(draw) >= longest else draw for ids, draw in zip(row, drawn, strict=False)]
            fits = self.settings.layout != "packed" or sum(len(ids) + 1 for ids in new) <= self.settings.row
            changed.append(new if fits else row)
        return changed


def lay_out(rows: Sequence[Sequence[Sequence[int]]], height: int | None = None, width: int | None = None) -> Rows:
    """Sentences as Rows: `rows[r]` are the sentences of row r, end to end, numbered from 1."""
    height = height or len(rows)
    width = width or max(sum(map(len, row)) for row in rows)
    tokens, segments, positions = (np.full((height, width), fill, np.int64) for fill in (PAD, 0, 0))
    for r, row in enumerate(rows):
        slot = 0
        for number, sentence in enumerate(row, 1):
            end = slot + len(sentence)
            tokens[r, slot:end] = sentence
            segments[r, slot:end] = number
            positions[r, slot:end] = np.arange(len(sentence))
            slot = end
    return Rows(torch.from_numpy(tokens), torch.from_numpy(segments), torch.from_numpy(positions))
