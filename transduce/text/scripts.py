"""Scripts by their letters, and which of them a text is in."""

from __future__ import annotations

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
UNSPACED = {"Thai", "Lao", "Burmese", "Khmer", "Tibetan", "Japanese", "Chinese"}
NAMES = ("", *SCRIPTS, "another script")  # of what is no letter, first; trust.safetensors counts in this order
BEYOND = 0x40000  # code points from there on are no letters


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
