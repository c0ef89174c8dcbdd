"""Words and labels with their counts, from text of any size: what is rare is forgotten while the text is read, so that
memory stays bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError
from transduce.fasttext.cuts import Cut, cut_words
from transduce.fasttext.ngrams import END_OF_LINE

MOST_WORDS = 20_000_000  # different ones that are counted side by side, before the rarest are forgotten
LABEL = "__label__"


@dataclass(frozen=True)
class Dictionary:
    """What has a row of its own, the most frequent first."""

    words: Sequence[str]
    counts: NDArray[np.int64]
    labels: Sequence[str]  # without __label__
    label_counts: NDArray[np.int64]
    tokens: int  # of the text, words that are too rare included
    cut: Cut = cut_words  # how a line becomes words
    rare: Sequence[str] = ()  # without a row, but spelled by n-grams while labels are learned; no model keeps them

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def places(self) -> dict[str, int]:
        """The same with rare words, whose numbers follow."""
        return self.ids | {word: number for number, word in enumerate(self.rare, len(self.words))}

    @cached_property
    def label_ids(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    @cached_property
    def letters(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All words in UTF-8 one behind the other, and where each begins."""
        return laid_out([encoded(word) for word in self.words])

    def kept_share(self, threshold: float) -> NDArray[np.float32]:
        """How probably each word is kept when a line is read: frequent ones say little (Mikolov et al., 2013)."""
        frequency = self.counts / max(1, self.counts.sum())
        with np.errstate(divide="ignore"):
            return (np.sqrt(threshold / frequency) + threshold / frequency).astype(np.float32)


def encoded(word: str) -> bytes:
    """In UTF-8; bytes that are none, which files of others may have, as they were."""
    return word.encode("utf-8", "surrogateescape")


def decoded(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")


def laid_out(words: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    starts = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in words], out=starts[1:])
    return np.frombuffer(b"".join(words), np.uint8), starts


def count(
    lines: Iterable[tuple[Sequence[str], str]], cut: Cut, min_count: int, min_label_count: int, spelled: bool = False
) -> Dictionary:
    """The dictionary of lines (their labels, their text); `spelled`: with rare words."""
    words: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    tokens, rare = 0, 1
    for given, line in lines:
        cuts = cut(line)
        words.update(cuts)
        words[END_OF_LINE] += 1
        labels.update(given)
        tokens += len(cuts) + 1
        if len(words) > MOST_WORDS:
            rare += 1
            words = Counter({word: number for word, number in words.items() if number >= rare})
    kept = _falling(words, min_count)
    if not kept:
        raise DataError(
            f"no word of the text comes {min_count} times or more; lower vectors.min_count"
            if tokens
            else "the text is empty"
        )
    kept_labels = _falling(labels, min_label_count)
    others = [word for word, number in words.items() if number < min_count] if spelled else []
    return Dictionary(*_apart(kept), *_apart(kept_labels), tokens, cut, others)


def _falling(counts: Counter[str], least: int) -> list[tuple[str, int]]:
    """By falling count; those of equal count as they came."""
    return sorted(((one, n) for one, n in counts.items() if n >= least), key=lambda pair: -pair[1])


def _apart(pairs: list[tuple[str, int]]) -> tuple[list[str], NDArray[np.int64]]:
    return [word for word, _ in pairs], np.array([number for _, number in pairs], np.int64)
