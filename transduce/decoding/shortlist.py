"""A shortlist: the target tokens that a source token may become, learned from parallel text.

A sentence is then written with the partners of its own tokens and with what is frequent everywhere, a few hundred
tokens instead of the whole vocabulary, which saves most of the last product on a CPU. What it leaves out cannot be
written: so it is a choice, and off by default.

Partners are the most probable translations by a lexicon of the text (data/lexicon.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transduce.core.special import SPECIAL
from transduce.data.lexicon import learn_lexicon
from transduce.errors import DataError
from transduce.text.tokenizers import Tokenizer, Tokenizers

MOST_CELLS = 20_000_000  # of text that it is learned from: source token beside target token


class Shortlist(NamedTuple):
    """In pieces, as a file holds it: a line a source token with its partners, best first; the first line, which names
    none, has what is frequent."""

    frequent: tuple[str, ...]
    partners: dict[str, tuple[str, ...]]

    def lines(self) -> Iterator[str]:
        yield "\t".join(["", *self.frequent])
        for source, targets in self.partners.items():
            yield "\t".join([source, *targets])

    @staticmethod
    def from_lines(lines: Iterable[str], name: str) -> Shortlist:
        rows = [line.split("\t") for line in lines]
        if not rows or rows[0][0] != "" or len(rows[0]) < 2:
            raise DataError(f"{name} is no shortlist; make one by: transduce shortlist")
        return Shortlist(tuple(rows[0][1:]), {row[0]: tuple(row[1:]) for row in rows[1:]})


class ShortlistIds:
    """A shortlist in the ids of a model's vocabularies."""

    def __init__(self, shortlist: Shortlist, source_side: Tokenizer, target_side: Tokenizer) -> None:
        source, target = (_ids(side.pieces(range(side.size))) for side in (source_side, target_side))
        always = [*range(len(SPECIAL)), *(target[piece] for piece in shortlist.frequent if piece in target)]
        self._always = np.array(always, np.int64)
        self._partners = {
            source[piece]: np.array([target[other] for other in others if other in target], np.int64)
            for piece, others in shortlist.partners.items()
            if piece in source
        }
        if not self._partners or len(always) == len(SPECIAL):
            raise DataError("the shortlist was made for another vocabulary; make one by: transduce shortlist")

    def of(self, source: Sequence[int]) -> np.ndarray:
        """What a sentence may be written with, ascending; the special tokens, the first of all, among it."""
        return np.unique(np.concatenate([self._always, *(self._partners.get(token, self._always) for token in source)]))


def _ids(pieces: Sequence[str]) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(pieces)}


def learn(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]], tokenizers: Tokenizers, partners: int, frequent: int
) -> Shortlist:
    """From encoded pairs."""
    lexicon = learn_lexicon(pairs, tokenizers.target.size, MOST_CELLS)
    if not len(lexicon.pairs):
        raise DataError("there is nothing to learn a shortlist from: no pair has text on both sides")
    source, target, written = *divmod(lexicon.pairs, lexicon.size), lexicon.written
    names = [side.pieces(range(side.size)) for side in (tokenizers.source, tokenizers.target)]
    often = [token for token in np.argsort(-written, kind="stable")[:frequent].tolist() if written[token]]
    best: dict[str, tuple[str, ...]] = {}
    order = np.lexsort((-lexicon.counts, source))  # by source token, best first
    ids, first = np.unique(source[order], return_index=True)
    for token, some in zip(ids.tolist(), np.split(order, first[1:]), strict=True):
        best[names[0][token]] = tuple(names[1][t] for t in target[some[:partners]].tolist())
    return Shortlist(tuple(names[1][token] for token in often), best)
