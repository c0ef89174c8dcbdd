"""transduce merge: what several machines have translated, in the order of the lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transduce.errors import DataError, SettingsError
from transduce.report import SILENT
from transduce.tasks import Hidden, Output

Shard = tuple[int, int]  # which, from 1, and of how many


def parse_shard(text: str | None) -> Shard:
    """`2/4` is the second of four: lines 2, 6, 10, ..."""
    if text is None:
        return 1, 1
    which, slash, count = text.partition("/")
    if not (slash and which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count)):
        raise SettingsError(f"--shard {text} must be a part and their number, such as 2/4")
    return int(which), int(count)


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
    from transduce.tasks.translate import check_files, deliver

    if len(parts) < 2:
        raise SettingsError("name the outputs of all shards, in their order")
    check_files([*parts, *([like] if like else [])], output)
    expected = None if like is None else _count(like)
    return deliver(_in_turns(parts, expected), output, report)


def _in_turns(parts: Sequence[str], expected: int | None) -> Iterator[str]:
    """One line of each part, and so on. A part that ends early would shift all that follows, and is refused."""
    from transduce.data.corpus import read_lines

    streams = [iter(read_lines(part)) for part in parts]
    ended, written = None, 0
    while ended is None:
        for part, stream in zip(parts, streams, strict=True):
            line = next(stream, None)
            if line is None:
                ended = ended or part
            elif ended is not None:
                raise DataError(
                    f"{ended} has fewer lines than {part} needs beside it; translate its shard again, and give the "
                    f"parts in the order of their shards"
                )
            else:
                written += 1
                yield line
    longer = next((part for part, stream in zip(parts, streams, strict=True) if next(stream, None) is not None), None)
    if longer is not None:
        raise DataError(f"{longer} has more lines than {ended} needs beside it; translate that shard again")
    if expected is not None and written != expected:
        raise DataError(f"the parts have {written:,} lines together, the text has {expected:,}; translate them again")


def _count(path: str) -> int:
    from transduce.data.corpus import read_lines

    return sum(1 for _ in read_lines(path))
