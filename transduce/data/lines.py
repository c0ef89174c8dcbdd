"""Reading text one line at a time, from files, packed files and streams.

A line ends at a line feed and nowhere else, so that line numbers are those of every other tool. What is no text (a
device, a file of another kind) shows by a line without end, and is refused before it fills the memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from transduce.data.encoding import way_out
from transduce.data.packed import open_unpacked
from transduce.errors import DataError

BOM = "\ufeff"
LONGEST_LINE = 1_000_000  # bytes
SHEET, LETTER = "a spreadsheet; save it as .csv (UTF-8)", "a document; save its text as .txt (UTF-8), a sentence a line"
OFFICE = {**dict.fromkeys((".xlsx", ".xls", ".ods"), SHEET), **dict.fromkeys((".docx", ".doc", ".odt", ".pdf"), LETTER)}
LOOKED_AT = 200  # lines from which an encoding is guessed


def open_bytes(path: str | Path) -> BinaryIO:
    """The file's bytes, unpacked when it ends in .gz, .xz or .zst."""
    path = Path(path)
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder, not a text file")
        if path.is_file() and (kind := OFFICE.get(path.suffix.lower())):
            raise DataError(f"{path} is {kind}")
        return open_unpacked(path)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a text file."""
    with open_bytes(path) as stream:
        yield from decode_lines(stream, str(path))


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines of UTF-8 text; one that is not is refused with its number, a guess and the way out."""
    lines, others = raw_lines(stream, name), 0
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            some = [line, *itertools.islice(lines, LOOKED_AT)]
            way = way_out(name, some, others)
            raise DataError(
                f"{name}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line); {way}"
            ) from error
        others += len(text) < len(line)
        yield text


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
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}") from error
