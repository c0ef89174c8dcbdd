"""Work on many small objects without the collector of cyclic garbage.

Python looks for cycles the more often the more objects are made. The results of a search are thousands of tuples and
lists without a cycle among them, and looking through them again and again takes longer than making them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

MANY = 100_000  # new objects; fewer are soon looked through, and a service that asks often is to have its collections


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Reference counting goes on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] > MANY and gc.get_freeze_count() == 0:  # nobody else keeps objects from the collector
                gc.freeze()  # what was made is old from now on: else all of it would be
                gc.unfreeze()  # looked through at once
            gc.enable()
