"""A model that begins with vectors from elsewhere instead of random ones."""

from __future__ import annotations

from pathlib import Path

from transduce.errors import SettingsError
from transduce.fasttext.network import Network
from transduce.fasttext.word_vectors import load_vectors
from transduce.report import Report


def begin_with(network: Network, path: Path, report: Report) -> None:
    """Put the vectors of a file into the rows of the same words."""
    known = load_vectors(path)
    D = network.settings.dimension
    if known.dimension != D:
        raise SettingsError(
            f"{path} has vectors of {known.dimension} numbers, and vectors.dimension={D}; "
            f"set --vectors.dimension {known.dimension}"
        )
    words = network.dictionary.words
    found = [word for word in words if word in known]
    for word in found:
        network.E[network.dictionary.ids[word]] = known[word]
    report.say(f"{len(found):,} of {len(words):,} words begin with their vectors in {path}")
