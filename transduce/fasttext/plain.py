"""One update, as a student reads it: NumPy, one line a formula. kernels/learning.py does the same numbers fast.

    h  (D,)      the mean of the input rows that speak: a word with its n-grams, the words of a window, or of a line
    U  (O, D)    the output rows: a word, a label, or a node of the tree each
    g  (D,)      rate times minus the gradient of the loss by h, which is what the input rows are given

Every loss is made of logistic or softmax parts, whose gradient by a score is (probability - truth).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transduce.fasttext.huffman import Tree

Floats = NDArray[np.float32]
MOST = 30.0  # beyond it σ is 0 or 1 in 32 bits


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -MOST, MOST))), np.float32)


def logistic(h: Floats, U: Floats, rows: NDArray[np.int32], truth: Floats, rate: float) -> tuple[float, Floats]:
    """Rows that are each asked "is it you?"; changes U, gives the loss and g. No row may come twice."""
    p = sigmoid(U[rows] @ h)
    loss = -np.log(np.where(truth > 0, p, 1 - p) + 1e-10).sum()
    step = rate * (truth - p)  # (K,)
    g = step @ U[rows]
    U[rows] += np.outer(step, h).astype(np.float32)
    return float(loss), g.astype(np.float32)


def negative_sampling(
    h: Floats, U: Floats, target: int, negatives: NDArray[np.int32], rate: float
) -> tuple[float, Floats]:
    """log σ(u_target · h) + Σ log σ(-u_negative · h), to be made large (Mikolov et al., 2013). One row after the other,
    since a negative may be drawn twice."""
    total, g = 0.0, np.zeros_like(h)
    for row in (target, *negatives):
        loss, part = logistic(h, U, np.array([row]), np.array([float(row == target)], np.float32), rate)
        total, g = total + loss, g + part
    return total, g


def hierarchical_softmax(h: Floats, U: Floats, target: int, tree: Tree, rate: float) -> tuple[float, Floats]:
    """The turns on the way to the target."""
    some = slice(tree.starts[target], tree.starts[target + 1])
    return logistic(h, U, tree.nodes[some], tree.codes[some].astype(np.float32), rate)


def softmax(h: Floats, U: Floats, target: int, rate: float) -> tuple[float, Floats]:
    """-log of the target's share."""
    p = np.exp(scores := U @ h - np.max(U @ h))
    p /= np.exp(scores).sum()
    truth = np.zeros_like(p)
    truth[target] = 1
    g = rate * (truth - p) @ U
    U += np.outer(rate * (truth - p), h)
    return float(-np.log(p[target])), g.astype(np.float32)


def one_against_all(h: Floats, U: Floats, targets: NDArray[np.int32], rate: float) -> tuple[float, Floats]:
    """Every label is asked for itself, so that a line may have several or none."""
    truth = np.zeros(len(U), np.float32)
    truth[targets] = 1
    return logistic(h, U, np.arange(len(U), dtype=np.int32), truth, rate)


def probabilities(h: Floats, U: Floats, loss: str, tree: Tree) -> Floats:
    """What a model with this loss believes of each label."""
    if loss == "softmax":
        p = np.exp(U @ h - np.max(U @ h))
        return p / p.sum()
    if loss in ("ns", "ova"):
        return sigmoid(U @ h)
    turns = sigmoid(U @ h)
    ways = (tree.way(leaf) for leaf in range(len(tree.starts) - 1))
    return np.array([np.prod([turns[n] if right else 1 - turns[n] for n, right in way]) for way in ways], np.float32)
