"""Normalisation, the same for all tokenizers, which changes as little as possible: invisible control characters are
removed, Unicode is NFC, any run of white space one space. Full-width Chinese punctuation, typographic quotes and case
stay as typed.

NFC takes time that grows with the square of a run of combining marks, and a line may be made of nothing else. So a long
line is normalised in pieces, cut where no character joins the one before it.
"""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\ufeff\ud800-\udfff]")  # lone surrogates too
PIECE = 2000  # characters that are normalised in one go
LONGEST_RUN = 200  # of marks on one letter, beyond any language; a longer run is cut, and its order not mended


def normalise(text: str) -> str:
    """The text as every tokenizer sees it."""
    if not text.isprintable():  # hardly ever: looking for what to remove takes longer than all the rest
        text = _INVISIBLE.sub("", text)  # first: what stood between a letter and its mark would keep them apart
    return " ".join(_nfc(text).split())


def _nfc(text: str) -> str:
    if text.isascii():
        return text  # which NFC leaves as it is
    if len(text) <= PIECE:
        return unicodedata.normalize("NFC", text)
    pieces, begin = [], 0
    while begin < len(text):
        end = _cut(text, begin + PIECE)
        pieces.append(unicodedata.normalize("NFC", text[begin:end]))
        begin = end
    return "".join(pieces)


def _cut(text: str, place: int) -> int:
    """The nearest place at or before this one where a character begins anew; the place itself where there is none."""
    for end in range(place, place - LONGEST_RUN, -1):
        if end >= len(text):
            return len(text)
        if not _joins(text[end]):
            return end
    return place


def _joins(character: str) -> bool:
    """Whether NFC may join a character to the one before it: marks, and the vowels and ends of Korean syllables."""
    return unicodedata.category(character).startswith("M") or "\u1160" <= character <= "\u11ff"
