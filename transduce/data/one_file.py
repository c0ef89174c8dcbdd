"""One file of lines with both sides of each pair: .tsv, .jsonl, or text with a label before it; .csv is in comma.py."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from transduce.data.corpus import Pair
from transduce.data.lines import read_lines
from transduce.errors import DataError, SettingsError
from transduce.files import strict_json

Two = tuple[str, str]  # what is chosen for source and target
NAMES: Two = ("source", "target")  # of columns, unless others are chosen


@dataclass(frozen=True)
class OneFile(ABC):
    """Both sides of pairs in a file of lines; its kinds say how."""

    path: str
    columns: Two | None = None

    @property
    def name(self) -> str:
        return self.path

    def __iter__(self) -> Iterator[Pair]:
        return self.pairs(read_lines(self.path))

    @abstractmethod
    def pairs(self, lines: Iterator[str]) -> Iterator[Pair]:
        """Those of some lines, from the first."""


class PairPerLine(OneFile):
    """A kind whose lines are read one by one."""

    def pairs(self, lines: Iterator[str]) -> Iterator[Pair]:
        for number, line in enumerate(lines, 1):
            try:
                yield self.pair(line)._replace(line=number)
            except ValueError as error:
                raise DataError(f"{self.path}, line {number}: {error}") from error

    @abstractmethod
    def pair(self, line: str) -> Pair:
        """The sides of a line; a ValueError says what is wrong with it."""


@dataclass(frozen=True)  # again, for its own check
class TabFile(PairPerLine):
    """Columns with a tab between them, counted from 1; the first two, if none are chosen."""

    def __post_init__(self) -> None:
        chosen = self.columns or ()
        if any(not column.isdecimal() or int(column) < 1 for column in chosen):
            raise SettingsError(
                f"--columns {' '.join(chosen)}: the columns of {self.path} are numbers from 1, such as --columns 1 3"
            )

    def pair(self, line: str) -> Pair:
        columns = line.split("\t")
        source, target = (int(column) for column in self.columns or ("1", "2"))
        if len(columns) < 2:
            raise ValueError(f"no tab between source and target{self._way_out(max(source, target))}")
        if len(columns) < max(source, target):
            last = max(source, target)
            raise ValueError(f"it has {len(columns)} columns, and --columns names number {last}{self._way_out(last)}")
        return Pair(columns[source - 1], columns[target - 1])

    def _way_out(self, columns: int) -> str:
        """How to leave out lines with fewer columns than that."""
        if not self.path.endswith(".tsv"):  # it is packed
            return ""
        whole = f"{self.path.removesuffix('.tsv')}.whole.tsv"
        return f"; without such lines: awk -F'\\t' 'NF >= {columns}' {shlex.quote(self.path)} > {shlex.quote(whole)}"


class JsonLines(PairPerLine):
    """{"source": ..., "target": ...}, or other keys that are chosen."""

    def pair(self, line: str) -> Pair:
        source, target = self.columns or NAMES
        try:
            record = strict_json.loads(line)
            pair = Pair(record[source], record[target])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f'expected {{"{source}": "...", "{target}": "..."}}') from error
        if not isinstance(pair.source, str) or not isinstance(pair.target, str):
            raise ValueError(f"{source} and {target} must be strings")
        return pair


LABEL = "__label__"


class Labelled(PairPerLine):
    """__label__NAME text, as fastText has it: the text is the source, the name the target."""

    def pair(self, line: str) -> Pair:
        label, text = [*line.split(None, 1), "", ""][:2]
        if not label.startswith(LABEL) or label == LABEL:
            raise ValueError(f"it does not begin with {LABEL}NAME; or give labels in --target")
        if text.lstrip().startswith(LABEL):
            raise ValueError("more than one label; a text has one here")
        return Pair(text.strip(), label.removeprefix(LABEL))
