"""Scripts by their letters, which of them a text is in, and what the characters of a word are in all of them.

Python's `\\w` knows letters and digits, but not the marks that many scripts write them with: in नमस्ते it sees three
pieces. `WORD` does.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache

import numpy as np

SCRIPTS = {  # ranges of letters, as regular expressions have them
    "Latin": "A-Za-z\u00aa-\u00aa\u00b5-\u00b5\u00ba-\u00ba\u00c0-\u024f\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Cyrillic": "\u0400-\u052f",
    "Armenian": "\u0530-\u058f",
    "Hebrew": "\u0590-\u05ff",
    "Arabic": "\u0600-\u06ff\u0750-\u077f",
    "Devanagari": "\u0900-\u0963\u0966-\u097f",  # what is left out, the danda, ends sentences of others too
    "Bengali": "\u0980-\u09ff",
    "Gurmukhi": "\u0a00-\u0a7f",
    "Gujarati": "\u0a80-\u0aff",
    "Odia": "\u0b00-\u0b7f",
    "Tamil": "\u0b80-\u0bff",
    "Telugu": "\u0c00-\u0c7f",
    "Kannada": "\u0c80-\u0cff",
    "Malayalam": "\u0d00-\u0d7f",
    "Sinhala": "\u0d80-\u0dff",
    "Tibetan": "\u0f00-\u0fff",
    "Ethiopic": "\u1200-\u139f",
    "Mongolian": "\u1800-\u18af",
    "Georgian": "\u10a0-\u10ff",
    "Hangul": "\uac00-\ud7af\u1100-\u11ff\u3130-\u318f",
    "Thai": "\u0e00-\u0e7f",
    "Lao": "\u0e80-\u0eff",
    "Burmese": "\u1000-\u109f",
    "Khmer": "\u1780-\u17ff",
    "Japanese": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Chinese": "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
}
UNSPACED_SCRIPTS = ("Thai", "Lao", "Burmese", "Khmer", "Tibetan", "Japanese", "Chinese")
EAST_ASIAN = r"\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"  # Chinese and Japanese, with their punctuation
UNSPACED = EAST_ASIAN + "".join(SCRIPTS[name] for name in UNSPACED_SCRIPTS)  # between whose words no spaces stand
WITH_MARKS = (  # code points among which there are combining marks: all but the large blocks of letters alone
    *((0x300, 0x3100), (0xA600, 0xAC00), (0xFB00, 0xFE30), (0x10100, 0x12000), (0x13430, 0x13460)),
    *((0x16A00, 0x17000), (0x1BC00, 0x1BD00), (0x1CF00, 0x1D300), (0x1DA00, 0x1EA00), (0xE0100, 0xE01F0)),
)
NAMES = ("", *SCRIPTS, "another script")  # of what is no letter, first; trust.safetensors counts in this order
BEYOND = 0x40000  # code points from there on are no letters


def _combining_marks() -> str:
    """Accents, vowel signs and the like, which stand with the letter before them, as ranges of a regular expression."""
    codes = itertools.chain.from_iterable(itertools.starmap(range, WITH_MARKS))
    marks = [code for code in codes if unicodedata.category(chr(code)).startswith("M")]
    begins = [code for code, before in zip(marks, [0, *marks], strict=False) if code != before + 1]
    ends = [code for code, behind in zip(marks, [*marks[1:], 0], strict=True) if code != behind - 1]
    return "".join(f"{chr(begin)}-{chr(end)}" for begin, end in zip(begins, ends, strict=True))


COMBINING = _combining_marks()
WORD = rf"\w{COMBINING}"  # the characters of a word: letters, digits, the underscore, and marks
SPACED = rf"(?![{UNSPACED}])[{WORD}]"  # one of a script that puts spaces between words
_UNSPACED = re.compile(f"[{UNSPACED}]")


def is_unspaced(text: str) -> bool:
    """Whether a text has characters of a script that puts no spaces between words."""
    return _UNSPACED.search(text) is not None


def script_ids(text: str) -> np.ndarray:
    """The number of the script of each character."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _table()[np.minimum(codes, BEYOND)]


@cache
def _table() -> np.ndarray:
    """The same of each code point."""
    table = np.array([(len(NAMES) - 1) * chr(code).isalpha() for code in range(BEYOND + 1)], np.uint8)
    for number, ranges in enumerate(SCRIPTS.values(), 1):
        for first, _, last in zip(*[iter(ranges)] * 3, strict=True):
            table[ord(first) : ord(last) + 1] = number
    return table


def script_of(text: str) -> str:
    """The script that most of its letters are of. Japanese is written with Chinese letters too: some kana tell."""
    counts = dict(zip(NAMES[1:], np.bincount(script_ids(text), minlength=len(NAMES))[1:].tolist(), strict=True))
    if counts["Japanese"] > 0.1 * counts["Chinese"]:
        counts["Japanese"] += counts["Chinese"]
    most = max(counts, key=counts.__getitem__)
    return most if counts[most] else ""
