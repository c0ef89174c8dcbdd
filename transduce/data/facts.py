"""What a recipe needs to know of a text: how much there is, in which scripts, and how its two sides go together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transduce.data.corpus import Pair

ENOUGH = 20_000  # pairs that are looked at
A_WORD = 1.6  # characters, where words are not set apart by spaces
SCRIPTS = {
    "Latin": "A-Za-z\u00c0-\u024f\u1e00-\u1eff",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Cyrillic": "\u0400-\u052f",
    "Armenian": "\u0530-\u058f",
    "Hebrew": "\u0590-\u05ff",
    "Arabic": "\u0600-\u06ff\u0750-\u077f",
    "Devanagari": "\u0900-\u097f",
    "Georgian": "\u10a0-\u10ff",
    "Hangul": "\uac00-\ud7af\u1100-\u11ff",
    "Thai": "\u0e00-\u0e7f",
    "Lao": "\u0e80-\u0eff",
    "Burmese": "\u1000-\u109f",
    "Khmer": "\u1780-\u17ff",
    "Japanese": "\u3040-\u30ff",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
}
UNSPACED = {"Thai", "Lao", "Burmese", "Khmer", "Japanese", "Chinese"}
_LETTERS = {name: re.compile(f"[{letters}]") for name, letters in SCRIPTS.items()}


class Side(NamedTuple):
    """One language of a text."""

    script: str  # of most of its letters; "": it has none
    words: float  # in all of the text, estimated
    characters: int  # different ones that were seen

    @property
    def is_unspaced(self) -> bool:
        return self.script in UNSPACED


class Facts(NamedTuple):
    """What a look at some of its pairs tells of a whole text."""

    pairs: int
    source: Side
    target: Side
    distinct: float  # share of the pairs looked at that are not the same as another
    correlation: float  # of the lengths of both sides: near 1 where lines belong together


def facts(sample: Sequence[Pair], pairs: int) -> Facts:
    """From pairs evenly taken out of all `pairs`."""
    some = sample[:: -(-len(sample) // ENOUGH)]
    source, target = (_side(lines, pairs) for lines in ([pair.source for pair in some], [pair.target for pair in some]))
    distinct = len({(pair.source, pair.target) for pair in some}) / len(some)
    return Facts(pairs, source, target, distinct, _correlation(some))


def script_of(text: str) -> str:
    """The script that most of its letters are of. Japanese is written with Chinese letters too: some kana tell."""
    counts = {name: len(letters.findall(text)) for name, letters in _LETTERS.items()}
    if counts["Japanese"] > 0.1 * counts["Chinese"]:
        counts["Japanese"] += counts["Chinese"]
    most = max(counts, key=counts.__getitem__)
    return most if counts[most] else ""


def _side(lines: Sequence[str], pairs: int) -> Side:
    text = "\n".join(lines)
    script = script_of(text)
    words = len(text.replace("\n", "")) / A_WORD if script in UNSPACED else len(text.split())
    return Side(script, words * pairs / len(lines), len(set(text)))


def _correlation(pairs: Sequence[Pair]) -> float:
    lengths = np.log1p([[len(pair.source), len(pair.target)] for pair in pairs]).T
    if len(pairs) < 3 or not lengths.std(1).all():
        return 1.0
    return float(np.corrcoef(lengths)[0, 1])
