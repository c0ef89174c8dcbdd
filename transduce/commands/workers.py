"""Several processes that translate together. A GPU writes a small model's translations faster than one Python reads
lines and makes text of tokens: so several share it, and each reads and writes its own part of the lines."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from transduce.errors import SettingsError
from transduce.report import Progress

if TYPE_CHECKING:
    from transduce.decoding.results import Translation
    from transduce.decoding.wishes import Wishes
    from transduce.model import Model

CHUNK = 8192  # lines that a worker gets at once
UNDER_WAY = 2  # chunks for every worker
MOST = 64
mine: Model  # in a worker: the model that it has loaded


class Workers:
    """Processes that have each loaded a model; what it is loaded with is that of Model.load."""

    def __init__(self, number: int, *given: object, **search: object) -> None:
        threads = max(1, (os.cpu_count() or 1) // number)
        spawned = multiprocessing.get_context("spawn")  # a process that uses a GPU cannot be forked
        self._pool = ProcessPoolExecutor(number, spawned, _begin, (threads, given, search))
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
        remaining, begins, done = iter(lines), iter(prefixes), 0
        under_way: deque[Future[list[Translation]]] = deque()
        while True:
            while len(under_way) < self._most and (some := list(itertools.islice(remaining, chunk or CHUNK))):
                under_way.append(self._submit(some, wishes, list(itertools.islice(begins, len(some)))))
            if not under_way:
                return
            found = self._result(under_way.popleft())
            done += len(found)
            (progress or Progress()).update(done, lines=f"{done:,}")
            yield from found

    def close(self) -> None:
        """What is under way is given up."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, lines: list[str], wishes: Wishes | None, prefixes: list[str]) -> Future[list[Translation]]:
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


def check_workers(number: int) -> None:
    if not 1 <= number <= MOST:
        raise SettingsError(f"--workers {number} must be between 1 and {MOST}")


# ---- in a worker -----------------------------------------------------------------------------------------------


def _begin(threads: int, given: Sequence[object], search: dict[str, object]) -> None:
    import torch

    from transduce.model import Model

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who has asked for the work is told, and ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    global mine
    mine = Model.load(*given, **search)  # type: ignore[arg-type]


def _end_with_parent() -> None:
    """Nobody would read what a worker writes whose parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _translated(lines: list[str], wishes: Wishes | None, prefixes: list[str]) -> list[Translation]:
    return list(mine.stream(lines, wishes, len(lines), prefixes=prefixes))
