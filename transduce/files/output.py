"""What a command writes where its user says: never over its own input, never over what is somebody else's.

A file is written beside its place and renamed when it is whole, so that a fault leaves the old one. A terminal, a pipe
and a device are streams, and written as they are.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, Literal, NamedTuple

from transduce.errors import DataError, UserError
from transduce.files.atomic import beside, flush, parts_beside, write_file
from transduce.files.lock import try_to_lock
from transduce.files.manifest import MANIFEST
from transduce.files.reading import followed

# How our pages and pictures begin, and the place that each format has for the program that made it.
PAGE = b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="transduce">'
PNG, PNG_TEXT, SOFTWARE = b"\x89PNG\r\n\x1a\n", 37, b"tEXtSoftware\0transduce"
PDF, PDF_CREATOR = b"%PDF", b"/Creator (transduce)"
SVG = b"<?xml"
SVG_CREATOR = re.compile(rb"<dc:creator>\s*<cc:Agent>\s*<dc:title>transduce</dc:title>")
FLUSHED = 1024  # lines, a part of every chunk that is translated together
LOOKED_AT = 4096  # bytes at each end of a file, where the mark stands


def check_output(path: Path | None, inputs: Iterable[str | Path | int] = (), force: bool = False) -> None:
    """Refuse a place that must not be written to, before the work and not after hours of it.

    `inputs`: files that are read, by path or by descriptor. `force`: what is there may be replaced.
    """
    if path is None:
        return
    if not path.name or path.is_dir():
        raise DataError(f"cannot write {path}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent} for the output {path.name}; make it first")
    if not _is_there(path):
        return
    for given in inputs:
        if _is_same(path, given):
            raise DataError(f"{path} is an input and cannot be the output too; choose another name")
    if is_stream(path):
        return
    if belongs_to_model(path):
        raise DataError(f"{path} belongs to a model and is not written over; choose another name")
    if not force and not is_ours(path):
        raise DataError(f"{path} is there already; choose another name, or replace it with --force")


def _is_there(path: Path) -> bool:
    """Whether something is there already; a link that leads to itself is refused."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; choose another name") from error
    return True


def is_stream(path: Path) -> bool:
    """Whether this is a terminal, a pipe or a device."""
    return path.exists() and not path.is_file()


def is_ours(path: Path) -> bool:
    """Whether a file is empty, or a page or picture that says, where its format has a place for it, that we made it."""
    with open(path, "rb") as stream:
        head = stream.read(LOOKED_AT)
        stream.seek(max(0, path.stat().st_size - LOOKED_AT))
        tail = stream.read(LOOKED_AT)
    if head.startswith(PNG):
        return head.startswith(SOFTWARE, PNG_TEXT)
    if head.startswith(PDF):
        return PDF_CREATOR in tail
    if head.startswith(SVG):
        return SVG_CREATOR.search(head) is not None
    return not head or head.startswith(PAGE)


def belongs_to_model(path: Path) -> bool:
    """Whether a model, a run or its checkpoints would miss this file."""
    path = followed(path)
    if path.name in ("attention.html", "curve.png"):
        return False  # pictures of it
    return any((folder / MANIFEST).exists() for folder in list(path.parents)[:3])


def _is_same(path: Path, given: str | Path | int) -> bool:
    """Whether two names, or a name and a descriptor, are one file."""
    try:
        one, two = path.stat(), os.fstat(given) if isinstance(given, int) else os.stat(given)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(one.st_mode) and (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


def write_output(path: Path, content: bytes) -> None:
    """A page, a picture or a report: a file, no stream. A link is followed: it is the user's own."""
    write_file(followed(path), content)


class Kept(NamedTuple):
    """What an interrupted run has left, locked for this process as long as its stream is open."""

    part: Path
    lines: int
    stream: BinaryIO  # at the end of these lines


def find_kept(path: Path, mark: str, chunk: int) -> Kept | None:
    """The most lines, in whole chunks, that a run of this mark has left for an output; nothing: it has not begun."""
    path = followed(path)
    parts = parts_beside(path, mark)
    if not parts and parts_beside(path):
        raise DataError(
            f"what is left of {path} was begun with another model, text or setting; "
            f"give the same again, or begin anew without --resume"
        )
    if not parts and path.is_file() and path.stat().st_size:
        raise DataError(f"{path} is finished, there is nothing to resume; --force translates it again")
    kept = [Kept(part, *_cut_to_whole_chunks(_locked(part, path, "rb+"), chunk)) for part in parts]
    kept.sort(key=lambda one: one.lines)
    for shorter in kept[:-1]:
        shorter.stream.close()
    return kept[-1] if kept else None


def _locked(part: Path, path: Path, mode: Literal["xb", "rb+"]) -> BinaryIO:
    """A part of the output `path`, opened for this process alone."""
    stream: BinaryIO = open(part, mode)  # noqa: SIM115  (whoever asked closes it)
    if not try_to_lock(stream.fileno()):
        stream.close()
        raise _under_way(path)
    return stream


def _under_way(path: Path) -> DataError:
    return DataError(f"another command is still writing {path}; wait until it ends, or choose another name")


def _refuse_what_is_under_way(path: Path) -> None:
    """Two commands that write one file would each replace what the other has made."""
    for part in parts_beside(path):
        with contextlib.suppress(OSError), open(part, "rb") as stream:
            if not try_to_lock(stream.fileno()):
                raise _under_way(path)


def _cut_to_whole_chunks(stream: BinaryIO, chunk: int) -> tuple[int, BinaryIO]:
    """Take away what follows the last whole chunk of lines; gives the number of lines that stay, and the stream at
    their end."""
    lines = read = kept = size = 0
    for line in stream:
        read += len(line)
        lines += line.endswith(b"\n")
        if lines % chunk == 0 and line.endswith(b"\n"):
            kept, size = lines, read
    stream.truncate(size)
    stream.seek(size)
    return kept, stream


def write_lines(path: Path, lines: Iterable[str], mark: str = "", kept: Kept | None = None) -> int:
    """Lines as they come; gives their number. After a fault the old file is there still, and the lines so far lie
    beside it under a name that the error tells, and that begins with `mark`. `kept`: lines that are there already."""
    if is_stream(path):
        with _stream_to(path) as stream:
            return _write(stream, lines)
    path = followed(path)
    if kept is None:
        _refuse_what_is_under_way(path)
    part, written = (beside(path, mark), 0) if kept is None else (kept.part, kept.lines)
    try:
        opened = _locked(part, path, "xb") if kept is None else kept.stream
        with io.TextIOWrapper(opened, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            for line in lines:
                stream.write(line + "\n")
                written += 1
                if written % FLUSHED == 0:  # so that a kill leaves whole chunks
                    stream.flush()
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
        flush(path.parent)
    except BaseException as error:
        where = _keep_or_remove(part)
        if isinstance(error, OSError):
            raise DataError(f"cannot write {path}: {error.strerror}{where}") from error
        if isinstance(error, UserError) and where:
            raise type(error)(f"{error}{where}") from error
        raise
    return written


def _keep_or_remove(part: Path) -> str:
    """What was written before a fault is worth hours perhaps; nothing is worth nothing. Whole lines are counted where
    they lie: a full disk has not taken all that it was given."""
    lines = 0
    with contextlib.suppress(OSError):
        with open(part, "rb+") as stream:
            lines, _ = _cut_to_whole_chunks(stream, 1)
        if not lines:
            part.unlink()
    return f"; {lines:,} lines so far are in {part}" if lines else ""


@contextlib.contextmanager
def _stream_to(path: Path) -> Iterator[IO[str]]:
    try:
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            yield stream
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise DataError(f"cannot write {path}: {error.strerror}") from error


def _write(stream: IO[str], lines: Iterable[str]) -> int:
    written = 0
    for line in lines:
        stream.write(line + "\n")
        written += 1
    return written
