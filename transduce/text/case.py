"""Case as marks: a word is written in lower case, with a mark right behind it where it was Capitalised or ALL CAPS.

`Das BIER im Iglu` becomes `das⇧ bier⇪ im iglu⇧`, so that every form of a word is the one word that a model knows. A
word whose form cannot be told so (iPhone, some letters of some scripts) stays as typed: `restore(mark(text)) == text`
for every text. A mark that somebody typed is quoted.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from transduce.text.scripts import COMBINING, UNSPACED

CAPITAL, CAPITALS, QUOTED = "⇧", "⇪", "⇨"  # the first letter is large; all are; what follows is no mark
CASE_MARKS = CAPITAL + CAPITALS + QUOTED
# Letters and digits with their marks, but not of scripts without spaces and case.
_WORD = rf"[^\W{UNSPACED}](?:[^\W{UNSPACED}]|[{COMBINING}])*+"
_TYPED = re.compile(rf"{_WORD}|[{CASE_MARKS}]")
_MARKED = re.compile(rf"{QUOTED}(.)|({_WORD})([{CAPITAL}{CAPITALS}]?)|[{CASE_MARKS}]", re.DOTALL)
_WITH_MARK = re.compile(rf"(?:^|(?<= )){_WORD}[{CAPITAL}{CAPITALS}]")
OF_WORD = re.compile(rf"[^\W_]|[{COMBINING}{CAPITAL}{CAPITALS}]")  # a character that a marked word is made of
_SHOUTED = re.compile(r"[^\W\d_]{2,}")
OFTEN = 10  # times that a word must occur in a form that gets a token of its own


def mark(text: str) -> str:
    """The text in lower case, with marks behind its words."""
    return _TYPED.sub(lambda match: _mark_word(match.group()), text)


def restore(text: str) -> str:
    """The text that was marked; marks that stand where none can be, as a model may put them, are left out."""
    return _MARKED.sub(_restored, text)


def is_shouted(text: str) -> bool:
    """Whether a whole text is in capitals: two words or more, no small letter, and none without case: Chinese with an
    acronym is not."""
    if text.upper() != text or text == text.lower():
        return False
    return len(_SHOUTED.findall(text)) >= 2 and not any(map(_is_caseless, text))


def _is_caseless(letter: str) -> bool:
    """Whether its script has no large and small letters, as Chinese and Arabic; ª and º stand among Latin ones."""
    return unicodedata.category(letter) == "Lo" and letter not in "ªº"


def frequent_words(texts: Iterable[str], most: int) -> list[str]:
    """The most frequent words of marked texts that have a mark, with it."""
    counts = Counter(word for text in texts for word in _WITH_MARK.findall(text))
    often = sorted((word for word, count in counts.items() if count >= OFTEN), key=lambda word: (-counts[word], word))
    return often[:most]


@lru_cache(100_000)  # most words of a text have been there before
def _mark_word(word: str) -> str:
    if word in CASE_MARKS:
        return QUOTED + word
    lower = word.lower()
    if lower == word or not re.fullmatch(_WORD, lower) or not unicodedata.is_normalized("NFC", lower):
        return word
    return next((lower + sign for sign in (CAPITAL, CAPITALS) if _with_case(lower, sign) == word), word)


def _restored(match: re.Match[str]) -> str:
    typed, word, sign = match.groups()
    return typed or (_with_case(word, sign) if word else "")


def _with_case(word: str, sign: str) -> str:
    if sign == CAPITAL:
        return word[0].title() + word[1:]  # of ǆ it is ǅ, not Ǆ
    return word.upper() if sign == CAPITALS else word
