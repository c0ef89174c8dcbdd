"""metrics.jsonl: one line of numbers for every few updates and for every validation.

A line has a `kind`, its `step`, the `seconds` of training so far, and what its kind needs:

    train      loss, rate, and more      every training.log_every updates
    valid      loss, perplexity, and the measure (bleu or accuracy)
    spike      a loss that jumped        skipped    an update whose loss or gradient was no number
    diverged   where it went back from           apart    a share of pairs that do not belong together
    averaged, averaged_best              validations of averaged weights, at the end
    finished   reason and chosen weights
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transduce.errors import DataError, UserError
from transduce.files import strict_json
from transduce.files.atomic import write_file
from transduce.files.reading import problem_with, read_bytes

Record = dict[str, Any]

LARGEST = 1_000_000_000  # bytes of the file: months of training
NEEDED = {  # numbers that readers count on, by kind of line
    "train": ("loss", "rate"),
    "valid": ("loss",),
    "averaged": ("loss",),
    "averaged_best": ("loss",),
}
WORDS = ("kind", "reason", "chosen", "lines", "text")  # what may be no number
AT_THE_END = ("averaged", "averaged_best", "finished")  # kinds of lines that only a run's end writes


def read(path: Path) -> list[Record]:
    """All records; a line that was cut short by a crash, or is not ours, is left out."""
    if problem := problem_with(path, LARGEST):
        raise DataError(f"cannot read {path}: it {problem}")
    records = []
    for line in read_bytes(path, LARGEST).split(b"\n"):
        try:
            record = strict_json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and _is_ours(record):
            records.append(record)
    return records


def append(path: Path, record: Record) -> None:
    """One more line at the end."""
    try:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(strict_json.dumps(record) + "\n")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; the last checkpoint is whole") from error


def flush(path: Path) -> None:
    """Onto the disk, before a checkpoint counts on it."""
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        os.fsync(stream.fileno())


def forget_after(path: Path, step: int, validated: int) -> None:
    """Remove what a run that goes on from `step` will write again; also a validation that its checkpoint does not know
    of, and what a run says when it ends."""

    def stays(record: Record) -> bool:
        last = validated if record["kind"] == "valid" else step - 1 if record["kind"] in AT_THE_END else step
        return record["step"] <= last

    if path.exists():
        write_file(path, _lines(record for record in read(path) if stays(record)))


def measure_of(records: Iterable[Record]) -> str:
    """The name that validations have for their score."""
    return "accuracy" if any("accuracy" in record for record in records) else "bleu"


def _lines(records: Iterable[Record]) -> bytes:
    return "".join(strict_json.dumps(record) + "\n" for record in records).encode()


def _is_ours(record: Record) -> bool:
    """Whether it has the numbers that readers count on; words stand in a few places only."""
    needed = {"step", "seconds", *NEEDED.get(str(record.get("kind")), ())}
    others = [value for name, value in record.items() if name not in WORDS]
    return (
        isinstance(record.get("kind"), str)
        and all(record.get(name) is not None for name in needed)
        and all(value is None or _is_number(value) for value in others)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e18 < value < 1e18
