"""Ctrl-C and SIGTERM ask for the end; a second one insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal came, and which."""

    signal: int | None = None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Within, the first SIGINT or SIGTERM is only noted, so that a step can be finished and saved."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # Python delivers signals to the main thread only
        return

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = number
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
