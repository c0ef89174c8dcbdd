"""Several processes that translate together. A GPU writes a small model's translations faster than one Python reads
lines and makes text of tokens: so several share it, and each reads and writes its own part of the lines."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from transduce.errors import SettingsError, TransduceError
from transduce.report import Progress
from transduce.signals import follow_parent, usable_cores

if TYPE_CHECKING:
    from pathlib import Path

    from transduce.decoding.results import Translation
    from transduce.decoding.wishes import Wishes
    from transduce.model import Model

CHUNK = 8192  # lines that a worker gets at once
UNDER_WAY = 2  # chunks for every worker
MOST = 64
SHARED = 0.9  # of a GPU's memory, among all workers
loaded: Model  # in a worker: the model that it has
fault = ""  # or why it could not


class Workers:
    """Processes that have each loaded a model; what it is loaded with is that of Model.load."""

    def __init__(self, number: int, path: Path, device: str, **how: object) -> None:
        threads = max(1, usable_cores() // number)
        spawned = multiprocessing.get_context("spawn")  # a process that uses a GPU cannot be forked
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(number, spawned, _begin, (threads, SHARED / number, path, device, how))
        self._most = number * UNDER_WAY

    def stream(
        self,
        lines: Iterable[str],
        wishes: Wishes | None = None,
        chunk: int | None = None,
        progress: Progress | None = None,
        prefixes: Iterable[str] = (),
    ) -> Iterator[Translation]:
        """As Translator.stream; a few chunks are under way at a time, so that memory does not grow."""
        from transduce.decoding.wishes import with_prefixes

        chunks, done = with_prefixes(lines, prefixes, chunk or CHUNK), 0
        under_way: deque[Future[list[Translation]]] = deque()
        complaint: TransduceError | None = None  # of a line; what was read before it is translated first
        while True:
            while len(under_way) < self._most and complaint is None:
                try:
                    some = next(chunks, None)
                except TransduceError as error:
                    complaint, some = error, None
                if some is None:
                    break
                under_way.append(self._submit(wishes, *some))
            if not under_way:
                break
            found = self._result(under_way.popleft())
            done += len(found)
            (progress or Progress()).update(done, lines=f"{done:,}")
            yield from found
        if complaint is not None:
            raise complaint

    def close(self) -> None:
        """What is under way is given up: after Ctrl-C nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()

    def _submit(self, wishes: Wishes | None, lines: list[str], prefixes: list[str]) -> Future[list[Translation]]:
        try:
            return self._pool.submit(_translated, lines, wishes, prefixes)
        except BrokenProcessPool:
            raise SettingsError(GONE) from None

    def _result(self, future: Future[list[Translation]]) -> list[Translation]:
        try:
            return future.result()
        except BrokenProcessPool:
            raise SettingsError(GONE) from None


GONE = "a worker has ended before its work, perhaps for want of memory; try fewer --workers"


def check_workers(number: int, engine: str | None = None) -> None:
    if not 1 <= number <= MOST:
        raise SettingsError(f"--workers {number} must be between 1 and {MOST}")
    if number > 1 and engine == "ctranslate2":
        raise SettingsError("--workers does not go with --engine ctranslate2, which takes all cores by itself")


# ---- in a worker -----------------------------------------------------------------------------------------------


def _begin(threads: int, share: float, path: Path, device: str, how: dict[str, Any]) -> None:
    follow_parent()
    import torch

    from transduce.model import Model
    from transduce.models.device import choose_device

    torch.set_num_threads(threads)
    global loaded, fault
    try:
        if choose_device(device) == "cuda":
            torch.cuda.set_per_process_memory_fraction(share)
        loaded = Model.load(path, device, **how)
    except (torch.OutOfMemoryError, TransduceError) as error:  # here it would be a traceback; said with the first lines
        fault = GONE if isinstance(error, torch.OutOfMemoryError) else str(error)


def _translated(lines: list[str], wishes: Wishes | None, prefixes: list[str]) -> list[Translation]:
    if fault:
        raise SettingsError(fault)
    return list(loaded.stream(lines, wishes, len(lines), prefixes=prefixes))
