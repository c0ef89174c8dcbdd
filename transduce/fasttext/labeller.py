"""A loaded classifier of the kind fasttext: lines in, labels out, with reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

import numpy as np

from transduce.arguments import check_texts
from transduce.decoding.results import Candidate, Translation
from transduce.decoding.wishes import Wishes
from transduce.errors import ModelError, SettingsError
from transduce.fasttext import folder
from transduce.fasttext.network import Network
from transduce.fasttext.ngrams import END_OF_LINE
from transduce.report import Progress
from transduce.settings.compose import compose
from transduce.settings.sections import Settings

CHUNK = 1000  # lines between looks at the clock, and of an output that can be resumed


class Voice(NamedTuple):
    """A word or n-gram of a line, and by how much it raised a label's score above the mean of all labels."""

    text: str
    weight: float


class Pace(NamedTuple):
    """What commands ask of an engine."""

    name: str = "fasttext"
    chunk: int = CHUNK


class Limits(NamedTuple):
    longest: int = 2**31  # words of a line: as many as there are


class Labeller:
    """It has what commands need of a translator: a label is the translation of a line."""

    engine, lengths = Pace(), Limits()

    def __init__(self, network: Network, settings: Settings) -> None:
        if network.settings.objective != "labels":
            raise ModelError("these are word vectors, which give no labels; see: transduce vectors --help")
        self.network, self.settings, self.search = network, settings, settings.search

    @classmethod
    def load(cls, path: str | Path, **search: Any) -> Self:
        network, settings = folder.load(Path(path))
        given = {key: value for key, value in search.items() if value is not None}
        for key in given:
            if key not in ("threshold", "split"):
                raise SettingsError(f"{path} is a classifier of the kind fasttext, which has no search.{key}")
        return cls(network, compose({"search": given}, base=settings))

    def __repr__(self) -> str:
        d, s = self.network.dictionary, self.network.settings
        return (
            f"<transduce model: fastText classifier, {len(d.labels):,} labels, {len(d.words):,} words and "
            f"{len(self.network.buckets):,} n-grams of {s.dimension} numbers, loss {s.loss}>"
        )

    @property
    def labels(self) -> list[str]:
        return list(self.network.dictionary.labels)

    @overload
    def translate(self, text: str, n_best: int = 1) -> Translation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Iterable[str], n_best: int = 1) -> list[Translation]: ...
    def translate(self, text: str | Iterable[str], n_best: int = 1) -> Translation | list[Translation]:
        """The label of a text, or of each in a list; with n_best the most probable ones."""
        if isinstance(text, str):
            return self._label(text, n_best)
        return [self._label(line, n_best) for line in check_texts(text, "text")]

    def stream(
        self,
        lines: Iterable[str],
        wishes: Wishes | None = None,
        chunk: int | None = None,
        progress: Progress | None = None,
        prefixes: Iterable[str] = (),
    ) -> Iterator[Translation]:
        """One answer for each line, in order."""
        wishes = wishes or Wishes()
        if wishes != Wishes(wishes.n_best) or prefixes:
            raise SettingsError("a classifier gives labels: it takes no glossary, prefix, alignment or other wish")
        for number, line in enumerate(check_texts(lines, "lines"), 1):
            yield self._label(line, wishes.n_best)
            if progress is not None and number % CHUNK == 0:
                progress.update(number, lines=f"{number:,}")

    def probabilities(self, text: str) -> dict[str, float]:
        """How probable every label is."""
        found = self.network.probabilities(self.network.rows_of_line(text))
        return dict(zip(self.network.dictionary.labels, found.tolist(), strict=True))

    def _label(self, line: str, n_best: int) -> Translation:
        if not line.strip():
            return Translation(line, "", "empty", ())
        rows = self.network.rows_of_line(line)
        p = self.network.probabilities(rows)
        best = np.argsort(-p, kind="stable")[: max(1, n_best)]
        labels = self.network.dictionary.labels
        found = [Candidate(labels[i], _log(p[i]), _log(p[i]), (labels[i],)) for i in best if p[i] >= self.threshold]
        end = self.network.dictionary.ids.get(END_OF_LINE, -1)
        status = "unknown" if not (rows[rows >= 0] != end).any() else "ok" if found else "doubtful"
        confidence = round(float(p[best[0]]), 4)
        return Translation(line, found[0].text if found else "", status, tuple(found), confidence=confidence)

    @property
    def threshold(self) -> float:
        return self.search.threshold

    def explain(self, line: str, label: str | None = None) -> list[Voice]:
        """Which words and n-grams spoke for a label, and which against, the loudest first: each row's part of the
        label's score, less its part of the mean score of all labels."""
        n = self.network
        if n.settings.loss == "hs":
            raise SettingsError(
                "the labels of a hierarchical softmax have no scores of their own, only turns in a tree"
            )
        label = label or self._label(line, 1).candidates[0].text
        target = n.dictionary.label_ids.get(label)
        if target is None:
            raise SettingsError(f"there is no label {label[:60]!r}; there are: {', '.join(self.labels[:10])}, ...")
        rows = n.rows_of_line(line)
        direction = (n.U[target] - n.U.mean(0)) / max(1, len(rows))
        found: dict[str, float] = {}
        for text, row in zip(self._names(line), rows.tolist(), strict=True):
            if row >= 0:
                found[text] = found.get(text, 0.0) + float(n.E[row] @ direction)
        return [Voice(text, weight) for text, weight in sorted(found.items(), key=lambda pair: -abs(pair[1]))]

    def _names(self, line: str) -> Iterator[str]:
        """What each row of a line stands for, in the order of rows_of_line; a word speaks with its n-grams."""
        n = self.network
        words = [*n.dictionary.cut(line), END_OF_LINE]
        for word in words:
            if word in n.dictionary.ids or n.settings.longest:
                yield from [word] * len(n.rows_of_word(word))
        for begin in range(len(words)):
            for end in range(begin + 2, min(len(words), begin + n.settings.word_ngrams) + 1):
                yield " ".join(words[begin:end])


def _log(p: float) -> float:
    return math.log(max(float(p), 1e-30))
