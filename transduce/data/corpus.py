"""Parallel text: pairs in memory, two files, several corpora. A pair knows its line number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from transduce.data.lines import read_lines
from transduce.errors import DataError

CLEARLY = 2.5  # times the noise, by which lines behind a gap match better than without one


class Pair(NamedTuple):
    """A sentence and its translation, or a text and its label."""

    source: str
    target: str
    line: int = 0  # in its corpus, from 1


class Corpus(Protocol):
    """Pairs that can be gone through more than once."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def __iter__(self) -> Iterator[Pair]:
        """The pairs, text as it was written, lines counted from 1 without a gap."""


@dataclass(frozen=True)
class ListCorpus:
    """Pairs in memory."""

    pairs: Sequence[tuple[str, str]]
    name: str = "the given pairs"

    def __iter__(self) -> Iterator[Pair]:
        return (Pair(source, target, line) for line, (source, target) in enumerate(self.pairs, 1))


@dataclass(frozen=True)
class Joined:
    """Several corpora, one after the other."""

    parts: Sequence[Corpus]

    @property
    def name(self) -> str:
        return " + ".join(part.name for part in self.parts)

    def __iter__(self) -> Iterator[Pair]:
        return (pair for _, pair in numbered(self.parts))


def parts_of(corpus: Corpus) -> Sequence[Corpus]:
    """What a corpus was joined from; itself, if it was not."""
    return corpus.parts if isinstance(corpus, Joined) else [corpus]


def numbered(parts: Sequence[Corpus]) -> Iterator[tuple[int, Pair]]:
    """Every pair with the place of its part; its line counts those of the parts before."""
    every = ((place, pair) for place, part in enumerate(parts) for pair in part)
    return ((place, pair._replace(line=line)) for line, (place, pair) in enumerate(every, 1))


class Stretch(NamedTuple):
    """The lines of one part among those of all."""

    name: str
    lines: int


def line_name(stretches: Sequence[Stretch], line: int) -> str:
    """A line among those of all parts, as messages call it: by its file, and its number there."""
    before = 0
    for stretch in stretches if len(stretches) > 1 else ():
        if line <= before + stretch.lines:
            return f"{stretch.name}, line {line - before:,}"
        before += stretch.lines
    return f"line {line:,}"


@dataclass(frozen=True)
class TwoFiles:
    """One sentence a line, the same line number on both sides."""

    source: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.source} and {self.target}"

    def __iter__(self) -> Iterator[Pair]:
        sides = itertools.zip_longest(read_lines(self.source), read_lines(self.target))
        for line, (source, target) in enumerate(sides, 1):
            if source is None or target is None:
                raise self._unequal()
            yield Pair(source, target, line)

    def _unequal(self) -> DataError:
        lengths = [np.array([len(line) for line in read_lines(path)]) for path in (self.source, self.target)]
        return DataError(
            f"{self.source} has {len(lengths[0]):,} lines but {self.target} has {len(lengths[1]):,}; "
            f"{where_unequal(*lengths)}"
        )


def where_unequal(source: np.ndarray, target: np.ndarray) -> str:
    """In words, by the lengths of the lines of both sides, which are not as many."""
    if not len(source) or not len(target):
        return "one side is empty"
    line, sure = suspicious_line(source, target)
    if line > min(len(source), len(target)):
        return "by their lengths all lines match, so the last ones of the shorter side seem to be missing"
    if not sure:
        return "their lengths do not tell where a line is missing, perhaps at the end"
    return f"by their lengths, the sides stop matching near line {line:,}"


def suspicious_line(source: np.ndarray, target: np.ndarray) -> tuple[int, bool]:
    """Where, by length alone, a line was lost or added: the split with the best match before and after it; and whether
    it matches clearly better than a loss at the very end would.

    Before the split lines match one to one; after it, the longer side runs ahead by the difference in count.
    """
    shift = len(target) - len(source)
    size = min(len(source), len(target))
    if size == 0:
        return 1, False
    log_source, log_target = np.log(source + 1.0), np.log(target + 1.0)
    usual = np.median(log_target[:size] - log_source[:size])
    before = np.abs(log_target[:size] - log_source[:size] - usual)
    ahead_source, ahead_target = log_source[max(-shift, 0) :], log_target[max(shift, 0) :]
    after = np.abs(ahead_target - ahead_source - usual)
    cost = np.concatenate([[0], np.cumsum(before)]) + np.concatenate([np.cumsum(after[::-1])[::-1], [0]])
    split = int(np.argmin(cost))
    gain = before[split:] - after[split:]  # of every line behind it
    noise = gain.std() * np.sqrt(len(gain)) if len(gain) else 0.0
    return split + 1, bool(gain.sum() > CLEARLY * noise)
