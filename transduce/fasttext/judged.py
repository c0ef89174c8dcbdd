"""How well vectors agree with people: similarity of pairs of words, and analogies."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.lines import read_lines
from transduce.errors import DataError
from transduce.fasttext.word_vectors import WordVectors


class Agreement(NamedTuple):
    """How far similarities agree with what people said of them."""

    correlation: float  # Spearman's: of the ranks
    pairs: int
    known: int  # pairs of which both words have a vector
    listed: int  # pairs of which both are words of the list, not only spelled


class Answers(NamedTuple):
    """To questions such as "athens is to greece as baghdad is to?"."""

    right: int
    asked: int  # questions whose four words are all in the list
    questions: int


def similarities(vectors: WordVectors, path: Path) -> Agreement:
    """Spearman's correlation on a file of "word word number"; a pair without vectors counts as not similar at all."""
    ours, theirs, known, listed = [], [], 0, 0
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith("#") or not line.strip():
            continue
        a, b, said = _pair(line, f"{path}, line {number}")
        a, b = as_listed(a, vectors), as_listed(b, vectors)
        is_known = all(word in vectors or vectors.spells for word in (a, b))
        known += is_known
        listed += a in vectors and b in vectors
        ours.append(vectors.similarity(a, b) if is_known else 0.0)
        theirs.append(said)
    if len(ours) < 3:
        raise DataError(f"{path} has {len(ours)} pairs of words; at least three are needed")
    return Agreement(spearman(np.array(ours), np.array(theirs)), len(ours), known, listed)


def _pair(line: str, where: str) -> tuple[str, str, float]:
    parts = line.split()
    try:
        return parts[0], parts[1], float(parts[2])
    except (IndexError, ValueError) as error:
        raise DataError(f"{where}: expected two words and a number") from error


def as_listed(word: str, words: Container[str]) -> str:
    """A word as it is; where the list has it only in small letters, or with a capital, then so."""
    return next((form for form in (word, word.lower(), word.capitalize()) if form in words), word)


def spearman(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """The correlation of the ranks; equal numbers share the mean of theirs."""
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[where]


def analogies(vectors: WordVectors, path: Path, words: int = 30_000) -> Answers:
    """Questions of a file "a b c d", d to be found among so many of the most frequent words (as word2vec does)."""
    questions = [line.split() for line in read_lines(path) if line.strip() and not line.startswith(":")]
    if any(len(one) != 4 for one in questions):
        raise DataError(f"{path}: expected four words a line, and headings with a colon")
    ids = {word: number for number, word in enumerate(vectors.words[:words])}
    listed = [[as_listed(word, ids) for word in one] for one in questions]
    known = [[ids[word] for word in one] for one in listed if all(word in ids for word in one)]
    return Answers(_right(vectors.directions[:words], known), len(known), len(questions))


def _right(directions: NDArray[np.float32], questions: Sequence[Sequence[int]], block: int = 500) -> int:
    right = 0
    for begin in range(0, len(questions), block):
        some = np.array(questions[begin : begin + block])
        a, b, c, d = some.T
        scores = (directions[b] - directions[a] + directions[c]) @ directions.T
        scores[np.arange(len(some))[:, None], some[:, :3]] = -np.inf  # the question itself is no answer
        right += int((scores.argmax(1) == d).sum())
    return right
