"""A .csv as spreadsheets write it: commas, semicolons or tabs between columns, quotes around what holds one of them."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from transduce.data.corpus import Pair
from transduce.data.lines import read_lines
from transduce.data.one_file import NAMES, OneFile, Two
from transduce.errors import DataError

FIRST_TWO: Two = ("1", "2")


@dataclass(frozen=True)
class CommaFile(OneFile):
    """Columns by number, or by the names in the first line, which is no pair then. A text within quotes may go on over
    several lines; it becomes one."""

    def pairs(self, lines: Iterator[str]) -> Iterator[Pair]:
        first = next(lines, None)
        if first is None:
            return
        rows = csv.reader((f"{line}\n" for line in chain([first], lines)), delimiter=_delimiter(first), strict=True)
        try:
            columns, by_name = self._places(_cells(first))
            if by_name:
                next(rows)
            for row in filter(None, rows):  # an empty line is none
                if max(columns) >= len(row):
                    raise ValueError(f"it has {len(row)} columns, and number {max(columns) + 1} is wanted")
                source, target = (row[column].replace("\n", " ") for column in columns)
                yield Pair(source, target, rows.line_num)
        except (csv.Error, ValueError) as error:
            raise DataError(f"{self.path}, line {rows.line_num or 1}: {error}") from error

    def _places(self, there: list[str]) -> tuple[list[int], bool]:
        """Where source and target stand, from 0; and whether the first line names them."""
        chosen = self.columns or (NAMES if set(NAMES) <= set(there) else FIRST_TWO)
        if all(column.isdecimal() and int(column) > 0 for column in chosen):
            return [int(column) - 1 for column in chosen], False
        if missing := [column for column in chosen if column not in there]:
            raise ValueError(f"no column is called {' or '.join(missing)}; there are: {', '.join(there)}")
        return [there.index(column) for column in chosen], True

    def remark(self) -> str | None:
        """What nobody chose, and may not be meant so."""
        there = _cells(next(read_lines(self.path), ""))
        if self.columns is not None or set(NAMES) <= set(there) or len(there) < 2:
            return None
        names = " ".join(map(shlex.quote, there[:2]))
        return f"{self.path}: its first two columns, and its first line is a pair; if it has names: --columns {names}"


def _delimiter(first: str) -> str:
    """What stands between columns: what the first line has most of."""
    return max(",;\t", key=first.count)


def _cells(first: str) -> list[str]:
    return next(csv.reader([first], delimiter=_delimiter(first)), [])
