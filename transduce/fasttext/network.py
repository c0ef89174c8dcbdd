"""The two matrices of a model, and what a word or a line is in them.

    E  (V + B, D)  input rows: V words, then the B n-gram buckets that the training text has used
    U  (O, D)      output rows: of words, of labels, or of the nodes of a tree

fastText keeps a row for each of two million buckets, used or not; here the others are 0 and take no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transduce.fasttext.dictionary import Dictionary, encoded, laid_out
from transduce.fasttext.huffman import NO_TREE, Tree, huffman
from transduce.fasttext.kernels.hashing import hash_words, ngram_table
from transduce.fasttext.kernels.learning import HS, NS, OVA, SOFTMAX, In, Out, gather, line_rows
from transduce.fasttext.ngrams import END_OF_LINE
from transduce.fasttext.plain import probabilities
from transduce.settings.sections import VectorSettings

LOSSES = {"ns": NS, "hs": HS, "softmax": SOFTMAX, "ova": OVA}
TABLE = 1_000_000  # rows of the table that negatives are drawn from
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Network:
    """A model, trained or not."""

    settings: VectorSettings
    dictionary: Dictionary
    E: Floats
    U: Floats
    buckets: NDArray[np.int32]  # the bucket of each row of E behind the words

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each thing that is predicted stands in the text."""
        d = self.dictionary
        return d.label_counts if self.settings.objective == "labels" else d.counts

    @cached_property
    def bucket_rows(self) -> NDArray[np.int32]:
        """The row of each bucket; -1: it has none."""
        rows = np.full(max(1, self.settings.buckets), -1, np.int32)
        rows[self.buckets] = len(self.dictionary.words) + np.arange(len(self.buckets), dtype=np.int32)
        return rows

    @cached_property
    def inputs(self) -> In:
        """The rows of every word of the dictionary, as kernels want them; rare ones have only n-grams."""
        starts, rows = _word_rows(self.dictionary.words, self.settings, self.bucket_rows)
        if rare := self.dictionary.rare:
            offsets, buckets = word_buckets(rare, self.settings)
            starts, rows = np.append(starts, starts[-1] + offsets[1:]), np.append(rows, self.bucket_rows[buckets])
        return In(self.E, starts, rows)

    @cached_property
    def tree(self) -> Tree:
        return huffman(self.counts) if self.settings.loss == "hs" else NO_TREE

    @cached_property
    def out(self) -> Out:
        s = self.settings
        table = negative_table(self.counts, s.power) if s.loss == "ns" else np.zeros(1, np.int32)
        return Out(LOSSES[s.loss], self.U, s.negatives, table, *self.tree, own=self.U[:0])

    def rows_of_word(self, word: str) -> NDArray[np.int32]:
        """Its own row, if it has one, and those of its n-grams; -1 for n-grams that training has not seen."""
        known = self.dictionary.ids.get(word)
        if known is not None:
            _, starts, rows = self.inputs
            return rows[starts[known] : starts[known + 1]]
        return _word_rows([word], self.settings, self.bucket_rows)[1][1:]

    def vector(self, word: str) -> Floats:
        """The mean of its rows: also of words that nobody has seen, if n-grams are used; else 0."""
        return self.hidden(self.rows_of_word(word))

    def rows_of_line(self, line: str) -> NDArray[np.int32]:
        """The rows that speak for a line, as in training."""
        words = [*self.dictionary.cut(line), END_OF_LINE]
        rows = [self.rows_of_word(word) for word in words if word in self.dictionary.ids or self.settings.longest]
        if self.settings.word_ngrams > 1:
            rows.append(self.rows_of_ngrams(words))
        return np.concatenate(rows) if rows else np.zeros(0, np.int32)

    def rows_of_ngrams(self, words: Sequence[str]) -> NDArray[np.int32]:
        """The rows of sequences of words."""
        hashes = hash_words(*laid_out([encoded(word) for word in words]))
        found = np.empty(len(words) * self.settings.word_ngrams, np.int32)
        nobody = np.full(len(words), -1, np.int32)
        given = (nobody, hashes, 0, len(words), self.inputs, self.settings.word_ngrams, self.bucket_rows, found)
        return found[: line_rows(*given)]

    def hidden(self, rows: NDArray[np.int32]) -> Floats:
        """The mean of some rows."""
        if self.settings.unseen == "skipped":
            rows = rows[rows >= 0]
        h = np.zeros(self.E.shape[1], np.float32)
        gather(self.E, rows, len(rows), h)
        return h

    def probabilities(self, rows: NDArray[np.int32]) -> Floats:
        """How probable each label is, for a line of these rows."""
        return probabilities(self.hidden(rows), self.U, self.settings.loss, self.tree)


def _word_rows(
    words: Sequence[str], s: VectorSettings, bucket_rows: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(starts, rows): each word's own row, which is its number, then those of its n-grams."""
    if not s.longest:
        return np.arange(len(words) + 1, dtype=np.int64), np.arange(len(words), dtype=np.int32)
    offsets, buckets = word_buckets(words, s)
    starts = offsets + np.arange(len(words) + 1)  # one more for each: its own
    rows = np.empty(starts[-1], np.int32)
    own = np.zeros(len(rows), np.bool_)
    own[starts[:-1]] = True
    rows[own], rows[~own] = np.arange(len(words), dtype=np.int32), bucket_rows[buckets]
    return starts, rows


def word_buckets(words: Sequence[str], s: VectorSettings) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The buckets of every word's n-grams; the end of a line has none."""
    if not s.longest:
        return np.zeros(len(words) + 1, np.int64), np.zeros(0, np.int32)
    marked = [b"" if word == END_OF_LINE else b"<" + encoded(word) + b">" for word in words]
    return ngram_table(*laid_out(marked), s.shortest, s.longest, s.buckets)


def negative_table(counts: NDArray[np.int64], power: float) -> NDArray[np.int32]:
    """Rows, each as often as its count to this power has it, at least once."""
    weight = counts.astype(np.float64) ** power
    times = np.maximum(1, np.round(weight / weight.sum() * TABLE)).astype(np.int64)
    return np.repeat(np.arange(len(counts), dtype=np.int32), times)


def of_table(words: Sequence[str], vectors: Floats) -> Network:
    """Vectors from elsewhere as a model: words only, which predicts nothing."""
    counts = np.arange(len(words), 0, -1, dtype=np.int64)  # such files have the most frequent words first
    dictionary = Dictionary(words, counts, [], np.zeros(0, np.int64), int(counts.sum()))
    settings = VectorSettings(dimension=vectors.shape[1], longest=0)
    nothing = np.zeros((0, vectors.shape[1]), np.float32)
    return Network(settings, dictionary, vectors, nothing, np.zeros(0, np.int32))


def new_network(settings: VectorSettings, dictionary: Dictionary, seen: NDArray[np.bool_]) -> Network:
    """Small random input rows, output rows of 0; `seen`: the buckets that the text has."""
    D = settings.dimension
    targets = dictionary.labels if settings.objective == "labels" else dictionary.words
    outputs = max(1, len(targets) - 1) if settings.loss == "hs" else len(targets)
    used = np.flatnonzero(seen).astype(np.int32)
    draw = np.random.default_rng(settings.seed)
    E = draw.random((len(dictionary.words) + len(used), D), dtype=np.float32)
    E -= np.float32(0.5)
    E *= np.float32(2 / D)
    return Network(settings, dictionary, E, np.zeros((outputs, D), np.float32), used)
