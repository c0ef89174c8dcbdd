"""Lines in and lines out: what commands that read and write text files share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from transduce.errors import DataError, SettingsError
from transduce.report import Report

MOST_SHARDS = 1_000_000
Shard = tuple[int, int]  # which, from 1, and of how many


def parse_shard(text: str | None) -> Shard:
    """`2/4` is the second of four: lines 2, 6, 10, ..."""
    if text is None:
        return 1, 1
    which, slash, count = text.partition("/")
    if not (slash and which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count) <= MOST_SHARDS):
        raise SettingsError(f"--shard {text} must be a part and their number, such as 2/4")
    return int(which), int(count)


def check_files(files: Sequence[str], output: Path | None) -> None:
    """Every input can be opened, and the output is none of them: found out before the work, not after hours of it."""
    from transduce.data.corpus import open_bytes

    for file in files:
        if file != "-" and not Path(file).is_fifo():
            open_bytes(file).close()
        if output is not None and output.exists() and Path(file).exists() and output.samefile(file):
            raise DataError(f"{output} is an input and cannot be the output too; choose another name")


def deliver(lines: Iterator[str], output: Path | None, report: Report) -> Iterator[str]:
    """The lines themselves, or nothing once they are in the file."""
    if output is None:
        return lines
    if not output.parent.is_dir():
        raise DataError(f"there is no folder {output.parent} for the output {output.name}; make it first")
    first = next(lines, None)  # whatever is wrong shows now, before an older output is written over
    lines = lines if first is None else itertools.chain([first], lines)
    written = 0
    try:
        with open(output, "w", encoding="utf-8", newline="\n") as stream:
            for line in lines:
                stream.write(line + "\n")
                written += 1
    except OSError as error:
        raise DataError(f"cannot write {output} after {written:,} lines: {error.strerror}") from error
    report.say(f"wrote {written:,} lines to {output}")
    return iter(())
