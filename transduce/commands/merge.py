"""transduce merge: what several machines have translated, in the order of the lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from transduce.commands import Hidden, Output
from transduce.commands.lines import check_files, deliver
from transduce.errors import DataError, SettingsError
from transduce.report import SILENT


def merge(
    *parts: str, output: Output = None, force: bool = False, like: str | None = None, report: Hidden = SILENT
) -> Iterator[str]:
    """Put the outputs of translate --shard 1/N ... N/N together again, in the order of the lines.

    Example: transduce merge out.1 out.2 out.3 -o out

    Parameters
    ----------
    parts
        The outputs, in the order of their shards.
    output
        File to write instead of standard output.
    force
        Replace the output if it is there already.
    like
        The text that was translated: then the number of lines must be the same. Without it, lines that are missing at
        the end of all parts are not noticed.
    """
    from transduce.data.lines import read_lines

    if len(parts) < 2:
        raise SettingsError("name the outputs of all shards, in their order")
    check_files([*parts, *([like] if like else [])], output, force)
    counts = [_count(parts, which) for which in range(len(parts))]
    total = sum(counts) if like is None else sum(1 for _ in read_lines(like))
    for number, (part, count) in enumerate(zip(parts, counts, strict=True)):
        expected = len(range(number, total, len(parts)))
        if count != expected:  # then every line after it would be that of another
            raise DataError(
                f"{part} has {count:,} lines and should have {expected:,}, as shard {number + 1}/{len(parts)} of "
                f"{total:,}; translate it again, and give the parts in the order of their shards"
            )
    rounds = itertools.zip_longest(*map(read_lines, parts))
    return deliver((line for one in rounds for line in one if line is not None), output, report)


def _count(parts: Sequence[str], which: int) -> int:
    """Lines of a part; where they are JSON, they tell which line they are."""
    from transduce.data.lines import read_lines

    count = 0
    for line in read_lines(parts[which]):
        number = count * len(parts) + which + 1
        if line.startswith('{"line": ') and not line.startswith(f'{{"line": {number},'):
            other = line.removeprefix('{"line": ').partition(",")[0]
            raise DataError(
                f"{parts[which]} has line {other[:20]} where line {number:,} should come; give each part once, in the "
                f"order of the shards"
            )
        count += 1
    return count
