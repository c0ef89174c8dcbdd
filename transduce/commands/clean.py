"""What doctor --clean writes: a copy of the pairs without a fault, and the others with their reasons."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.errors import DataError

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus
    from transduce.data.doctor import Diagnosis

# Taken out of a cleaned copy. The others may be right: a tag can be text, 911 can be 112.
REMOVED = (
    *("empty", "identical", "not UTF-8", "encoding damage", "control characters", "too long"),
    *("other script", "other language", "length ratio", "duplicate", "leak", "misaligned"),
)
MOST_LOST = 0.05  # of the pairs, that a copy may leave out because they are in another encoding


def clean_files(corpus: Corpus, folder: Path) -> list[Path]:
    """Files of the copy: source, target, and what was left out."""
    from transduce.data.corpus import TwoFiles, parts_of
    from transduce.data.packed import bare_name

    part, *more = parts_of(corpus)
    if more:
        names = ["joined.source", "joined.target"]
    elif isinstance(part, TwoFiles):
        names = [Path(bare_name(path)).name for path in (part.source, part.target)]
        if names[0] == names[1]:
            names = [f"source.{names[0]}", f"target.{names[1]}"]
    else:  # the copy is plain lines, whatever the file was
        stem = Path(bare_name(part.name)).stem
        names = [f"{stem}.source", f"{stem}.target"]
    return [folder / name for name in (*names, "dropped.tsv")]


def write_clean(diagnosis: Diagnosis, corpus: Corpus, folder: Path) -> str:
    """A copy of the pairs that stay, and a list of the others with the reasons."""
    from transduce.data.corpus import line_name
    from transduce.data.doctor import clean
    from transduce.files.atomic import beside

    stretches = diagnosis.stretches(corpus)
    kept, total, foreign = 0, len(diagnosis.lengths), len(diagnosis.faults["not UTF-8"])
    if foreign > MOST_LOST * total:
        raise DataError(f"--clean would leave out {foreign:,} pairs that are not UTF-8; convert the text first")
    places = clean_files(corpus, folder)
    parts = [beside(path) for path in places]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            left, right, dropped = (
                stack.enter_context(part.open("x", encoding="utf-8", errors="surrogateescape", newline="\n"))
                for part in parts
            )
            removed = {name: diagnosis.faults[name] for name in REMOVED}
            for number, one, two, reasons in clean(corpus, total, removed):
                if not reasons:
                    left.write(f"{one}\n")
                    right.write(f"{two}\n")
                    kept += 1
                else:
                    place = line_name(stretches, number) if len(stretches) > 1 else number
                    dropped.write(f"{place}\t{', '.join(reasons)}\t{one}\t{two}\n")
        for part, path in zip(parts, places, strict=True):
            os.replace(part, path)
    except OSError as error:
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink()
        raise DataError(f"cannot write the cleaned copy to {folder}: {error.strerror}") from error
    if not kept:
        raise DataError(f"no pair of {corpus.name} is without a fault; {places[2]} has them all, with reasons")
    entities = "; entities such as &uuml; are characters there" if len(diagnosis.faults["entities"]) else ""
    others = f"the {total - kept:,} others, with reasons, to dropped.tsv"
    return f"wrote {kept:,} of {total:,} pairs to {folder}; {others}{entities}"
