"""A lexicon learned from parallel text: how probable a target token is as the translation of a source token.

IBM Model 1 (Brown et al. 1993), found by expectation maximisation: every target token of a pair comes from one of its
source tokens, and which one is weighed by what all pairs say together. With a `diagonal`, source tokens at about the
same place of the sentence count more (as in fast_align; Dyer et al. 2013).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from transduce.data.drawn import drawn

ROUNDS = 4  # of expectation maximisation
Ids = Sequence[int] | np.ndarray


class Lexicon(NamedTuple):
    """Pairs of tokens that have stood in one pair of sentences; a pair is the number source x size + target."""

    size: int  # of the target's vocabulary
    pairs: np.ndarray  # ascending
    counts: np.ndarray  # how often the second came from the first, as expected
    written: np.ndarray  # (size,) how often each target token is in the text

    @property
    def probability(self) -> np.ndarray:
        """How probable the second is, given the first."""
        source = self.pairs // self.size
        return self.counts / np.bincount(source, self.counts)[source]


class Cells(NamedTuple):
    """Every source token beside every target token of its pair, one behind the other."""

    source: np.ndarray
    target: np.ndarray
    place: np.ndarray  # of the target token in all the text
    distance: np.ndarray  # from the diagonal of the pair, as a share of the sentence


def learn_lexicon(pairs: Iterable[tuple[Ids, Ids]], size: int, most: int, diagonal: float = 0.0) -> Lexicon:
    """From encoded pairs, as many as have `most` cells together: of more text some are drawn."""
    cells = _cells(_thinned(pairs, most))
    known, cell = np.unique(cells.source * size + cells.target, return_inverse=True)
    near = np.exp(-diagonal * cells.distance)
    source, probability = known // size, np.ones(len(known))
    count = np.zeros(len(known))
    for _ in range(ROUNDS):
        weight = probability[cell] * near
        weight /= np.bincount(cells.place, weight)[cells.place]  # where a target token comes from, in its sentence
        count = np.bincount(cell, weight, len(known)).astype(float)
        probability = count / np.bincount(source, count)[source]
    written = np.bincount(cells.target[np.unique(cells.place, return_index=True)[1]], minlength=size)
    return Lexicon(size, known, count, written)


def _thinned(pairs: Iterable[tuple[Ids, Ids]], most: int) -> list[tuple[np.ndarray, np.ndarray]]:
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    cells, share, draw = 0, 1.0, Random(1)
    for source, target in pairs:
        if draw.random() < share and len(source) and len(target):
            kept.append((np.asarray(source, np.int64), np.asarray(target, np.int64)))
            cells += len(source) * len(target)
        while cells > most and len(kept) > 1:
            kept, share = list(drawn(kept, len(kept) // 2)), share / 2
            cells = sum(len(s) * len(t) for s, t in kept)
    return kept


def _cells(pairs: list[tuple[np.ndarray, np.ndarray]]) -> Cells:
    nothing = np.zeros(0, np.int64)
    sources, targets = (np.concatenate([nothing, *(pair[side] for pair in pairs)]) for side in (0, 1))
    read, written = (np.array([len(pair[side]) for pair in pairs], np.int64) for side in (0, 1))
    pair = np.repeat(np.arange(len(pairs)), written)  # of each target token
    place = np.repeat(np.arange(len(targets)), read[pair])  # the target token of each cell
    first = read[pair].cumsum() - read[pair]  # cell of each target token
    column = np.arange(len(place)) - first[place]  # the source token of each cell, within its sentence
    row = np.arange(len(targets)) - (written.cumsum() - written)[pair]  # and each target token within its own
    begin = (read.cumsum() - read)[pair]
    share = ((row + 0.5) / written[pair])[place]
    return Cells(
        source=sources[begin[place] + column],
        target=targets[place],
        place=place,
        distance=np.abs(share - (column + 0.5) / read[pair][place]),
    )
