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
from transduce.text.tokenizer import BEGIN, END, PAD, UNKNOWN, Tokenizer, Tokenizers

POOL = 100  # a bucket pool holds about this many batches: long enough to sort, short enough to stay random

Plan = np.ndarray  # (sentences, 2) of one batch: place in the store, row


class Batch(NamedTuple):
    """What the model reads, writes after, and should write."""

    source: Rows
    target_in: Rows
    target_out: torch.Tensor  # (R, T): target_in shifted by one, PAD in empty slots
    pairs: np.ndarray  # places in the store

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
        self._planned: tuple[int, list[Plan]] | None = None
        # + 1: the source ends with END, the target begins with BEGIN
        self.source_slots = store.source_lengths + 1
        self.target_slots = store.target_lengths + 1
        longest = int(max(self.source_slots.max(initial=0), self.target_slots.max(initial=0)))
        limit, name = (settings.row, "row") if settings.layout == "packed" else (settings.tokens, "tokens")
        if longest > limit:
            raise DataError(
                f"a sentence of {longest} tokens does not fit: raise batch.{name}={limit} or lower data.max_tokens"
            )

    def plan(self, epoch: int) -> list[Plan]:
        """Which sentences every batch of an epoch holds. The plan made last is kept."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, self._make_plan(epoch))
        return self._planned[1]

    def _make_plan(self, epoch: int) -> list[Plan]:
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.store)).astype(np.int32)
        if self.settings.layout == "packed":
            return list(self._first_fit(order))
        batches = [batch for pool in self._pools(order) for batch in self._by_length(pool)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, without the first `skip`."""
        for number, plan in enumerate(self.plan(epoch)):
            if number >= skip:
                yield self.assemble(plan, seed=hash((self.seed, epoch, number)))

    def fill(self, epoch: int) -> Fill:
        tokens = int(self.source_slots.sum() + self.target_slots.sum())
        slots = 0
        for plan in self.plan(epoch):
            height, width = self._shape(plan)
            if width is not None:
                slots += 2 * height * width
            else:
                slots += height * int(self.source_slots[plan[:, 0]].max() + self.target_slots[plan[:, 0]].max())
        return Fill(tokens, slots)

    def _shape(self, plan: Plan) -> tuple[int, int | None]:
        """Rows, and slots a row where that is fixed."""
        if self.settings.layout == "packed":
            return self.settings.tokens // self.settings.row, self.settings.row
        return len(plan), None

    def _pools(self, order: np.ndarray) -> Iterator[np.ndarray]:
        mean = (self.source_slots.mean() + self.target_slots.mean()) / 2
        size = max(1, int(POOL * self.settings.tokens / mean))
        return (order[i : i + size] for i in range(0, len(order), size))

    def _by_length(self, pool: np.ndarray) -> Iterator[Plan]:
        """Sorted by length and cut where rows x longest side would pass the budget."""
        source, target = self.source_slots[pool], self.target_slots[pool]
        pool = pool[np.lexsort((source, np.maximum(source, target)))]
        longest = np.maximum(self.source_slots[pool], self.target_slots[pool])
        begin = 0
        while begin < len(pool):
            most = self.settings.tokens // longest[begin]
            slots = longest[begin : begin + most] * np.arange(1, len(longest[begin : begin + most]) + 1)
            rows = int(np.count_nonzero(slots <= self.settings.tokens))
            yield np.column_stack([pool[begin : begin + rows], np.arange(rows, dtype=np.int32)])
            begin += rows

    def _first_fit(self, order: np.ndarray) -> Iterator[Plan]:
        """Each sentence into the first row with room on both sides; a batch ends when none has room."""
        height = self.settings.tokens // self.settings.row
        plan: list[tuple[int, int]] = []
        room = np.full((2, height), self.settings.row)
        for pair in order:
            need = np.array([[self.source_slots[pair]], [self.target_slots[pair]]])
            fitting = np.flatnonzero((room[0] >= need[0]) & (room[1] >= need[1]))
            if not len(fitting):
                yield np.array(plan, np.int32)
                plan, room, fitting = [], np.full((2, height), self.settings.row), np.zeros(1, int)
            row = int(fitting[0])
            room[:, row] -= need[:, 0]
            plan.append((int(pair), row))
        if plan:
            yield np.array(plan, np.int32)

    def assemble(self, plan: Plan, seed: int = 0) -> Batch:
        """Tensors of a plan; with subword sampling, of one random segmentation of its text."""
        height, width = self._shape(plan)
        sources: list[list[list[int]]] = [[] for _ in range(height)]  # sentences by row
        targets: list[list[list[int]]] = [[] for _ in range(height)]
        for pair, row in plan.tolist():
            sources[row].append(self.store.source(pair).tolist())
            targets[row].append(self.store.target(pair).tolist())
        if self.sampling:
            sources = self._sample(sources, self.tokenizers.source, seed)
            targets = self._sample(targets, self.tokenizers.target, seed + 1)
        source = lay_out([[[*s, END] for s in row] for row in sources], width)
        target_in = lay_out([[[BEGIN, *t] for t in row] for row in targets], width)
        target_out = lay_out([[[*t, END] for t in row] for row in targets], width)
        return Batch(source, target_in, target_out.tokens, plan[:, 0])

    def _sample(self, rows: list[list[list[int]]], tokenizer: Tokenizer, seed: int) -> list[list[list[int]]]:
        """Another segmentation of each sentence. One with unknown characters has no text to go back to and stays;
        so does one that grew out of all proportion: the batch's budget was planned without it."""
        texts = [tokenizer.decode(ids) for row in rows for ids in row]
        drawn = iter(tokenizer.sample(texts, self.sampling, seed))
        longest = min(2 * max(len(ids) for row in rows for ids in row), self.store.longest)

        def choose(ids: list[int], draw: list[int]) -> list[int]:
            return ids if UNKNOWN in ids or len(draw) > longest else draw

        return [[choose(ids, next(drawn)) for ids in row] for row in rows]


def lay_out(rows: Sequence[Sequence[Sequence[int]]], width: int | None = None) -> Rows:
    """Sentences as Rows: `rows[r]` are the sentences of row r, end to end, numbered from 1."""
    width = width or max(sum(map(len, row)) for row in rows)
    tokens, segments, positions = (np.full((len(rows), width), fill, np.int64) for fill in (PAD, 0, 0))
    for r, row in enumerate(rows):
        slot = 0
        for number, sentence in enumerate(row, 1):
            end = slot + len(sentence)
            tokens[r, slot:end] = sentence
            segments[r, slot:end] = number
            positions[r, slot:end] = np.arange(len(sentence))
            slot = end
    return Rows(torch.from_numpy(tokens), torch.from_numpy(segments), torch.from_numpy(positions))
