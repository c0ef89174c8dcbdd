"""Work on many small objects without the collector of cyclic garbage.

Python looks for cycles the more often the more objects are made. The results of a search are thousands of tuples and
lists without a cycle among them, and looking through them again and again takes longer than making them.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

MANY = 100_000  # new objects; fewer are soon looked through, and a service that asks often is to have its collections
_lock = threading.Lock()
_paused = 0  # threads that ask for it now
_was_on = True  # before the first of them


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Reference counting goes on. The first of several threads switches the collector off, the last on again."""
    global _paused, _was_on
    with _lock:
        if _paused == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if _paused == 0 and _was_on:
                _spare_what_was_made()
                gc.enable()
            elif _was_on and gc.get_count()[0] > MANY:  # with threads that always overlap the last never comes
                gc.collect(1)


def _spare_what_was_made() -> None:
    """It is old from now on: else all of it would be looked through at once."""
    if gc.get_count()[0] > MANY and gc.get_freeze_count() == 0:  # nobody else keeps objects from the collector
        gc.freeze()
        gc.unfreeze()
