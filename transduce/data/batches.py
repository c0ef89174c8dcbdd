"""From a store to batches: rows with segment ids, laid out by a plan (plan.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from transduce.core.layout import Sentences, sentences, shifted, with_end
from transduce.core.rows import Rows
from transduce.data.plan import Plan, Slots, bucketed, packed
from transduce.data.store import Store
from transduce.errors import DataError
from transduce.settings.sections import BatchSettings

ROW, ROW_STEP = 128, 64  # slots of a packed row unless set; made longer by so many for longer sentences
TOGETHER = 16  # packed batches that are assembled in one go


class Batch(NamedTuple):
    """What the model reads, writes after, and should write. Where several processes share a batch, these are the rows
    of one of them, but `pairs` and `tokens` those of all."""

    source: Rows
    target_in: Rows
    target_out: torch.Tensor  # (R, T): target_in shifted by one, PAD in empty slots
    pairs: np.ndarray  # places in the store
    tokens: int  # of target_out that a loss is taken of

    def to(self, device: str) -> Batch:
        target_out = self.target_out.to(device, non_blocking=True)
        return self._replace(source=self.source.to(device), target_in=self.target_in.to(device), target_out=target_out)

    def rows(self, rows: slice) -> Batch:
        """Some of its rows; `pairs` and `tokens` stay those of the whole."""
        source, target_in = (Rows(*(part[rows] for part in side)) for side in (self.source, self.target_in))
        return self._replace(source=source, target_in=target_in, target_out=self.target_out[rows])

    def split(self, parts: int) -> list[Batch]:
        """Into at most so many parts, all of one height: the last may end with empty rows."""
        height = -(-len(self.target_out) // parts)
        if parts == 1 or height == 0:
            return [self]
        starts = range(0, len(self.target_out), height)
        return [self.rows(slice(start, start + height))._with_rows(height) for start in starts]

    def _with_rows(self, height: int) -> Batch:
        """As many, the new ones empty."""
        missing = (0, 0, 0, height - len(self.target_out))
        source, target_in = (Rows(*(F.pad(part, missing) for part in side)) for side in (self.source, self.target_in))
        return self._replace(source=source, target_in=target_in, target_out=F.pad(self.target_out, missing))


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
        self,
        store: Store,
        settings: BatchSettings,
        seed: int,
        device: str = "cpu",
        share: tuple[int, int] = (0, 1),
    ) -> None:
        """`share`: which process, of how many; of every batch it lays out its part of the rows."""
        self.store = store
        self.settings = settings
        assert settings.tokens != "auto"  # it has been found by now
        self.budget = settings.tokens
        self.seed = seed
        self.share = share
        self._planned: tuple[int, list[Plan]] | None = None
        # All of the text on the GPU where that takes little of it: rows are made there and nothing waits for the CPU.
        resident = _has_room(device, store)
        self._resident = (
            [torch.from_numpy(side.ids.astype(np.int32)).to(device) for side in store.sides] if resident else None
        )
        self.slots = Slots(store.source.lengths + 1, store.target.lengths + 1)  # + 1: END, and BEGIN
        self.packed = settings.layout == "packed"
        self.row = settings.row or max(ROW, -(-self.slots.longest // ROW_STEP) * ROW_STEP)
        self._refuse_what_does_not_fit()

    def _refuse_what_does_not_fit(self) -> None:
        limit, name = (self.row, "row") if self.packed else (self.budget, "tokens")
        if self.slots.longest > limit:
            raise DataError(
                f"a sentence of {self.slots.longest} tokens does not fit: raise batch.{name}={limit} or lower "
                f"data.max_tokens"
            )
        if self.packed and self.row > self.budget:
            raise DataError(
                f"a row of {self.row} slots does not fit: raise batch.tokens={self.budget}, or set batch.layout=buckets"
            )

    def plan(self, epoch: int) -> list[Plan]:
        """Which sentences every batch of an epoch holds. The plan made last is kept."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, self._make_plan(epoch))
        return self._planned[1]

    def _make_plan(self, epoch: int) -> list[Plan]:
        rng = np.random.default_rng([self.seed, epoch])
        order = self.store.places(rng.permutation(len(self.store)), epoch).astype(np.int32)
        if self.packed:
            return list(packed(order, self.slots, self.budget // self.row, self.row))
        batches = bucketed(order, self.slots, self.budget)
        return [batches[i] for i in rng.permutation(len(batches))]

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, without the first `skip`."""
        plans = self.plan(epoch)
        if self.packed:
            for begin in range(skip, len(plans), TOGETHER):
                yield from self._lay_together(plans[begin : begin + TOGETHER])
            return
        yield from (self.assemble(plan) for plan in plans[skip:])

    def fill(self, epoch: int) -> Fill:
        tokens = slots = 0
        for plan in self.plan(epoch):
            tokens += int(self.slots.source[plan[:, 0]].sum() + self.slots.target[plan[:, 0]].sum())
            slots += self._slots(plan)
        return Fill(tokens, slots)

    def _slots(self, plan: Plan) -> int:
        """Slots of a batch, both sides together."""
        height, width = self._shape(plan)
        if width is not None:
            return 2 * height * width
        return height * int(self.slots.source[plan[:, 0]].max() + self.slots.target[plan[:, 0]].max())

    def largest(self, epoch: int) -> Batch:
        """The batch of an epoch with the most slots."""
        return self.assemble(max(self.plan(epoch), key=self._slots))

    def _shape(self, plan: Plan) -> tuple[int, int | None]:
        """Rows of a whole batch, and slots a row where that is fixed."""
        if self.packed:
            return self.budget // self.row, self.row
        return len(plan), None

    def _mine(self, plan: Plan) -> tuple[Plan, int]:
        """The part of a plan that this process lays out, and its number of rows; of packed ones, the same for all."""
        (rank, count), (height, width) = self.share, self._shape(plan)
        pairs, row = plan[:, 0], plan[:, 1]
        if width is None:  # rows are sorted by length: every count-th, so that all have as much to do
            mine = row % count == rank
            return np.column_stack([pairs[mine], row[mine] // count]), int(mine.sum())
        height = -(-height // count)
        mine = row // height == rank
        return np.column_stack([pairs[mine], row[mine] - rank * height]), height

    def _tokens(self, plan: Plan) -> int:
        """Target tokens that a loss is taken of."""
        return int(self.store.learned_tokens[plan[:, 0]].sum())

    def assemble(self, plan: Plan) -> Batch:
        """Tensors of a plan: the rows of it that are ours."""
        mine, height = self._mine(plan)
        batch = self._lay(mine, height, self._shape(plan)[1])
        return batch._replace(pairs=plan[:, 0], tokens=self._tokens(plan))

    def _lay(self, plan: Plan, height: int, width: int | None) -> Batch:
        pairs, row = plan[:, 0], plan[:, 1].astype(np.int64)
        if len(pairs) == 0 and width is None:
            width = 1  # nothing of this batch is ours
        source, target = self._take(0, pairs), self._take(1, pairs)
        target_out = with_end(target, row, height, width or int(target.lengths.max()) + 1)
        return Batch(
            source=with_end(source, row, height, width or int(source.lengths.max()) + 1),
            target_in=shifted(target_out),
            target_out=target_out.tokens,
            pairs=pairs,
            tokens=self._tokens(plan),
        )

    def _lay_together(self, plans: list[Plan]) -> Iterator[Batch]:
        """Packed batches have one shape, so several are one tall batch, cut: fewer and larger pieces of work."""
        mine = [self._mine(plan) for plan in plans]
        height, width = mine[0][1], self._shape(plans[0])[1]
        raised = [plan + np.array([0, i * height], plan.dtype) for i, (plan, _) in enumerate(mine)]
        tall = self._lay(np.concatenate(raised), height * len(plans), width)
        for i, plan in enumerate(plans):
            rows = tall.rows(slice(i * height, (i + 1) * height))
            yield rows._replace(pairs=plan[:, 0], tokens=self._tokens(plan))

    def _take(self, side: int, pairs: np.ndarray) -> Sentences:
        """The sentences of these pairs, from the GPU or from the memory map."""
        text = self.store.sides[side]
        begins, lengths = text.begins[pairs], text.lengths[pairs].astype(np.int64)
        if self._resident is not None:
            return Sentences(self._resident[side], begins, lengths)
        ends = zip(begins.tolist(), (begins + lengths).tolist(), strict=True)
        taken = sentences([text.ids[begin:end] for begin, end in ends])
        self.store.release()
        return taken


def _has_room(device: str, store: Store) -> bool:
    """Whether the text takes less than a tenth of the GPU's free memory."""
    if device != "cuda":
        return False
    size = sum(side.ids.size for side in store.sides) * np.dtype(np.int32).itemsize
    return size < torch.cuda.mem_get_info()[0] / 10
