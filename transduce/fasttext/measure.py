"""How good labels are, where a line may have several: precision and recall of the k best, F1 of each, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.fasttext.encode import LabelledLine
from transduce.fasttext.network import Network

BINS = 10  # of probability, for calibration


@dataclass(frozen=True)
class Measured:
    """What was found on all lines with at least one label."""

    lines: int
    precision: float  # of the k labels said, how many are true
    recall: float  # of the true ones, how many are among the k
    accuracy: float  # lines whose first label is true
    f1: dict[str, tuple[float, float, float, int]]  # label: precision, recall, F1 of the first label said; true lines
    macro_f1: float
    calibration: list[tuple[float, float, int]]  # mean probability, share right, lines; by tenths of probability
    calibration_error: float  # mean distance of the two


def measure(
    probabilities: NDArray[np.float32], truth: Sequence[Sequence[str]], labels: Sequence[str], k: int = 1
) -> Measured:
    """`probabilities`: (lines, labels)."""
    ids = {label: number for number, label in enumerate(labels)}
    kept = [row for row, given in enumerate(truth) if given]
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
    true = [{ids.get(label, -1) for label in given} for given in truth]
    hits = sum(len(true[row] & set(best[row].tolist())) for row in kept)
    right = np.array([int(best[row, 0]) in true[row] for row in kept])
    wanted = sum(len(set(truth[row])) for row in kept)
    sure = probabilities[kept, best[kept, 0]]
    bins, error = calibration(sure, right)
    f1 = _f1([int(best[row, 0]) for row in kept], [true[row] for row in kept], labels)
    macro = float(np.mean([one[2] for one in f1.values() if one[3]])) if f1 else 0.0
    said = len(kept) * best.shape[1]  # where there are fewer than k labels, no more can be said
    shares = (hits / max(1, said), hits / max(1, wanted), float(right.mean()) if len(kept) else 0.0)
    return Measured(len(kept), *shares, f1, macro, bins, error)


def measured(network: Network, lines: list[LabelledLine], k: int = 1) -> Measured:
    """How good a model is on lines with labels."""
    labels = network.dictionary.labels
    p = np.stack([network.probabilities(network.rows_of_line(line)) for _, line in lines])
    return measure(p, [given for given, _ in lines], labels, k)


def _f1(said: list[int], true: list[set[int]], labels: Sequence[str]) -> dict[str, tuple[float, float, float, int]]:
    rights, saids, trues = (np.zeros(len(labels), np.int64) for _ in range(3))
    for one, some in zip(said, true, strict=True):
        saids[one] += 1
        rights[one] += one in some
        for label in some - {-1}:
            trues[label] += 1
    precision, recall = rights / np.maximum(1, saids), rights / np.maximum(1, trues)
    f1 = 2 * precision * recall / np.maximum(1e-12, precision + recall)
    values = zip(precision.tolist(), recall.tolist(), f1.tolist(), trues.tolist(), strict=True)
    return dict(zip(labels, values, strict=True))


def calibration(sure: NDArray[np.float32], right: NDArray[np.bool_]) -> tuple[list[tuple[float, float, int]], float]:
    """Of the lines called 80 %, about 80 % should be right: by tenths, and the mean distance (ECE)."""
    tenth = np.minimum((sure * BINS).astype(int), BINS - 1)
    bins = []
    for number in range(BINS):
        some = tenth == number
        if some.any():
            bins.append((float(sure[some].mean()), float(right[some].mean()), int(some.sum())))
    error = sum(abs(p - share) * count for p, share, count in bins) / max(1, len(sure))
    return bins, error


def confusion(said: Sequence[str], true: Sequence[str], labels: Sequence[str]) -> NDArray[np.int64]:
    """Lines of each true label (rows) by what was said (columns)."""
    ids = {label: number for number, label in enumerate(labels)}
    found = np.zeros((len(labels), len(labels)), np.int64)
    for one, other in zip(true, said, strict=True):
        if one in ids and other in ids:
            found[ids[one], ids[other]] += 1
    return found
