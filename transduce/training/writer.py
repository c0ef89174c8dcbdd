"""Files are written by a thread, while training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Writer:
    """One piece of work at a time; the next waits for it. What goes wrong in the thread is raised where it is next
    asked for: so an error comes late, but before anything else is written."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._pending: Future[None] | None = None

    def begin(self, work: Callable[[], None]) -> None:
        self.wait()
        self._pending = self._thread.submit(work)

    @property
    def is_busy(self) -> bool:
        return self._pending is not None and not self._pending.done()

    def wait(self) -> None:
        """Until everything is on the disk."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
