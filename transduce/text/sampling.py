"""Subword sampling: a random segmentation of a word in place of the usual one, drawn anew each time.

SentencePiece can draw too, but (as of 0.2.2) mixes into every seed a number of its own that changes from process to
process, so that no run could be repeated. Both ways of drawing are short enough to stand here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random


def drop_merges(word: str, ids: Mapping[str, int], rate: float, random: Random) -> list[str]:
    """BPE dropout (Provilkov et al., 2020): merges are made in the order they were learned, but at every turn each is
    passed over with probability `rate`. Pieces were learned in the order of their ids."""
    pieces = list(word)
    while len(pieces) > 1:
        merges = [
            (ids[joined], place)
            for place in range(len(pieces) - 1)
            if (joined := pieces[place] + pieces[place + 1]) in ids and random.random() >= rate
        ]
        if not merges:
            break
        place = min(merges)[1]
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    return pieces


def draw_pieces(word: str, scores: Mapping[str, float], longest: int, alpha: float, random: Random) -> list[str]:
    """Unigram sampling (Kudo, 2018): a segmentation x of all with probability ~ p(x) ** alpha.

    `total[i]` is log Σ p(x) ** alpha over the segmentations of word[:i]; then the last piece is drawn, the one before
    it, and so on to the front. No piece has more than `longest` characters.
    """
    total = [0.0]
    ways: list[list[tuple[float, int]]] = [[]]  # of word[:i]: log weight of all that end with the piece word[begin:i]
    for end in range(1, len(word) + 1):
        begins = range(max(0, end - longest), end)
        here = [(total[b] + alpha * scores[word[b:end]], b) for b in begins if word[b:end] in scores]
        highest = max(weight for weight, _ in here)
        total.append(highest + math.log(sum(math.exp(weight - highest) for weight, _ in here)))
        ways.append(here)
    pieces: list[str] = []
    end = len(word)
    while end > 0:
        weights = [math.exp(weight - total[end]) for weight, _ in ways[end]]
        begin = random.choices(ways[end], weights)[0][1]
        pieces.append(word[begin:end])
        end = begin
    return pieces[::-1]
