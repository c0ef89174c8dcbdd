"""A regular expression that a user or a model gives: refused where it is none, and ended where it never would end.

Of `(\\w+\\s?)+\\d` the time doubles with every letter of a line, and re cannot be told when to stop; regex, which
sacrebleu brings along, can. The language is that of re: what re does not know is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import regex

from transduce.errors import SettingsError

SECONDS, PACE = 1.0, 500_000  # for every text, and the characters for which there is a second more
LARGEST = 100_000  # parts of a pattern once it is written out
SHOWN = 100  # characters of a pattern in a message


class Pattern:
    """A regular expression with a limit of time; `name` is that of the setting or flag that it comes from."""

    def __init__(self, pattern: str, name: str) -> None:
        shown = pattern if len(pattern) <= SHOWN else f"{pattern[:SHOWN]}..."
        self._named = f"{name}={shown}"
        try:
            re.compile(pattern)
            if _written_out(pattern) > LARGEST:
                raise OverflowError
            self._compiled: Any = regex.compile(pattern)
        except (re.error, regex.error) as error:
            raise SettingsError(f"{self._named} is no regular expression: {error}") from error
        except (OverflowError, RecursionError, MemoryError) as error:
            raise SettingsError(
                f"{self._named} is no regular expression that can be used: it counts or nests too far; "
                f"leave out {{...}} and brackets that are not needed"
            ) from error

    def finditer(self, text: str) -> Iterator[Any]:
        """The matches in a text, one behind the other."""
        seconds = SECONDS + len(text) / PACE
        try:
            yield from self._compiled.finditer(text, timeout=seconds)
        except TimeoutError as error:
            raise SettingsError(
                f"{self._named} needs more than {seconds:.0f} s for a line of {len(text):,} characters; write it "
                f"without repetitions of what can match the same text in several ways, such as (a+)+"
            ) from error

    def sub(self, replacement: str, text: str) -> str:
        """The text with something else, as it stands, for each match."""
        pieces, place = [], 0
        for match in self.finditer(text):
            pieces += [text[place : match.start()], replacement]
            place = match.end()
        return "".join([*pieces, text[place:]])

    def matches_empty_text(self) -> bool:
        """Whether the empty text has a match."""
        return next(self.finditer(""), None) is not None


def _written_out(pattern: str) -> int:
    """How many parts a pattern has at most when regex has written out each of them as often as it must come; counts
    multiply where groups nest."""
    counts = [re.sub(r"\D", "", count)[:9] for count in re.findall(r"\{([^{},]*)", pattern)]
    largest = sorted((int(count or 1) for count in counts), reverse=True)
    return len(pattern) * math.prod(largest[: pattern.count("(") + 1])
