"""What a caller asks of translations, in text; wording.py has the same in tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from transduce.decoding.shortlist import Shortlist
from transduce.errors import DataError
from transduce.text.glossary import Glossary


@dataclass(frozen=True)
class Wishes:
    """Beyond the search settings, for all lines of a call."""

    n_best: int = 1
    glossary: Glossary | None = None  # words that must be translated so
    keep: str | None = None  # a regular expression: what it matches is taken over unchanged
    forbidden: Sequence[str] = ()  # words that must not be written
    alternatives: int = 0  # so many other tokens at each place, with their probabilities
    alignment: bool = False  # which words come from which
    shortlist: Shortlist | None = None  # what source tokens may become; None: anything


def with_prefixes(lines: Iterable[str], prefixes: Iterable[str], size: int) -> Iterator[tuple[list[str], list[str]]]:
    """Lines in chunks of a size, each line with its prefix; of these there are none, or as many."""
    remaining, begins, done = iter(lines), iter(prefixes), 0
    none = isinstance(prefixes, Sequence) and not prefixes
    while read := list(itertools.islice(remaining, size)):
        prefix = [""] * len(read) if none else list(itertools.islice(begins, len(read)))
        if len(prefix) < len(read):
            raise DataError(f"there are {done + len(prefix):,} prefixes, and more lines than that; give one for each")
        yield read, prefix
        done += len(read)
    if not none and next(begins, None) is not None:
        raise DataError(f"there are {done:,} lines, and more prefixes than that; give one for each line")
