"""When memory is scarce: a batch is worked on in parts, the largest is tried first, and the budget can be found."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from transduce.data.batches import Batch
from transduce.errors import UserError
from transduce.report import Report
from transduce.training.gradients import Gradients, PlainGradients
from transduce.training.overlap import GradientSum

FIRST = 4096  # slots that are tried, and twice as many; the rest follows in proportion
MOST = 65_536  # beyond this a GPU is no faster, and updates become few
SHARE = 0.85  # of the memory that is free
STEP = 1024


class BatchGradients:
    """Gradients of whole batches, each worked on in `parts`: the same sum, in less memory."""

    def __init__(self, gradients: Gradients, parts: int, device: str, report: Report) -> None:
        self.gradients, self.parts, self.device, self.report = gradients, parts, device, report

    def add(self, batches: list[Batch], tokens: int, step: int, total: GradientSum | None = None) -> Tensor:
        """Add the gradients of all batches, divided by `tokens`; gives the loss, summed. Out of memory, it is tried
        once more in halves. `total`: whose sum over processes may begin with the last part."""
        try:
            return self._sum(batches, tokens, self.parts, total)
        except torch.OutOfMemoryError:
            recorded = not isinstance(self.gradients, PlainGradients)  # a graph has one shape
            if recorded or (total is not None and total.sent):  # and what is sent cannot be taken back
                raise self._too_large(f"out of memory at step {step:,}", 2) from None
        # Only here, outside the handler, has the failed attempt let go of its memory.
        self._start_again()
        if total is not None:
            total.forget()
        self.report.warn(f"step {step:,}: out of memory; trying again in halves")
        try:
            return self._sum(batches, tokens, 2 * self.parts, total)
        except torch.OutOfMemoryError as error:
            raise self._too_large(f"out of memory at step {step:,}, in halves too", 4) from error

    def try_first(self, find_largest: Callable[[], Batch], beside: int) -> None:
        """Work on the largest batch, with `beside` bytes taken for what will be there in training; leaves no
        trace. Not on a CPU, whose system would end us without a word; and not with a recorded graph, whose batches have
        one shape."""
        if self.device == "cpu" or not isinstance(self.gradients, PlainGradients):
            return
        largest = find_largest()
        random = torch.cuda.get_rng_state() if self.device == "cuda" else torch.get_rng_state()
        try:
            taken = torch.empty(beside, dtype=torch.uint8, device=self.device)
            self._sum([largest], largest.tokens, self.parts)
            del taken
        except torch.OutOfMemoryError as error:
            slots = largest.target_out.numel()
            raise self._too_large(f"the largest batch ({slots:,} target slots) does not fit into memory", 2) from error
        self._start_again()
        (torch.cuda.set_rng_state if self.device == "cuda" else torch.set_rng_state)(random)

    def _sum(self, batches: list[Batch], tokens: int, parts: int, total: GradientSum | None = None) -> Tensor:
        shares = [batch for batch in batches if len(batch.target_out)]  # one may be empty
        mine = [part for batch in shares for part in batch.split(parts)]
        totals = []
        for number, part in enumerate(mine, 1):
            if total is not None and number == len(mine):
                total.begin()
            totals.append(self.gradients.add(part.to(self.device), 1 / tokens))
        return torch.stack(totals).sum() if totals else torch.zeros((), device=self.device)

    def _start_again(self) -> None:
        self.gradients.clear()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def _too_large(self, problem: str, times: int) -> UserError:
        return UserError(f"{problem}; go on with batch.split={times * self.parts}: the same updates in less memory")


def find_budget(try_update: Callable[[int], None]) -> int:
    """The batch.tokens that fit into a GPU. `try_update` makes one update with the largest batch of a budget, and keeps
    nothing.

    What a batch needs grows in proportion to its slots: two tries tell how fast.
    """
    free, _ = torch.cuda.mem_get_info()
    first = FIRST
    while True:
        try:
            needs = [_peak(try_update, slots) for slots in (first, 2 * first)]
            break
        except (torch.OutOfMemoryError, UserError):
            if first <= STEP // 2:
                raise
        first //= 2
    a_slot = max((needs[1] - needs[0]) / first, 1.0)
    fitting = int(first + (SHARE * free - needs[0]) / a_slot)
    return max(STEP, min(MOST, fitting) // STEP * STEP)


def _peak(try_update: Callable[[int], None], slots: int) -> int:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try_update(slots)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
