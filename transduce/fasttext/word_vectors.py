"""Loaded word vectors: what is near, what is to what as what, and how well that agrees with people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.errors import ArgumentError, DataError, did_you_mean
from transduce.fasttext import folder
from transduce.fasttext.bin_file import is_fasttext_file, read_fasttext
from transduce.fasttext.network import Network
from transduce.fasttext.text_files import Table, read_table
from transduce.settings.config_file import is_fasttext

Floats = NDArray[np.float32]


class Neighbour(NamedTuple):
    word: str
    similarity: float  # cosine


class WordVectors:
    """Words with a vector each; where n-grams were trained, any word has one.

    vectors = transduce.vectors("runs/words")
    vectors["kitchen"]                        # a NumPy array
    vectors.nearest("kitchen")
    vectors.analogies("paris", "france", "rome")   # france - paris + rome
    """

    def __init__(self, words: Sequence[str], vectors: Floats, network: Network | None = None) -> None:
        self.words, self.vectors, self.network = words, vectors, network
        self._ids = {word: number for number, word in enumerate(words)}

    def __repr__(self) -> str:
        any_word = ", and n-grams for others" if self.spells else ""
        return f"<transduce word vectors: {len(self.words):,} words of {self.dimension} numbers{any_word}>"

    @property
    def dimension(self) -> int:
        return self.vectors.shape[1]

    @property
    def spells(self) -> bool:
        """Whether a word that is not in the list has a vector too, by its n-grams."""
        return self.network is not None and self.network.settings.longest > 0

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self._number(word) is not None

    def _number(self, word: str) -> int | None:
        """Among subwords that have marks for spaces, a word is the one with a space before it."""
        number = self._ids.get(word)
        return self._ids.get(f"▁{word}") if number is None else number

    def __getitem__(self, word: str) -> Floats:
        """The vector of a word; an error, if it is not known and cannot be spelled."""
        if not isinstance(word, str):
            raise ArgumentError(f"a word is text, not {type(word).__name__}")
        number = self._number(word)
        if number is not None:
            return self.vectors[number]
        if self.spells and self.network is not None:
            return self.network.vector(word)
        raise DataError(f"there is no vector for {word[:60]!r}{did_you_mean(word, self.words[:20_000])}")

    @cached_property
    def directions(self) -> Floats:
        """All vectors with length 1, so that a product of matrices compares one with all."""
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        return self.vectors / np.maximum(lengths, 1e-12)

    def nearest(self, word: str | Floats, count: int = 10) -> list[Neighbour]:
        """The words whose vectors point most nearly the same way; of a word, without itself."""
        vector = self[word] if isinstance(word, str) else np.asarray(word, np.float32)
        if isinstance(word, str) and not vector.any():
            raise DataError(f"there is no vector for {word!r}: no part of it is known")
        return self._best(vector, count, {word} if isinstance(word, str) else set())

    def analogies(self, a: str, b: str, c: str, count: int = 10) -> list[Neighbour]:
        """What is to c as b is to a: near b - a + c, each with length 1."""
        directions = [_direction(self[word]) for word in (a, b, c)]
        return self._best(directions[1] - directions[0] + directions[2], count, {a, b, c})

    def similarity(self, a: str, b: str) -> float:
        """The cosine of the angle between two words."""
        return float(_direction(self[a]) @ _direction(self[b]))

    def _best(self, vector: Floats, count: int, without: set[str]) -> list[Neighbour]:
        if count < 1:
            raise ArgumentError(f"count must be 1 or more, not {count}")
        scores = self.directions @ _direction(vector)
        for word in without:
            if (number := self._number(word)) is not None:
                scores[number] = -2
        some = min(count, len(scores))
        best = np.argpartition(-scores, some - 1)[:some]
        best = best[np.argsort(-scores[best], kind="stable")]
        return [Neighbour(self.words[i], float(scores[i])) for i in best if scores[i] > -2]


def _direction(vector: Floats) -> Floats:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def of_network(network: Network) -> WordVectors:
    """The vectors of a trained model: every word with its n-grams."""
    d = network.dictionary
    vectors = np.empty((len(d.words), network.settings.dimension), np.float32)
    for number, word in enumerate(d.words):
        vectors[number] = network.vector(word)
    return WordVectors(d.words, vectors, network)


def load_vectors(path: str | Path) -> WordVectors:
    """From a model folder, fastText's .bin or .ftz, .vec, word2vec or GloVe."""
    path = Path(path)
    if path.is_dir():
        if not is_fasttext(path):
            raise DataError(f"{path} holds no word vectors; train some with: transduce vectors train")
        return of_network(folder.load(path)[0])
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    if is_fasttext_file(path):
        return of_network(read_fasttext(path))
    table: Table = read_table(path)
    return WordVectors(table.words, table.vectors)
