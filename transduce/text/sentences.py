"""Sentence ends, by sentencex, which knows the abbreviations of many languages. The only file that imports it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection

import sentencex

UNSPACED = r"\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"  # Chinese and Japanese, with their punctuation
_UNSPACED = re.compile(f"[{UNSPACED}]")
_PAUSE = re.compile(r"[,;:](?!\d)\s*|[，；：、]\s*|\s+")  # where a sentence may be cut if it must be
MOST = 100_000  # characters that are searched for sentence ends in one go


def is_unspaced(text: str) -> bool:
    """Whether a text has characters of a script that puts no spaces between words."""
    return _UNSPACED.search(text) is not None


def split_sentences(line: str, never: Collection[int] = ()) -> list[str]:
    """The sentences of a line, each with the white space behind it; one, if there are no more. `never`: places where it
    is not cut."""
    if is_unspaced(line):
        sentences = _segments(line, "zh")
    else:
        sentences = _segments(line, "en")
        if len(sentences) > 1 and not line.islower():  # "am 3. Oktober", "bzw.", "Mio.": only English would cut there
            ends = set(itertools.accumulate(map(len, _segments(line, "de"))))
            never = {*never, *(end for end in itertools.accumulate(map(len, sentences)) if end not in ends)}
    return _rejoined(sentences, never) if never else sentences


def _segments(line: str, language: str) -> list[str]:
    """The sentences of a line by the abbreviations of a language; the line, if they are not all of it."""
    pieces = [line[begin : begin + MOST] for begin in range(0, len(line), MOST)]
    sentences = [sentence for piece in pieces for sentence in sentencex.segment(language, piece)]
    return sentences if "".join(sentences) == line else [line]


def _rejoined(sentences: list[str], never: Collection[int]) -> list[str]:
    whole, place = [""], 0
    for sentence in sentences:
        if place in never or not place:
            whole[-1] += sentence
        else:
            whole.append(sentence)
        place += len(sentence)
    return whole


def halve(text: str, never: Collection[int] = ()) -> tuple[str, str]:
    """Two parts of what is too long, cut at the pause nearest its middle, or there if it has none; `never`: places
    where it is not cut if there is another."""
    middle = len(text) // 2
    ends = (match.end() for match in _PAUSE.finditer(text))
    pauses = [end for end in ends if 0 < end < len(text) and end not in never]
    place = min(pauses, key=lambda end: abs(end - middle), default=middle)
    return text[:place], text[place:]
