"""Reading files that somebody else may have made: ordinary ones only, of a size that is looked at first.

A link could lead anywhere, a pipe never ends, a device has no size: none of them is opened.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import stat
import tokenize
import zipfile
import zlib
from pathlib import Path

SMALL = 1_000_000  # bytes that a file of settings, a manifest or a state may have
VOCABULARY = 64_000_000  # and a tokenizer
# What reading an archive, or arrays in one, may raise where it is damaged, or was never one.
DAMAGED: tuple[type[Exception], ...] = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError, EOFError)
DAMAGED += (OSError, RuntimeError, NotImplementedError, ValueError, TypeError, LookupError, SyntaxError, MemoryError)
LARGE_FILE_POINTER = b"version https://git-lfs"  # what a clone without Git LFS has in place of a large file


def problem_with(path: Path, most: int | None = None) -> str | None:
    """What keeps this from being read as an ordinary file of at most `most` bytes; None where nothing does."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError) as error:
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISLNK(facts.st_mode):
        return "is a link; put the file itself there"
    if not stat.S_ISREG(facts.st_mode):
        return "is not an ordinary file"
    if not os.access(path, os.R_OK):
        return "cannot be read"
    if facts.st_size < 200 and path.read_bytes().startswith(LARGE_FILE_POINTER):
        return "only says where git keeps the real file; fetch it: git lfs pull"
    if most is not None and facts.st_size > most:
        return f"has {facts.st_size:,} bytes, more than the {most:,} it may have"
    return None


def followed(path: Path) -> Path:
    """Where a link leads; of one that leads to itself, the link."""
    return Path(os.path.realpath(path))


def read_bytes(path: Path, most: int) -> bytes:
    """All of an ordinary file; an OSError says why not."""
    if problem := problem_with(path, most):
        raise OSError(0, problem, str(path))
    with open_regular(path) as stream:
        return stream.read(most)


def open_regular(path: Path) -> io.BufferedReader:
    """An ordinary file, opened without following a link or waiting for the other end of a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags), "rb")


def sha256(path: Path) -> str:
    """The checksum of a file, in constant memory."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
