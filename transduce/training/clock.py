"""The clock of a run: how long it has trained, earlier sessions included, and when this session is to end."""

from __future__ import annotations

import time

from transduce.training.distributed import Processes
from transduce.training.limits import Limits


class Clock:
    """Counts from the moment that a command began, so that preparing is part of the time."""

    def __init__(
        self, limits: Limits, processes: Processes, began: float | None = None, deadline: float | None = None
    ) -> None:
        """`began`: by time.monotonic(); `deadline` of the session: by time.time(), only the main process need know."""
        self.limits, self.processes, self.deadline = limits, processes, deadline
        self.began = self.started = time.monotonic() if began is None else began
        self.begins_at: int | None = 0  # the step before this session's first update; None: that has been made

    def resume(self, spent: float, step: int) -> None:
        """Go on after so many seconds and steps of earlier sessions."""
        self.started, self.begins_at = self.began - spent, step

    def until_first_update(self, step: int, seconds: float) -> float:
        """Of a session, once, where that update has just been made: preparing it, and compiling, took so long."""
        if self.begins_at is None or step != self.begins_at + 1:
            return 0.0
        self.begins_at = None
        return seconds - (self.began - self.started)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def common_seconds(self) -> float:
        """The same for all processes, where it decides something."""
        if self.limits.minutes is None:
            return self.seconds
        return self.processes.maximum(int(1000 * self.seconds))[0] / 1000

    @property
    def session_is_over(self) -> bool:
        return self.deadline is not None and time.time() >= self.deadline

    def share_done(self, step: int, epochs: float) -> float:
        """How much of the way to the end of this command is gone, from 0 to 1."""
        session = 0.0
        if self.deadline is not None:
            spent = time.monotonic() - self.began
            session = spent / max(1e-9, spent + self.deadline - time.time())
        return min(1.0, max(session, self.limits.share_done(step, epochs, self.seconds)))
