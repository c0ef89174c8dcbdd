"""Many processes, one run: what torchrun starts, on one machine or several.

Every process has the whole model and takes some rows of every batch; gradients are summed, already divided by the
tokens of the whole batch. So the result does not depend on how many processes there are, but for the order in which
numbers are added. All gradients lie in one tensor (flat.py): summing them is one call, and no wrapper is needed.

The main process, rank 0, alone writes and speaks. Small decisions (stop now? save now?) are taken together, over a
group of their own on the CPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from transduce.errors import SettingsError, TransduceError

Thing = TypeVar("Thing")

# A process that dies is noticed at once, by its closed connection; these are for one that hangs.
PATIENCE = timedelta(days=2)  # with the main one, which prepares the text
STUCK = timedelta(minutes=30)  # with any, in the middle of an update
MEETING = timedelta(minutes=10)  # until all processes have been started
MESSAGE = timedelta(seconds=2)  # with a process that has the same error to tell


@dataclass(frozen=True)
class Processes:
    """This process among those of a run; alone unless said otherwise."""

    rank: int = 0
    count: int = 1
    _decide: Sequence[dist.ProcessGroup] = ()  # the group for small decisions; none after the end

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> None:
        """Over all processes, in place."""
        if self.count > 1:
            with death_noticed():
                dist.all_reduce(tensor)

    def maximum(self, *numbers: int) -> list[int]:
        """Each number as the largest that any process gave."""
        if self.count == 1:
            return list(numbers)
        given = torch.tensor(numbers)
        with death_noticed():
            dist.all_reduce(given, dist.ReduceOp.MAX, group=self._decide[0])
        return given.tolist()

    def gather(self, thing: Thing) -> list[Thing]:
        """What every process gave, by rank; it travels as JSON."""
        if self.count == 1:
            return [thing]
        content = json.dumps(thing).encode()
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        with death_noticed():
            dist.all_gather(sizes, torch.tensor([len(content)]), group=self._decide[0])
        longest = max(int(size) for size in sizes)
        contents = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.count)]
        mine = torch.frombuffer(bytearray(content.ljust(longest)), dtype=torch.uint8)
        with death_noticed():
            dist.all_gather(contents, mine, group=self._decide[0])
        return [json.loads(bytes(part[: int(size)].numpy())) for part, size in zip(contents, sizes, strict=True)]

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """The body is run by the main process, and then by the others, who find its work done."""
        if not self.is_main:
            self.gather(None)
        yield
        if self.is_main:
            self.gather(None)


ALONE = Processes()


class AnotherDied(TransduceError):
    """One of the processes has ended before the others."""


@contextmanager
def process_group(device: str) -> Iterator[Processes]:
    """All processes that torchrun has started; alone without torchrun."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device == "mps":
        raise SettingsError("several processes cannot share an Apple GPU; train with one, or with --device cpu")
    if device == "cuda" and local >= torch.cuda.device_count():
        raise SettingsError(f"torchrun has started more processes than there are GPUs ({torch.cuda.device_count()})")
    if device == "cuda":
        torch.cuda.set_device(local)
    with death_noticed():
        store = _store(rank, count)
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=STUCK)
        decide = [dist.new_group(backend="gloo", timeout=PATIENCE)]
    try:
        yield Processes(rank, count, decide)
    except TransduceError as error:
        if isinstance(error, AnotherDied):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, who would have us go without a word
        error.is_repeated = _is_said_by_another(str(error), store, rank)
        raise
    finally:
        dist.destroy_process_group()
        decide.clear()  # the last reference: its threads end now, not in the midst of Python's own end, which aborts


def _is_said_by_another(message: str, store: dist.Store, rank: int) -> bool:
    """Whether a process of lower rank ends with the same words: what all raise alike is said once."""
    until = time.monotonic() + MESSAGE.total_seconds()
    try:
        store.set(f"error/{rank}", message)
        while rank > 0 and time.monotonic() < until:
            for other in range(rank):
                if store.check([f"error/{other}"]):
                    return store.get(f"error/{other}").decode() == message
            time.sleep(0.05)
    except (RuntimeError, ConnectionError):
        pass  # whoever kept the store is gone too
    return False


def _store(rank: int, count: int) -> dist.Store:
    """Where processes tell each other their addresses: a part of torchrun's store for this attempt alone.

    After a restart the addresses of dead processes still stand in it, and nothing that torchrun tells us names the
    attempt for all machines. So each process makes up a name; the first writes down whose names it sees; and as soon as
    every process has found its own name there, that list names the attempt.
    """
    store, _, _ = next(dist.rendezvous("env://", timeout=MEETING))
    name, until = uuid.uuid4().hex, time.monotonic() + MEETING.total_seconds()
    store.set(f"name/{rank}", name)

    def read(key: str) -> str:
        return store.get(key).decode() if store.check([key]) else ""

    while time.monotonic() < until:
        if rank == 0:
            roster = " ".join(read(f"name/{other}") for other in range(count))
            store.set("roster", roster)
            if all(read(f"seen/{other}") == roster for other in range(1, count)):
                store.set("agreed", roster)
        roster = read("roster")
        if name in roster.split():
            store.set(f"seen/{rank}", roster)
            if read("agreed") == roster:
                return dist.PrefixStore(hashlib.sha256(roster.encode()).hexdigest(), store)
        time.sleep(0.05)
    raise RuntimeError("not all processes have come")


LOST = ("connect", "closed by peer", "reset by peer", "broken pipe", "timed out", "have come", "socket", "aborted")


@contextmanager
def death_noticed() -> Iterator[None]:
    """A connection that ends means that a process has. Gloo and NCCL have no error of their own for it."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ConnectionError) as error:
        if not any(word in str(error).lower() for word in LOST):
            raise
        raise AnotherDied(
            "another process of this run has ended, so this one ends too; its message tells why, and the same command "
            "goes on from the last checkpoint"
        ) from error
