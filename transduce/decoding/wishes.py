"""What a caller asks of translations, in text; wording.py has the same in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.decoding.shortlist import Shortlist
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
