"""Files are written by a thread, while training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Writer:
    """One piece of work at a time; the next waits for it. What goes wrong in the thread is raised where it is asked for
    next: at the next step (`check`), at the latest before anything else is written."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._pending: Future[None] | None = None

    def begin(self, work: Callable[[], None]) -> None:
        self.wait()
        self._pending = self._executor.submit(work)

    @property
    def is_busy(self) -> bool:
        return self._pending is not None and not self._pending.done()

    def check(self) -> None:
        """Raise what has gone wrong, if the last piece of work is over."""
        if not self.is_busy:
            self.wait()

    def wait(self) -> None:
        """Until everything is on the disk."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
