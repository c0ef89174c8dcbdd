"""A glossary: how words must be translated. One entry a line, `source TAB translation`, inflected forms as `a|b|c`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from transduce.errors import DataError
from transduce.text.normalise import normalise
from transduce.text.scripts import SPACED


class GlossaryEntry(NamedTuple):
    """A word or phrase, and the translations of which one must be used."""

    source: str
    translations: tuple[str, ...]


class Glossary:
    """Entries, found in a sentence as whole words; a longer one before those inside it. One in small letters is also
    found with a capital, as it has at the beginning of a sentence, and may then be written with one. In a text all in
    small letters, as many people type, entries with capitals are found too, but for those that are ALL CAPS."""

    def __init__(self, entries: Iterable[GlossaryEntry]) -> None:
        self.entries = {entry.source: entry for entry in entries}
        with_capital = {_capital(source): source for source in self.entries if source[0].islower() and source[0] != "ß"}
        self._sources = {**with_capital, **{source: source for source in self.entries}}  # of what is found
        self._pattern = _any_of(self._sources)

    @classmethod
    def from_lines(cls, lines: Iterable[str], name: str) -> Glossary:
        """From the lines of a file called `name`."""
        return cls(_entries(lines, name))

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Glossary:
        """From words with their translations, written as in a file."""
        return cls(_entry_of(source, forms, f"glossary[{source!r}]") for source, forms in words.items())

    @cached_property
    def small(self) -> Glossary:
        """What is found in a text all in small letters: there an entry in small letters goes before another."""
        others = (entry for source, entry in self.entries.items() if not (source.isupper() and len(source) > 1))
        small = {entry.source.lower(): entry._replace(source=entry.source.lower()) for entry in others}
        return Glossary({**small, **{s: e for s, e in self.entries.items() if s in small}}.values())

    def find(self, text: str, is_small: bool = False) -> list[GlossaryEntry]:
        """The entries for what occurs in a normalised text, in its order, once for each time. `is_small`: the sentence
        is all in small letters."""
        if is_small:
            return self.small.find(text)
        return [self._entry(match.group()) for match in self._pattern.finditer(text)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where they occur."""
        glossary = self.small if text.islower() else self
        return [match.span() for match in glossary._pattern.finditer(text)]

    def _entry(self, found: str) -> GlossaryEntry:
        entry = self.entries[self._sources[found]]
        if entry.source == found:
            return entry
        return entry._replace(
            translations=tuple(dict.fromkeys([*entry.translations, *map(_capital, entry.translations)]))
        )


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


def _capital(phrase: str) -> str:
    return phrase[0].upper() + phrase[1:]


def _any_of(phrases: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of them where it is not part of a longer word, the longest where several begin; Chinese has no
    spaces to tell by. By first characters, so that of thousands few are tried at a place."""
    by_first: dict[str, list[str]] = {}
    for phrase in sorted(phrases, key=len, reverse=True):
        by_first.setdefault(phrase[0], []).append(re.escape(phrase[1:]))
    one = "|".join(f"{re.escape(first)}(?:{'|'.join(rests)})" for first, rests in by_first.items()) or r"(?!)"
    begins, ends = f"(?:(?<!{SPACED})|(?!{SPACED}))", f"(?:(?!{SPACED})|(?<!{SPACED}))"  # on one side of it no letter
    return re.compile(f"{begins}(?:{one}){ends}")
