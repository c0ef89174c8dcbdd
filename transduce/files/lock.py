"""One process a folder. The folder itself is locked: the system lets go however a process ends, and no file is left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from transduce.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within, no other process may lock this folder; it is made if it is not there, and removed if it stays empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        try:
            yield
        finally:
            _remove_empty(made)
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another process is training in {folder}; wait until it ends, or choose another run folder"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        _remove_empty(made)
        os.close(descriptor)


def _remove_empty(folders: list[Path]) -> None:
    """From the inside outwards, as far as nothing lies in them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
