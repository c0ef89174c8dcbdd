"""Text with labels: fastText's __label__ files, with any number of labels a line, and our pairs of text and label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from transduce.data.lines import read_lines
from transduce.data.open import Two, holds_both_sides, open_corpus
from transduce.errors import DataError
from transduce.fasttext.dictionary import LABEL
from transduce.fasttext.encode import LabelledLine, Lines
from transduce.text.normalise import normalise


def split_labels(line: str) -> LabelledLine:
    """The labels of a line, wherever they stand in it, and the rest."""
    words = line.split()
    labels = [word.removeprefix(LABEL) for word in words if word.startswith(LABEL) and word != LABEL]
    return labels, " ".join(word for word in words if not word.startswith(LABEL))


def labels_of(target: str) -> Sequence[str]:
    """Those in a line of a target file: one, which is the whole line, or several with __label__ before each."""
    if target.lstrip().startswith(LABEL):
        return split_labels(target)[0]
    label = normalise(target)
    return [label] if label else []


def labelled_lines(sources: Sequence[str], targets: Sequence[str] = (), columns: Two | None = None) -> Lines:
    """The lines of some files with their labels, from the first, each time they are asked for."""
    if targets and len(targets) != len(sources):
        raise DataError(f"{len(sources)} files of text and {len(targets)} of labels do not go together")

    def lines() -> Iterator[LabelledLine]:
        for number, source in enumerate(sources):
            target = targets[number] if targets else None
            if target is None and not holds_both_sides(source):
                yield from map(split_labels, read_lines(source))
            else:
                for pair in open_corpus(source, target, True, columns):
                    yield labels_of(pair.target), pair.source

    for file in (*sources, *targets):
        if not Path(file).exists():
            raise DataError(f"there is no file {file}")
    return lines


def plain_lines(sources: Sequence[str]) -> Lines:
    """Text without labels."""
    for file in sources:
        if not Path(file).exists():
            raise DataError(f"there is no file {file}")

    def lines() -> Iterator[LabelledLine]:
        for source in sources:
            for line in read_lines(source):
                yield (), line

    return lines
