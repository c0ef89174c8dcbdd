"""Sentence ends, by sentencex, which knows the abbreviations of many languages. The only file that imports it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection

import sentencex

from transduce.text.scripts import EAST_ASIAN

_EAST_ASIAN = re.compile(f"[{EAST_ASIAN}]")
_PAUSE = re.compile(r"[,;:](?!\d)\s*|[，；：、]\s*|\s+")  # where a sentence may be cut if it must be
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no text file can hold
_FULL_STOP = re.compile(r"。+[”’」』]*\s*")
_GOES_ON = re.compile(r"[。！？”’」』）】》〉]|(?<=[）】》〉]).|(?<=(?<![A-Za-z])[A-Za-z]\.)\S|(?<=\d\.)\S")
MOST = 100_000  # characters that are searched for sentence ends in one go


def is_east_asian(text: str) -> bool:
    """Whether a text has Chinese or Japanese characters, between whose sentences no spaces stand either."""
    return _EAST_ASIAN.search(text) is not None


def split_sentences(line: str, never: Collection[int] = ()) -> list[str]:
    """The sentences of a line, each with the white space behind it; one, if there are no more. `never`: places where it
    is not cut."""
    readable = _SURROGATE.sub("\ufffd", line)  # as sentencex can
    ends = sorted((_east_asian_ends if is_east_asian(line) else _spaced_ends)(readable) - set(never))
    return [line[begin:end] for begin, end in itertools.pairwise([0, *ends, len(line)])]


def _spaced_ends(line: str) -> set[int]:
    """Where sentences end within a line."""
    ends = _ends(line, "en")
    if ends and not line.islower():  # "am 3. Oktober", "bzw.", "Mio.": only English would cut there
        ends &= _ends(line, "de")
    return ends


def _east_asian_ends(line: str) -> set[int]:
    """The same in Chinese and Japanese: also before a digit, behind the marks that close a quotation, and not behind a
    bracket or within U.S.A."""
    found = {match.end() for match in _FULL_STOP.finditer(line)} | _ends(line, "zh")
    return {end for end in found if end < len(line) and not _GOES_ON.match(line, end)}


def _ends(line: str, language: str) -> set[int]:
    """Where sentencex, with the abbreviations of a language, ends sentences within a line."""
    pieces = [line[begin : begin + MOST] for begin in range(0, len(line), MOST)]
    sentences = [sentence for piece in pieces for sentence in sentencex.segment(language, piece)]
    if "".join(sentences) != line:  # it has left something out, so that nobody knows where they stand
        return set()
    edges = {len(line), *range(0, len(line), MOST)}
    return set(itertools.accumulate(map(len, sentences))) - edges


def halve(text: str, never: Collection[int] = ()) -> tuple[str, str]:
    """Two parts of what is too long, cut at the pause nearest its middle, or there if it has none; `never`: places
    where it is not cut if there is another."""
    middle = len(text) // 2
    ends = (match.end() for match in _PAUSE.finditer(text))
    pauses = [end for end in ends if 0 < end < len(text) and end not in never]
    place = min(pauses, key=lambda end: abs(end - middle), default=middle)
    return text[:place], text[place:]
