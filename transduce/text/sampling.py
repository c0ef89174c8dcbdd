"""Subword sampling: a random segmentation of a word in place of the usual one, drawn anew each time.

SentencePiece can draw too, but (as of 0.2.2) mixes into every seed a number of its own that changes from process to
process, so that no run could be repeated. Both ways of drawing are short enough to stand here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

from transduce.core.special import SPECIAL
from transduce.text.languages import is_typed_mark


class Sampler:
    """Draws segmentations with the pieces of a SentencePiece model, BPE or unigram."""

    def __init__(self, processor: Any) -> None:
        p, size = processor, processor.get_piece_size()
        self._processor = p
        pieces = (i for i in range(len(SPECIAL), size) if not (p.is_byte(i) or p.is_unused(i)))  # those that spell text
        self._ids = {p.id_to_piece(i): i for i in pieces}
        self._scores = {piece: p.get_score(i) for piece, i in self._ids.items()}
        self._longest = max(map(len, self._ids))
        self._characters = {piece for piece in self._ids if len(piece) == 1}
        # the scores of BPE count down by one from piece to piece; those of a unigram model are log probabilities
        self._is_bpe = p.get_score(size - 2) - p.get_score(size - 1) == 1

    def draw(self, word: str, amount: float, random: Random) -> list[int]:
        """A segmentation of a word with `▁` before it; the mark of a language is no word, and never cut."""
        if word in self._ids and is_typed_mark(word):
            return [self._ids[word]]
        if not self._characters.issuperset(word):  # what the vocabulary cannot spell is cut as always
            return self._processor.encode(word[1:])
        if self._is_bpe:
            pieces = drop_merges(word, self._ids, amount, random)
        else:
            pieces = draw_pieces(word, self._scores, self._longest, amount, random)
        return [self._ids[piece] for piece in pieces]


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
