"""Lines in and lines out: what commands that read and write text files share."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.errors import SettingsError
from transduce.files.manifest import MANIFEST
from transduce.files.output import Kept, check_output, find_kept, is_stream, write_lines
from transduce.report import SILENT, Report

if TYPE_CHECKING:
    from transduce.decoding.results import Translation
    from transduce.decoding.translator import Translator

MOST_SHARDS = 1_000_000
LITTLE = 0.1  # confidence in the mean, below which nothing can be trusted
Shard = tuple[int, int]  # which, from 1, and of how many


def parse_shard(text: str | None) -> Shard:
    """`2/4` is the second of four: lines 2, 6, 10, ..."""
    if text is None:
        return 1, 1
    which, slash, count = text.partition("/")
    if not (slash and which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count) <= MOST_SHARDS):
        raise SettingsError(f"--shard {text} must be a part and their number, such as 2/4")
    return int(which), int(count)


def check_files(files: Sequence[str], output: Path | None = None, force: bool = False) -> None:
    """Every input can be opened, and the output may be written: found out before the work, not after hours of it."""
    from transduce.data.lines import open_bytes

    for file in files:
        if file != "-" and not Path(file).is_fifo():
            open_bytes(file).close()
    reads_standard_input = not files or "-" in files
    check_output(output, [*files, *(_standard_input() if reads_standard_input else [])], force)


def _standard_input() -> list[int]:
    """Its descriptor, if it has one."""
    try:
        return [sys.stdin.fileno()]
    except (AttributeError, OSError, ValueError):  # closed, or something in its place
        return []


def check_plain(files: Sequence[str]) -> None:
    """Files that hold lines of text, and not both sides of pairs, or a table."""
    from transduce.data.open import holds_both_sides
    from transduce.data.packed import bare_name

    for file in files:
        if holds_both_sides(file):
            cut = f"; of its first column: cut -f1 {file}" if bare_name(file).endswith(".tsv") else ""
            raise SettingsError(
                f"{file} is no text with a sentence a line: write the sentences that are to be translated to a file of "
                f"their own{cut}"
            )


def warn_of_little(sure: float, judged: int, report: Report) -> None:
    """`sure`: the confidence of so many lines together."""
    if judged and sure < LITTLE * judged:
        report.warn(
            f"the mean confidence is {sure / judged:.2f}: this model knows little of text like this; trust no line"
        )


def mark_of(model: Path, files: Sequence[str], *settings: object) -> str:
    """Four hex digits that tell the same work from another: model, what is in the files, and all that was asked for."""
    manifest = model / MANIFEST
    facts = [manifest.read_bytes() if manifest.is_file() else b""]
    facts += [file.encode(errors="surrogateescape") + digest_of(Path(file)).encode() for file in files]
    return hashlib.sha256(b"\0".join([*facts, repr(settings).encode()])).hexdigest()[:4]


def digest_of(path: Path) -> str:
    """The sha256 of an ordinary file's content; nothing for a pipe, which can only be believed."""
    if not path.is_file():
        return ""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def lines_kept(output: Path | None, resume: bool, mark: str, chunk: int, report: Report) -> Kept | None:
    """What an interrupted run has left, if this one is to go on from there. Whole chunks, because sentences of a chunk
    are translated together, and the last digits of a score depend on the company."""
    if not resume:
        return None
    if output is None or is_stream(output):
        raise SettingsError("--resume goes on with a file that was not finished; name it with --output")
    kept = find_kept(output, mark, chunk)
    if kept is None or not kept.lines:
        report.say("nothing was kept of an earlier run, so this one begins with the first line")
    return kept


def write_translations(
    translator: Translator,
    model: Path,
    text: str,
    output: Path,
    form: Callable[[Translation], str],
    asked: Sequence[object],
    report: Report,
    resume: bool = False,
) -> None:
    """A translation of every line of a text, as a line of `output`, in order; what fails is an empty line. `asked`:
    what decides the lines beside model, text and search, so that what is left of other work is not gone on with."""
    from transduce.data.lines import read_lines

    mark = mark_of(model, [text], translator.search, *asked)
    kept = lines_kept(output, resume, mark, translator.engine.chunk, SILENT)
    rest = itertools.islice(read_lines(text), 0 if kept is None else kept.lines, None)

    sure, judged = 0.0, 0

    def lines() -> Iterator[str]:
        nonlocal sure, judged
        with report.progress("translate") as bar:
            for t in translator.stream(rest, progress=bar):
                if t.confidence is not None:
                    sure, judged = sure + t.confidence, judged + 1
                yield form(t)

    list(deliver(lines(), output, report, mark, kept))
    warn_of_little(sure, judged, report)


def deliver(
    lines: Iterator[str], output: Path | None, report: Report, mark: str = "", kept: Kept | None = None
) -> Iterator[str]:
    """The lines themselves, or nothing once they are in the file."""
    if output is None:
        return lines
    if kept is not None and kept.lines:
        report.say(f"going on after {kept.lines:,} lines")
    written = write_lines(output, lines, mark, kept)
    report.say(f"wrote {written:,} lines to {output}")
    return iter(())
