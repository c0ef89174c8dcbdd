"""Reading parallel text: two files, one .tsv or one .jsonl, each also .gz; one line at a time.

A line ends at a line feed and nowhere else, so that line numbers are those of every other tool.
"""

from __future__ import annotations

import gzip
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np

from transduce.errors import DataError
from transduce.text.tokenizer import normalise

BOM = "\ufeff"


class Pair(NamedTuple):
    source: str
    target: str


class Corpus(Protocol):
    """Pairs that can be gone through more than once."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def __iter__(self) -> Iterator[Pair]:
        """The pairs, text as it was written."""


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of UTF-8 text without their ends; a byte-order mark at the start is dropped."""
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line); "
                f"convert the file, for example with: iconv -f latin1 -t utf-8"
            ) from error
        if number == 1:
            text = text.removeprefix(BOM)
        yield text.removesuffix("\n").removesuffix("\r")


def open_bytes(path: str | Path) -> BinaryIO:
    """The file's bytes, unpacked when it ends in .gz."""
    path = Path(path)
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder, not a text file")
        return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a text file, one at a time."""
    with open_bytes(path) as stream:
        try:
            yield from decode_lines(stream, str(path))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path} is not a complete gzip file: {error}") from error
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from error


@dataclass(frozen=True)
class ListCorpus:
    """Pairs in memory."""

    pairs: Sequence[tuple[str, str]]
    name: str = "the given pairs"

    def __iter__(self) -> Iterator[Pair]:
        return (Pair(source, target) for source, target in self.pairs)


@dataclass(frozen=True)
class Joined:
    """Several corpora, one after the other."""

    parts: Sequence[Corpus]

    @property
    def name(self) -> str:
        return " + ".join(part.name for part in self.parts)

    def __iter__(self) -> Iterator[Pair]:
        return (pair for part in self.parts for pair in part)


@dataclass(frozen=True)
class TwoFiles:
    """One sentence a line, the same line number on both sides."""

    source: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.source} and {self.target}"

    def __iter__(self) -> Iterator[Pair]:
        end = object()
        sources, targets = read_lines(self.source), read_lines(self.target)
        while True:
            source, target = next(sources, end), next(targets, end)
            if source is end and target is end:
                return
            if source is end or target is end:
                raise self._unequal()
            yield Pair(str(source), str(target))

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
                yield self.pair(line)
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
            record = json.loads(line)
            pair = Pair(record["source"], record["target"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
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


def normalised(corpus: Iterable[Pair]) -> Iterator[Pair]:
    return (Pair(normalise(source), normalise(target)) for source, target in corpus)


@dataclass(frozen=True)
class Every:
    """Every k-th pair of a corpus, or all but those."""

    corpus: Corpus
    k: int
    all_but: bool = False

    @property
    def name(self) -> str:
        return self.corpus.name

    def __iter__(self) -> Iterator[Pair]:
        return (pair for i, pair in enumerate(self.corpus) if (i % self.k == 0) != self.all_but)

    def lines(self, places: np.ndarray) -> np.ndarray:
        """Which pairs of the whole corpus, from 1, those at these places of ours are, also from 1."""
        if not self.all_but:
            return (places - 1) * self.k + 1
        rounds, rest = np.divmod(places - 1, self.k - 1)
        return rounds * self.k + rest + 2


def count(corpus: Corpus) -> int:
    """How many pairs there are; reading them all also finds whatever cannot be read or paired."""
    number = sum(1 for _ in corpus)
    if number == 0:
        raise DataError(f"there are no sentence pairs in {corpus.name}")
    return number


def hold_out(corpus: Corpus, pairs: int, wanted: int) -> tuple[Corpus, Corpus | None]:
    """(training part, validation part): about `wanted` of the `pairs`, never more than a twentieth."""
    wanted = min(wanted, pairs // 20)
    if wanted == 0:
        return corpus, None
    k = -(-pairs // wanted)  # rounded up, so that no more than wanted are taken
    return Every(corpus, k, all_but=True), Every(corpus, k)


@dataclass(frozen=True)
class Normalised:
    """A corpus as tokenizers read it."""

    corpus: Corpus

    def __iter__(self) -> Iterator[Pair]:
        return normalised(self.corpus)
