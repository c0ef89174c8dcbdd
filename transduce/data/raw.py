"""Text as it is, for whoever looks for faults: no bytes are refused, and no counts that differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from transduce.data.corpus import Corpus, Pair, TwoFiles, parts_of
from transduce.data.lines import open_bytes, raw_lines
from transduce.data.one_file import OneFile, PairPerLine


def lenient_lines(path: str) -> Iterator[str]:
    """Lines as they are; bytes that are no UTF-8 become lone surrogates, so that nothing is lost or raised."""
    with open_bytes(path) as stream:
        yield from (line.decode("utf-8", "surrogateescape") for line in raw_lines(stream, path))


def line_lengths(path: str) -> np.ndarray:
    """Characters of each line."""
    return np.array([len(line) for line in lenient_lines(path)], np.int64)


def raw_sides(part: Corpus) -> Iterator[tuple[str | None, str | None]]:
    """Line by line, to the end of the longer side."""
    if isinstance(part, TwoFiles):
        yield from itertools.zip_longest(lenient_lines(part.source), lenient_lines(part.target))
        return
    if isinstance(part, PairPerLine):
        yield from (_pair_or_line(part, line) for line in lenient_lines(part.path))
        return
    pairs = part.pairs(lenient_lines(part.path)) if isinstance(part, OneFile) else part
    for pair in pairs:  # JSON and XML may hold breaks
        yield " ".join(pair.source.splitlines()), " ".join(pair.target.splitlines())


def _pair_or_line(part: PairPerLine, line: str) -> tuple[str, str]:
    """Its sides; a line that is no pair is a source without a target."""
    try:
        pair = part.pair(line)
    except ValueError:
        return line, ""
    return " ".join(pair.source.splitlines()), " ".join(pair.target.splitlines())


@dataclass(frozen=True)
class Raw:
    """A corpus as it is: of each part, as many pairs as the shorter side has lines."""

    corpus: Corpus

    @property
    def name(self) -> str:
        return self.corpus.name

    def __iter__(self) -> Iterator[Pair]:
        every = (sides for part in parts_of(self.corpus) for sides in raw_sides(part))
        whole = ((left, right) for left, right in every if left is not None and right is not None)
        return (Pair(left, right, line) for line, (left, right) in enumerate(whole, 1))


def side_names(corpus: Corpus) -> tuple[str, str]:
    """What the sides are called."""
    parts = parts_of(corpus)
    if len(parts) > 1:
        return f"source of {len(parts)} texts", f"target of {len(parts)} texts"
    (part,) = parts
    return (
        (part.source, part.target) if isinstance(part, TwoFiles) else (f"{part.name}, source", f"{part.name}, target")
    )
