"""Many processes, one run: what torchrun starts, on one machine or several.

Every process has the whole model and takes some rows of every batch; gradients are summed, already divided by the
tokens of the whole batch. So the result does not depend on how many processes there are, but for the order in which
numbers are added. All gradients lie in one tensor (flat.py): summing them is one call, and no wrapper is needed.

The first process alone writes and speaks. Small decisions (stop now? save now?) are taken together, over a group of
their own on the CPU.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from transduce.errors import TransduceError

Thing = TypeVar("Thing")

# A process that dies is noticed at once, by its closed connection. This is for the one that prepares the text, for
# which the others wait.
PATIENCE = timedelta(days=2)


@dataclass(frozen=True)
class Processes:
    """This process among those of a run; alone unless said otherwise."""

    rank: int = 0
    count: int = 1
    _decide: Any = None  # the group for small decisions

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> None:
        """Over all processes, in place."""
        if self.count > 1:
            with _death_noticed():
                dist.all_reduce(tensor)

    def highest(self, *numbers: int) -> list[int]:
        """Of each number, the highest that any process gave."""
        if self.count == 1:
            return list(numbers)
        given = torch.tensor(numbers)
        with _death_noticed():
            dist.all_reduce(given, dist.ReduceOp.MAX, group=self._decide)
        return given.tolist()

    def gather(self, thing: Thing) -> list[Thing]:
        """What every process gave, by rank."""
        if self.count == 1:
            return [thing]
        found: list[Any] = [None] * self.count
        with _death_noticed():
            dist.all_gather_object(found, thing, group=self._decide)
        return found

    @contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """The body is run by the first process, and then by the others, who find its work done."""
        if not self.is_first:
            self.gather(None)
        yield
        if self.is_first:
            self.gather(None)


ALONE = Processes()


class AnotherDied(TransduceError):
    """One of the processes has ended before the others."""


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """All processes that torchrun has started; alone without torchrun."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    with _death_noticed():
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(
            backend, store=_store(), rank=int(os.environ["RANK"]), world_size=count, timeout=PATIENCE
        )
        decide = dist.new_group(backend="gloo", timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), count, decide)
    except AnotherDied:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, who would have us go without a word
        raise
    finally:
        dist.destroy_process_group()


def _store() -> dist.Store:
    """Where processes tell each other their addresses. Those of an earlier attempt, before torchrun has restarted them,
    may still stand there: each attempt has its own part."""
    store, _, _ = next(dist.rendezvous("env://", timeout=PATIENCE))
    return dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


@contextmanager
def _death_noticed() -> Iterator[None]:
    """A connection that ends means that a process has."""
    try:
        yield
    except (RuntimeError, ConnectionError) as error:  # gloo and NCCL have no error of their own for it
        raise AnotherDied(
            "another process of this run has ended, so this one ends too; its message tells why, and the same command "
            "goes on from the last checkpoint"
        ) from error
