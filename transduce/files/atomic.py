"""Writing so that a reader finds all of a file or the one before it: beside, flushed to the disk, renamed.

The file beside has a random name of its own, is made anew and is never somebody else's link; two writers do not meet.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from transduce.errors import UserError

PART = ".part"  # what is being written ends so
_OURS = re.compile(rf".+\.[0-9a-f]{{8}}{re.escape(PART)}")


def beside(path: Path, mark: str = "") -> Path:
    """A new name in the same folder, for what is being written; it begins with a mark of four hex digits, or none."""
    return path.with_name(f"{path.name[:200]}.{mark}{secrets.token_hex(4 - len(mark) // 2)}{PART}")


def parts_beside(path: Path, mark: str = "") -> list[Path]:
    """What was being written for a file by processes that are gone, or still at it."""
    begin = f"{path.name[:200]}."
    return [
        part
        for part in path.parent.glob(f"*{PART}")
        if part.name.startswith(begin + mark) and _OURS.fullmatch(part.name) and len(part.name) == len(begin) + 13
    ]


def clear_parts(folder: Path) -> None:
    """Remove what was being written in a folder when a process was killed. Only the owner of the folder may."""
    for left in folder.glob(f"*{PART}"):
        with contextlib.suppress(OSError):
            if _OURS.fullmatch(left.name):
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def write_file(path: Path, content: bytes) -> None:
    """All of it or nothing, under this very name: a link that stands there is replaced, not followed."""
    write_files({path: content})


def write_files(files: Mapping[Path, bytes]) -> None:
    """Some files, the last only when all others are there: all are written beside, then renamed in order."""
    needed = sum(map(len, files.values()))
    parts = {path: beside(path) for path in files}
    with _removed_on_failure(list(parts.values())):
        for path, content in files.items():
            _refuse_folder(path)
            with explained(path, needed):
                path.parent.mkdir(parents=True, exist_ok=True)
                _write_new(parts[path], content)
        for path, part in parts.items():
            with explained(path, needed):
                os.replace(part, path)
    for folder in {path.parent for path in files}:
        flush(folder)


@contextlib.contextmanager
def explained(path: Path, needed: int = 0) -> Iterator[None]:
    """Within, an error of the system becomes a sentence; `needed`: bytes of all that is being written."""
    try:
        yield
    except OSError as error:
        need = f"{needed / 1e6:.1f} MB are needed; " if needed else ""
        raise UserError(f"cannot write {path}: {error.strerror} ({need}what was saved before is untouched)") from error


@contextlib.contextmanager
def _removed_on_failure(parts: list[Path]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        raise


def _refuse_folder(path: Path) -> None:
    if not path.name or path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder; name a file")
    if path.exists() and not path.is_file():
        raise UserError(f"cannot write {path}: it is not an ordinary file")


def _write_new(path: Path, content: bytes) -> None:
    with open(path, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def flush(folder: Path) -> None:
    """New names in a folder onto the disk too, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
