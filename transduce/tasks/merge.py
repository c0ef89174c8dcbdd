"""transduce merge: what several machines have translated, in the order of the lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from transduce.errors import DataError, SettingsError
from transduce.report import SILENT
from transduce.tasks import Hidden, Output
from transduce.tasks.lines import check_files, deliver


def merge(*parts: str, output: Output = None, like: str | None = None, report: Hidden = SILENT) -> Iterator[str]:
    """Put the outputs of translate --shard 1/N ... N/N together again, in the order of the lines.

    Example: transduce merge out.1 out.2 out.3 -o out

    Parameters
    ----------
    parts
        The outputs, in the order of their shards.
    output
        File to write instead of standard output.
    like
        The text that was translated: then the number of lines must be the same.
    """
    from transduce.data.corpus import read_lines

    if len(parts) < 2:
        raise SettingsError("name the outputs of all shards, in their order")
    check_files([*parts, *([like] if like else [])], output)
    counts = [sum(1 for _ in read_lines(part)) for part in parts]
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
