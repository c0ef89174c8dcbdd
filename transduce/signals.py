"""Ctrl-C, SIGTERM and a terminal that is closed ask for the end, and a second one, of any kind, insists; SIGUSR1 asks
for a checkpoint."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HANG_UP = getattr(signal, "SIGHUP", None)  # Windows has none


class Signals:
    """What signals have asked for."""

    stop: int = 0  # the signal that asked for the end
    save: bool = False
    obeyed: bool = False  # torchrun may now tell us to go once more, and need not be heeded


class Terminated(KeyboardInterrupt):
    """SIGTERM, where Ctrl-C is a KeyboardInterrupt."""


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Within, SIGTERM ends what is under way as Ctrl-C does: workers end too, and what was written is kept. A second
    one ends the process at once, as does one for a process that was forked from this."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    process = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == process:
            raise Terminated
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def ignore_save_signal() -> Iterator[None]:
    """Within, SIGUSR1, which asks for a checkpoint, is ignored: there is nothing to save yet, and it would end the
    process."""
    if not hasattr(signal, "SIGUSR1") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """Without waiting for a file that is being written: until it is whole, nothing counts on it."""
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\n")  # the cursor, which a progress bar hides
    os._exit(128 + number)


@contextmanager
def catch_signals() -> Iterator[Signals]:
    """Within, the first signal to stop is only noted, so that a step can be finished and saved."""
    noted = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield noted  # Python delivers signals to the main thread only
        return

    def stop(number: int, frame: FrameType | None) -> None:
        noted.stop = number
        for other in stops:  # a terminal that closes may say so twice, and insists on nothing
            signal.signal(other, signal.SIG_IGN if other == HANG_UP else _end_at_once)

    def save(number: int, frame: FrameType | None) -> None:
        noted.save = True

    stops = [signal.SIGINT, signal.SIGTERM]
    if HANG_UP is not None and signal.getsignal(HANG_UP) != signal.SIG_IGN:  # which nohup sets
        stops.append(HANG_UP)
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = dict.fromkeys(stops, stop)
    if hasattr(signal, "SIGUSR1"):
        handlers[signal.SIGUSR1] = save
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if noted.obeyed else handler)


# ---- worker processes ------------------------------------------------------------------------------------------


def follow_parent() -> None:
    """In a worker process: Ctrl-C is its parent's to handle, and who is killed cannot tell its workers to go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def usable_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
