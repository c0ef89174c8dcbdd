"""Parallel text: two files, one .tsv or one .jsonl, each also .gz; or pairs in memory. A pair knows its line number."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from transduce.data.lines import read_lines
from transduce.errors import DataError
from transduce.files import strict_json


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
        every = (pair for part in self.parts for pair in part)
        return (pair._replace(line=line) for line, pair in enumerate(every, 1))


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
        line = suspicious_line(*lengths)
        return DataError(
            f"{self.source} has {len(lengths[0]):,} lines but {self.target} has {len(lengths[1]):,}; "
            f"by their lengths, the sides stop matching near line {line:,}"
        )


@dataclass(frozen=True)
class OneFile(ABC):
    """Both sides on each line of a file; its kinds say how."""

    path: str

    @property
    def name(self) -> str:
        return self.path

    def __iter__(self) -> Iterator[Pair]:
        for number, line in enumerate(read_lines(self.path), 1):
            try:
                yield self.pair(line)._replace(line=number)
            except ValueError as error:
                raise DataError(f"{self.path}, line {number}: {error}") from error

    @staticmethod
    @abstractmethod
    def pair(line: str) -> Pair:
        """The sides of a line; a ValueError says what is wrong with it."""


class TabFile(OneFile):
    """source TAB target; further columns are ignored."""

    @staticmethod
    def pair(line: str) -> Pair:
        columns = line.split("\t")
        if len(columns) < 2:
            raise ValueError("no tab between source and target")
        return Pair(columns[0], columns[1])


LABEL = "__label__"


class Labelled(OneFile):
    """__label__NAME text, as fastText has it: the text is the source, the name the target."""

    @staticmethod
    def pair(line: str) -> Pair:
        label, text = [*line.split(None, 1), "", ""][:2]
        if not label.startswith(LABEL) or label == LABEL:
            raise ValueError(f"it does not begin with {LABEL}NAME; or give labels in --target")
        if text.lstrip().startswith(LABEL):
            raise ValueError("more than one label; a text has one here")
        return Pair(text.strip(), label.removeprefix(LABEL))


class JsonLines(OneFile):
    """{"source": ..., "target": ...}"""

    @staticmethod
    def pair(line: str) -> Pair:
        try:
            record = strict_json.loads(line)
            pair = Pair(record["source"], record["target"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError('expected {"source": "...", "target": "..."}') from error
        if not isinstance(pair.source, str) or not isinstance(pair.target, str):
            raise ValueError("source and target must be strings")
        return pair


def open_corpus(source: str, target: str | None, labels: bool = False) -> Corpus:
    """The corpus that a user names by one or two files; with `labels`, one file may carry them before its lines."""
    for path in (source, target):
        if path is not None and Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise DataError(f"{path} is a pipe, which can be read only once; write the text to a file first")
    bare = source.removesuffix(".gz")
    if target is None:
        if bare.endswith(".tsv"):
            return TabFile(source)
        if bare.endswith(".jsonl"):
            return JsonLines(source)
        if labels:
            return Labelled(source)
        if Path(source).is_file() and next(read_lines(source), "").startswith(LABEL):
            raise DataError(f"{source} has labels before its lines: train on it with --task classify")
        raise DataError(
            f"{source} holds one side only: give the other too (--target, or --reference where a model is scored), "
            f"or use a .tsv or .jsonl file"
        )
    if labels and next(read_lines(source), "").startswith(LABEL):
        raise DataError(f"{source} has labels before its lines already; give either those or {target}")
    return TwoFiles(source, target)


def suspicious_line(source: np.ndarray, target: np.ndarray) -> int:
    """Where, by length alone, a line was lost or added: the split with the best match before and after it.

    Before the split lines match one to one; after it, the longer side runs ahead by the difference in count.
    """
    shift = len(target) - len(source)
    size = min(len(source), len(target))
    if size == 0:
        return 1
    log_source, log_target = np.log(source + 1.0), np.log(target + 1.0)
    usual = np.median(log_target[:size] - log_source[:size])
    before = np.abs(log_target[:size] - log_source[:size] - usual)
    ahead_source, ahead_target = log_source[max(-shift, 0) :], log_target[max(shift, 0) :]
    after = np.abs(ahead_target - ahead_source - usual)
    cost = np.concatenate([[0], np.cumsum(before)]) + np.concatenate([np.cumsum(after[::-1])[::-1], [0]])
    return int(np.argmin(cost)) + 1
