"""Reading text one line at a time, from files, .gz files and streams.

A line ends at a line feed and nowhere else, so that line numbers are those of every other tool. What is no text (a
device, a file of another kind) shows by a line without end, and is refused before it fills the memory.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from transduce.errors import DataError

BOM = "\ufeff"
LONGEST_LINE = 1_000_000  # bytes


def open_bytes(path: str | Path) -> BinaryIO:
    """The file's bytes, unpacked when it ends in .gz."""
    path = Path(path)
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder, not a text file")
        return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a text file."""
    with open_bytes(path) as stream:
        yield from decode_lines(stream, str(path))


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines of UTF-8 text; one that is not is refused with its number."""
    for number, line in enumerate(raw_lines(stream, name), 1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line); "
                f"convert the file, for example with: iconv -f latin1 -t utf-8"
            ) from error


def raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Lines without their ends; a byte-order mark at the start is dropped."""
    number = 1
    try:
        while line := stream.readline(LONGEST_LINE + 2):
            line = line.removesuffix(b"\n")
            if len(line) > LONGEST_LINE:
                raise DataError(
                    f"{name}, line {number}: longer than {LONGEST_LINE:,} bytes; is this text, one sentence a line?"
                )
            if number == 1:
                line = line.removeprefix(BOM.encode())
            yield line.removesuffix(b"\r")
            number += 1
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name} is not a complete gzip file: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}") from error
