"""A model folder of the kind fasttext: config.yaml, model.safetensors with matrices, words and counts, manifest.json.

Nothing that a file says is believed before its parts are compared with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transduce.errors import ModelError
from transduce.fasttext.cuts import SUBWORDS, TOKENIZER, Cut, cut_files, kept_cut
from transduce.fasttext.dictionary import Dictionary, decoded, encoded, laid_out
from transduce.fasttext.network import Network
from transduce.files.arrays import array_bytes, read_arrays
from transduce.files.manifest import verify, write_folder
from transduce.files.run_folder import CONFIG, MODEL
from transduce.settings import config_file
from transduce.settings.sections import Settings

TYPES = {"E": "float32", "U": "float32", "buckets": "int32", "tokens": "int64"}
TYPES |= {f"{side}{part}": kind for side in ("", "label_") for part, kind in
          (("letters", "uint8"), ("starts", "int64"), ("counts", "int64"))}  # fmt: skip


def save(network: Network, settings: Settings, folder: Path) -> None:
    content = {MODEL: array_bytes(arrays_of(network)), CONFIG: config_file.write(settings).encode()}
    write_folder(folder, content | cut_files(network.dictionary.cut))


def arrays_of(network: Network) -> dict[str, NDArray]:
    d = network.dictionary
    arrays = {"E": network.E, "U": network.U, "buckets": network.buckets, "tokens": np.array([d.tokens])}
    for side, words, counts in (("", d.words, d.counts), ("label_", d.labels, d.label_counts)):
        letters, starts = laid_out([encoded(word) for word in words])
        arrays |= {f"{side}letters": letters.copy(), f"{side}starts": starts, f"{side}counts": counts}
    return arrays


def load(folder: Path) -> tuple[Network, Settings]:
    verify(folder, [CONFIG, MODEL])
    settings = config_file.read_whole(folder / CONFIG)
    if settings.vectors.tokens in SUBWORDS:
        verify(folder, [TOKENIZER])
    cut = kept_cut(settings.vectors, folder)
    return network_of(read_arrays(folder / MODEL), settings, folder / MODEL, cut), settings


def network_of(a: dict[str, NDArray], settings: Settings, path: Path, cut: Cut) -> Network:
    """The model that some arrays are; they are refused where they do not fit together."""
    if {name: str(array.dtype) for name, array in a.items()} != TYPES:
        raise ModelError(f"{path} does not hold what a model of the kind fasttext has")
    sides = [_words(a[f"{side}letters"], a[f"{side}starts"], a[f"{side}counts"], path) for side in ("", "label_")]
    dictionary = Dictionary(sides[0], a["counts"], sides[1], a["label_counts"], int(a["tokens"].sum()), cut)
    network = Network(settings.vectors, dictionary, a["E"], a["U"], a["buckets"])
    if problem := misfit(network):
        raise ModelError(f"{path} is damaged: {problem}")
    return network


def misfit(network: Network) -> str | None:
    """What does not go together in a model from elsewhere."""
    s, d = network.settings, network.dictionary
    targets = len(network.counts)
    rows = (len(d.words) + len(network.buckets), targets - (s.loss == "hs" and targets > 1))
    for name, matrix, count in (("input", network.E, rows[0]), ("output", network.U, rows[1])):
        if name == "output" and not len(matrix) and s.objective != "labels":
            continue  # vectors from elsewhere, which predict nothing
        if matrix.shape != (count, s.dimension):
            return f"its {name} matrix has the shape {matrix.shape}, not {(count, s.dimension)}"
        if not np.isfinite(matrix).all():
            return f"its {name} matrix holds numbers that are infinite or none (NaN)"
    b = network.buckets
    if len(b) and (b.min() < 0 or b.max() >= s.buckets or len(np.unique(b)) != len(b)):
        return "its n-grams have impossible buckets"
    if len(set(d.words)) != len(d.words) or len(set(d.labels)) != len(d.labels):
        return "a word or a label comes twice"
    if (d.counts < 0).any() or (d.label_counts < 0).any():
        return "a count is negative"
    if s.objective == "labels" and not d.labels:
        return "it has no labels"
    return None


def _words(
    letters: NDArray[np.uint8], starts: NDArray[np.int64], counts: NDArray[np.int64], path: Path
) -> Sequence[str]:
    fits = starts.ndim == counts.ndim == letters.ndim == 1 and len(starts) == len(counts) + 1
    if not fits or starts[0] != 0 or starts[-1] != len(letters) or (np.diff(starts) < 0).any():
        raise ModelError(f"{path} is damaged: its words do not fit their number")
    whole = letters.tobytes()
    return [decoded(whole[a:b]) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
