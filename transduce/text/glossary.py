"""A glossary: how words must be translated. One entry a line, `source TAB translation`, inflected forms as `a|b|c`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from transduce.errors import DataError
from transduce.text.normalise import normalise
from transduce.text.sentences import UNSPACED, is_unspaced

SPACED = rf"[^\W{UNSPACED}]"  # a letter or digit of a script that puts spaces between words


class GlossaryEntry(NamedTuple):
    """A word or phrase, and the translations of which one must be used."""

    source: str
    translations: tuple[str, ...]


class Glossary:
    """Entries, found in a sentence as whole words; a longer one before those inside it. One in small letters is also
    found with a capital, as it has at the beginning of a sentence, and may then be written with one. In a text all in
    small letters, as many people type, any is found."""

    def __init__(self, entries: Iterable[GlossaryEntry]) -> None:
        self.entries = {entry.source: entry for entry in entries}
        self.pattern = _any_of(self.entries)
        self._small = {source.lower(): entry for source, entry in self.entries.items()}
        self._small_pattern = _any_of(self._small)

    @classmethod
    def from_lines(cls, lines: Iterable[str], name: str) -> Glossary:
        """From the lines of a file called `name`."""
        return cls(_entries(lines, name))

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Glossary:
        """From words with their translations, written as in a file."""
        return cls(_entry_of(source, forms, f"glossary[{source!r}]") for source, forms in words.items())

    def find(self, text: str) -> list[GlossaryEntry]:
        """The entries for what occurs in a normalised text, in its order, once for each time."""
        if text.islower():
            return [self._small[match.group()] for match in self._small_pattern.finditer(text)]
        return [self._entry(match.group()) for match in self.pattern.finditer(text)]

    def _entry(self, found: str) -> GlossaryEntry:
        if found in self.entries:
            return self.entries[found]
        entry = self.entries[found[0].lower() + found[1:]]
        capitals = (form[0].upper() + form[1:] for form in entry.translations)
        return entry._replace(translations=tuple(dict.fromkeys([*entry.translations, *capitals])))


def _entries(lines: Iterable[str], name: str) -> Iterator[GlossaryEntry]:
    seen: dict[str, tuple[int, GlossaryEntry]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        source, tab, forms = line.rstrip().partition("\t")
        if "\t" in forms:
            raise DataError(f"{name}, line {number}: two columns are read, and there are more; leave out the others")
        entry = _entry_of(source if tab else "", forms, f"{name}, line {number}")
        first, other = seen.setdefault(entry.source, (number, entry))
        if other != entry:
            both = "|".join(dict.fromkeys([*other.translations, *entry.translations]))
            raise DataError(
                f"{name}, line {number}: {entry.source!r} is in line {first} already; "
                f"if either is right, write one line with {both!r}"
            )
        yield entry


def _entry_of(source: str, forms: str, place: str) -> GlossaryEntry:
    entry = GlossaryEntry(normalise(source), tuple(form for form in map(normalise, forms.split("|")) if form))
    if not entry.source or not entry.translations:
        raise DataError(f"{place}: a glossary entry is a word, a tab and its translation (a|b|c)")
    return entry


def _any_of(phrases: Iterable[str]) -> re.Pattern[str]:
    """Of several that begin at one place the longest."""
    return re.compile("|".join(map(_as_words, sorted(phrases, key=len, reverse=True))) or r"(?!)")


def _as_words(phrase: str) -> str:
    """A pattern for it where it is not part of a longer word; Chinese has no spaces to tell by."""
    begin, end = f"(?<!{SPACED})" if _is_spaced(phrase[0]) else "", f"(?!{SPACED})" if _is_spaced(phrase[-1]) else ""
    small, capital = phrase[0], phrase[0].upper()
    first = f"[{small}{capital}]" if small.islower() and capital.lower() == small else re.escape(small)
    return begin + first + re.escape(phrase[1:]) + end


def _is_spaced(character: str) -> bool:
    return bool(re.match(r"\w", character)) and not is_unspaced(character)
