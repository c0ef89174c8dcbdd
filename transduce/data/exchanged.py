"""Pairs with a side in the other side's language: exchanged sides, or a line that was never translated.

No language has to be known. A word that the source side has more often than the target side is a source word, the more
so the more often; a line whose words are in the mean those of the other side stands on the wrong side. Of sides with
the same words (a text and its correction, say) nothing can be told, and nothing is said.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np

from transduce.data.corpus import Pair
from transduce.data.raw import Raw
from transduce.text.scripts import is_unspaced

COUNTED = 200_000  # pairs from which words are counted
CLEAR = 0.5  # of a mean log ratio: on German and English 98 % of 5 % exchanged pairs, and of 30,000 right ones 3


def words(text: str) -> list[str]:
    """Where a script puts no spaces between them, its characters."""
    return [c for c in text if not c.isspace()] if is_unspaced(text) else text.split()


def in_other_language(text: Raw) -> np.ndarray:
    """For each pair, whether one of its sides is in the other's language."""
    counts = Counter[str](), Counter[str]()
    for pair in itertools.islice(text, COUNTED):
        for counted, side in zip(counts, _sides(pair), strict=True):
            counted.update(side)
    source, target = counts
    share = target.total() / max(1, source.total())  # one language may take more words
    side_of = {
        word: math.log((source[word] * share + 1) / (target[word] + 1)) for word in source.keys() | target.keys()
    }
    return np.fromiter((_is_in_other(*_sides(pair), side_of) for pair in text), bool)


def _sides(pair: Pair) -> tuple[list[str], list[str]]:
    return words(pair.source.lower()), words(pair.target.lower())


def _is_in_other(source: list[str], target: list[str], side_of: dict[str, float]) -> bool:
    return _mean(source, side_of) < -CLEAR or _mean(target, side_of) > CLEAR


def _mean(line: list[str], side_of: dict[str, float]) -> float:
    return sum(side_of.get(word, 0.0) for word in line) / max(1, len(line))
