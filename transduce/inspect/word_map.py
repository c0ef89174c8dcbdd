"""A map of words on one page that needs nothing else: the two directions in which their vectors differ most (PCA), the
neighbours of each word, and a search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transduce.errors import SettingsError
from transduce.files.output import write_output
from transduce.inspect.page import filled

if TYPE_CHECKING:
    from transduce.fasttext.word_vectors import WordVectors

NEIGHBOURS = 10
MOST = 20_000  # words on a page


def write_word_map(vectors: WordVectors, count: int, path: Path) -> Path:
    """The page as a file."""
    if count < 1:
        raise SettingsError(f"--words {count} must be at least 1")
    words = [word for word in vectors.words[: min(count, MOST) + 1] if word != "</s>"][:count]
    some = np.stack([vectors[word] for word in words])
    some = some / np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-12)
    places, share = principal_components(some)
    near = np.argsort(-(some @ some.T), axis=1, kind="stable")[:, 1 : NEIGHBOURS + 1]
    facts = {
        "words": words,
        "places": np.round(places, 4).tolist(),
        "near": near.tolist(),
        "likeness": [[round(float(some[i] @ some[j]), 3) for j in row] for i, row in enumerate(near)],
        "about": f"{repr(vectors)[1:-1]}; the {len(words):,} most frequent. "
        f"The map shows {share:.0%} of how they differ; the lists use all of it.",
    }
    write_output(path, filled("words", facts, {}).encode())
    return path


def principal_components(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """(N, 2): where each row lies in the two directions of the largest variance, and the share of it that they have."""
    centred = rows - rows.mean(0)
    values, directions = np.linalg.eigh(centred.T @ centred)
    places = centred @ directions[:, ::-1][:, :2]
    return places / max(1e-12, float(np.abs(places).max())), float(values[-2:].sum() / max(1e-12, values.sum()))
