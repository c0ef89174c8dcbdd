"""A .csv as spreadsheets write it: semicolons, commas or tabs between columns, quotes around what holds one."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from transduce.data.corpus import Pair
from transduce.data.lines import read_lines
from transduce.data.one_file import NAMES, OneFile, Two
from transduce.errors import DataError

FIRST_TWO: Two = ("1", "2")
DELIMITERS = "\t;,"  # what text has least of comes first: where a file could be read in two ways, that one is meant
LOOKED_AT = 50  # lines by which they are told apart
SEVERAL = 3  # lines of a text that look like rows
SAYS = "sep="  # how Excel begins a file to say so itself
COMPLAINTS = {  # of Python's csv
    "new-line character": "it has line ends of old Macintoshes; save it as CSV UTF-8",
    "field larger": f"a text of more than {csv.field_size_limit():,} characters; is a quote never closed?",
    "unexpected end": "a quote is opened that is never closed",
    "expected after": "text stands behind a quote that closes; a quote within a text is doubled",
}


@dataclass(frozen=True)
class CommaFile(OneFile):
    """Columns by number, or by the names in the first row, which is no pair then. A text within quotes may go on over
    several lines; it becomes one. Empty lines are none."""

    def pairs(self, lines: Iterator[str]) -> Iterator[Pair]:
        first, delimiter = _begin(lines)
        rows = csv.reader((f"{line}\n" for line in chain(first, lines)), delimiter=delimiter, strict=True)
        number, began, usual = 0, 1, 0
        columns: list[int] = []
        try:
            for row in rows:
                is_names = False
                if row and not usual:
                    usual, (columns, is_names) = len(row), self._places(row)
                if row and not is_names:
                    _check(row, usual, max(columns), delimiter)
                    number += 1
                    source, target = (" ".join(row[column].splitlines()) for column in columns)
                    yield Pair(source, target, number)
                began = rows.line_num + 1  # of the next, for a complaint
        except (csv.Error, ValueError) as error:
            told = next((words for begin, words in COMPLAINTS.items() if begin in str(error)), str(error))
            raise DataError(f"{self.path}, line {began}: {told}") from error

    def _places(self, head: list[str]) -> tuple[list[int], bool]:
        """Where source and target stand, from 0; and whether the first row names them."""
        chosen = self.columns or (NAMES if set(NAMES) <= set(head) else FIRST_TWO)
        if self.columns is None and chosen == FIRST_TWO and len(head) > len(FIRST_TWO):
            there = ", ".join(f"{place} ({name[:20]})" for place, name in enumerate(head, 1))
            raise ValueError(
                f"there are {len(head)} columns: choose two with --columns, the source first; by name, where the first "
                f"row has names, or by number, where it is a pair: {there}"
            )
        if not set(chosen) <= set(head) and all(column.isdecimal() and int(column) > 0 for column in chosen):
            return [int(column) - 1 for column in chosen], False
        if missing := [column for column in chosen if column not in head]:
            raise ValueError(f"no column is called {' or '.join(missing)}; there are: {', '.join(head)[:200]}")
        return [head.index(column) for column in chosen], True

    def remark(self) -> str | None:
        """What nobody chose, and may not be meant so."""
        if self.columns is not None and not all(column.isdecimal() for column in self.columns):
            return None
        lines = read_lines(self.path)
        first, delimiter = _begin(lines)
        head = next(filter(any, _rows(first, delimiter)), [])
        if self.columns is None and (len(head) != 2 or set(NAMES) <= set(head)):  # of more, two have to be chosen
            return None
        chosen = self.columns or FIRST_TWO
        places = [int(column) - 1 for column in chosen]
        if max(places) >= len(head) or set(chosen) <= set(head):  # names that are numbers
            return None
        names = " ".join(shlex.quote(head[place][:40]) for place in places)
        which = "its two columns, and " if self.columns is None else ""
        return f"{self.path}: {which}the first row is a pair; if it has names: --columns {names}"


def _begin(lines: Iterator[str]) -> tuple[list[str], str]:
    """The first lines, and what stands between columns: what makes as many of them in every row."""
    first = list(islice(lines, LOOKED_AT))
    if first and first[0].lower().startswith(SAYS) and len(first[0]) == len(SAYS) + 1:
        return first[1:], first[0][-1]
    for delimiter in DELIMITERS:
        rows = _rows(first, delimiter)
        counts = {len(row) for row in rows[:-1] or rows if any(row)}  # the last may go on
        if len(counts) == 1 and max(counts) > 1:
            return first, delimiter
    return first, max(reversed(DELIMITERS), key=(first or [""])[0].count)


def _rows(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    """The rows of some lines; none where they cannot be read so."""
    try:
        return list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter))
    except csv.Error:
        return []


def _check(row: list[str], usual: int, last: int, delimiter: str) -> None:
    if len(row) > usual:
        raise ValueError(
            f"it has {len(row)} columns, and the first row {usual}; a text with a {delimiter!r} needs quotes"
        )
    if last >= len(row):
        raise ValueError(f"it has {len(row)} columns, and number {last + 1} is wanted")
    for cell in row:
        lines = cell.splitlines()
        if len(lines) > SEVERAL and sum(delimiter in line for line in lines) > SEVERAL:
            raise ValueError(
                f"a text of {len(lines)} lines with a {delimiter!r} in most: its quote is probably not closed"
            )
