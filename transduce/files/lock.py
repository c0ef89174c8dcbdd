"""One process a folder. The folder itself is locked: the system lets go however a process ends, and no lock is left.

What is left is the name of the machine: a lock is seen on the machine that has taken it, and perhaps nowhere else.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from transduce.errors import UserError
from transduce.files.atomic import write_file
from transduce.files.reading import SMALL, read_bytes
from transduce.files.run_folder import RunFolder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

BOOT = Path("/proc/sys/kernel/random/boot_id")  # on Linux: containers share it where they share locks
TRIES, PAUSE = 20, 0.05  # seconds; who only looks (is_locked) holds a lock for less


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within, no other process may lock this folder; it is made if it is not there, and removed if it stays empty."""
    descriptor, made = _taken(folder)
    try:
        if descriptor is not None and RunFolder(folder).training.exists():
            sign(RunFolder(folder))  # of a new one, training does when it has its config
        yield
    finally:
        _remove_empty(made)
        if descriptor is not None:
            os.close(descriptor)


def _taken(folder: Path) -> tuple[int | None, list[Path]]:
    """A descriptor that holds the lock, None where the system has none; and the folders that were made. Whoever had the
    folder while we waited may have removed it, empty as it was: then what we hold is no longer what lies there."""
    while True:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        if fcntl is None:
            return None, made
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            _take(descriptor, folder)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(folder), os.fstat(descriptor)):
                    return descriptor, made
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    """Lock it for this process alone, or complain."""
    for _ in range(TRIES):
        if try_to_lock(descriptor):
            return
        time.sleep(PAUSE)
    raise UserError(f"another process is training in {folder}; wait until it ends, or choose another run folder")


def try_to_lock(descriptor: int) -> bool:
    """Lock an open file or folder for this process until it is closed; False where another process has it. Where the
    system has no locks, all go on."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def is_locked(folder: Path) -> bool | None:
    """Whether a process works in the folder; None where nobody can tell: no locks, or last locked on another machine.

    To look, a shared lock is taken and given back at once: others may look at the same time, and `locked` tries again.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        if read_bytes(RunFolder(folder).machine, SMALL) == _machine():
            return False
    return None


def sign(run: RunFolder) -> None:
    """Leave the name of this machine; where that fails, those who look go by the clock.

    Before a run has its config, nothing may lie in its folder, or the next command takes it for somebody else's."""
    if run.config.exists() and not run.training.is_symlink():
        with contextlib.suppress(OSError, UserError):
            run.training.mkdir(exist_ok=True)
            write_file(run.machine, _machine())


def _machine() -> bytes:
    """What locks are shared by: a running system."""
    with contextlib.suppress(OSError):
        return BOOT.read_bytes()
    return f"{platform.node()}\n".encode()


def _remove_empty(folders: list[Path]) -> None:
    """From the inside outwards, as far as nothing lies in them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
