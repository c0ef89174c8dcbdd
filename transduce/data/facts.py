"""What a recipe needs to know of a text: how much there is, in which scripts, and how its two sides go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transduce.data.corpus import Pair
from transduce.data.drawn import drawn
from transduce.text.scripts import UNSPACED_SCRIPTS, script_of

ENOUGH = 20_000  # pairs that are looked at
A_WORD = 1.6  # characters, where words are not set apart by spaces


class Side(NamedTuple):
    """One language of a text."""

    script: str  # of most of its letters; "": it has none
    words: float  # in all of the text, estimated
    characters: int  # different ones that were seen

    @property
    def is_unspaced(self) -> bool:
        return self.script in UNSPACED_SCRIPTS


class Facts(NamedTuple):
    """What a look at some of its pairs tells of a whole text."""

    pairs: int
    source: Side
    target: Side
    distinct: float  # share of the pairs looked at that are not the same as another
    correlation: float  # of the lengths of both sides: near 1 where lines belong together


def facts(sample: Sequence[Pair], pairs: int) -> Facts:
    """From pairs drawn from all `pairs`."""
    some = drawn(sample, ENOUGH)
    source, target = (_side(lines, pairs) for lines in ([pair.source for pair in some], [pair.target for pair in some]))
    distinct = len({(pair.source, pair.target) for pair in some}) / len(some)
    return Facts(pairs, source, target, distinct, _correlation(some))


def _side(lines: Sequence[str], pairs: int) -> Side:
    text = "\n".join(lines)
    script = script_of(text)
    words = len(text.replace("\n", "")) / A_WORD if script in UNSPACED_SCRIPTS else len(text.split())
    return Side(script, words * pairs / len(lines), len(set(text)))


def _correlation(pairs: Sequence[Pair]) -> float:
    lengths = np.log1p([[len(pair.source), len(pair.target)] for pair in pairs]).T
    if len(pairs) < 3 or not lengths.std(1).all():
        return 1.0
    return float(np.corrcoef(lengths)[0, 1])
