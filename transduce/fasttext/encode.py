"""Text as arrays of ids on the disk, so that epochs read numbers and memory does not grow with the text.

Line i is ids[starts[i]:starts[i + 1]], its labels label_ids[label_starts[i]:label_starts[i + 1]]. Its last word
is the end of the line. A word without a row is -1; its hash is kept, because word n-grams are made of hashes.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transduce.errors import DataError
from transduce.fasttext.dictionary import Dictionary
from transduce.fasttext.kernels.hashing import hash_words
from transduce.fasttext.ngrams import END_OF_LINE, fnv1a

LabelledLine = tuple[Sequence[str], str]  # labels, text
Lines = Callable[[], Iterable[LabelledLine]]  # from the first, each time it is called
BLOCK = 1 << 16  # numbers that are collected before they are written


class Text(NamedTuple):
    """The arrays, as kernels take them."""

    ids: Any
    hashes: Any
    starts: Any
    label_ids: Any
    label_starts: Any

    @property
    def lines(self) -> int:
        return len(self.starts) - 1

    def fingerprint(self) -> int:
        """Tells whether it is the same text."""
        value = 0
        for part in (self.ids, self.label_ids):
            for begin in range(0, len(part), 1 << 22):
                value = zlib.crc32(part[begin : begin + (1 << 22)].tobytes(), value)
        return value


class _Column:
    """Numbers that are written to a file as they come."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.waiting = path, array(kind)
        self.stream = open(path, "wb")  # noqa: SIM115  (closed in `finish`)

    def add(self, numbers: Iterable[int]) -> None:
        self.waiting.extend(numbers)
        if len(self.waiting) > BLOCK:
            self.waiting.tofile(self.stream)
            del self.waiting[:]

    def finish(self) -> Any:
        """The whole, mapped from the disk."""
        self.waiting.tofile(self.stream)
        self.stream.close()
        dtype = np.dtype(self.waiting.typecode)
        if not self.path.stat().st_size:
            return np.zeros(0, dtype)
        return np.memmap(self.path, dtype, mode="r").view(np.ndarray)


def encode(lines: Iterable[LabelledLine], dictionary: Dictionary, folder: Path, hashed: bool) -> Text:
    """Write all lines into files of a folder; `hashed`: with the hash of every word."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"ids": "i", "hashes": "i", "starts": "q", "label_ids": "i", "label_starts": "q"}
    columns = {name: _Column(folder / f"{name}.bin", kind) for name, kind in kinds.items()}
    find, find_label, hash_of = dictionary.places.get, dictionary.label_ids.get, _hasher(dictionary)
    words = labels = 0
    columns["starts"].add([0])
    columns["label_starts"].add([0])
    for given, line in lines:
        cuts = [*dictionary.cut(line), END_OF_LINE]
        some = [number for label in given if (number := find_label(label)) is not None]
        words, labels = words + len(cuts), labels + len(some)
        columns["ids"].add([find(word, -1) for word in cuts])
        columns["label_ids"].add(some)
        columns["starts"].add([words])
        columns["label_starts"].add([labels])
        if hashed:
            columns["hashes"].add(map(hash_of, cuts))
    return Text(**{name: column.finish() for name, column in columns.items()})


def _hasher(dictionary: Dictionary) -> Callable[[str], int]:
    """The hash of a word; of those in the dictionary computed once."""
    known = dict(zip(dictionary.words, hash_words(*dictionary.letters).tolist(), strict=True))

    def hash_of(word: str) -> int:
        found = known.get(word)
        if found is None:
            value = fnv1a(word.encode())
            found = value - 2**32 if value >= 2**31 else value
        return found

    return hash_of


def spans(starts: Any, words: int) -> Iterator[tuple[int, int]]:
    """Lines in stretches of about so many words."""
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + words))
        last = max(first + 1, min(last, len(starts) - 1))
        yield first, last
        first = last


def refuse_unlabelled(text: Text) -> None:
    if not len(text.label_ids):
        raise DataError("the text has no labels: begin lines with __label__NAME, or give labels in --target")
