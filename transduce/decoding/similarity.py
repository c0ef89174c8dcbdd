"""How like one another texts are, all pairs at once: chrF, and BLEU smoothed as sentences need it.

The same numbers as sacrebleu's, which compares two texts at a time: among 32 candidates there are a thousand pairs, and
cutting each text into n-grams once is a hundredfold faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from transduce import evaluate

CHARACTERS = 6  # chrF looks at up to so many in a row
WORDS = 4  # and BLEU
BETA = 2.0  # recall counts so much more in chrF


def chrf(texts: Sequence[str]) -> np.ndarray:
    """(N, N): row i, column j is the score of text i if text j is right."""
    letters = ["".join(text.split()) for text in texts]
    precision, recall, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for n in range(1, CHARACTERS + 1):
        same, totals = _overlaps([_grams(text, n) for text in letters])
        mine, right = totals[:, None], totals[None, :]
        both = (mine > 0) & (right > 0)
        precision += np.where(both, same / np.maximum(mine, 1), 0)
        recall += np.where(both, same / np.maximum(right, 1), 0)
        orders += both
    precision, recall = (x / np.maximum(orders, 1) for x in (precision, recall))
    return 100 * (1 + BETA**2) * precision * recall / np.maximum(BETA**2 * precision + recall, 1e-16)


def bleu(texts: Sequence[str]) -> np.ndarray:
    """(N, N), likewise."""
    words = [evaluate.bleu_words(text) for text in texts]
    same, totals = zip(*(_overlaps([_grams(text, n) for text in words]) for n in range(1, WORDS + 1)), strict=True)
    matches, counts = np.stack(same, -1).astype(int), np.stack(totals, -1).astype(int)  # (N, N, 4), (N, 4)
    each = range(len(texts))
    return np.array([[evaluate.bleu_of_counts(matches[i, j], counts[i], counts[j, 0]) for j in each] for i in each])


def _grams(text: Sequence[str], n: int) -> Counter[Sequence[str]]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


def _overlaps(texts: Sequence[Counter[Sequence[str]]]) -> tuple[np.ndarray, np.ndarray]:
    """How many n-grams each two texts have in common (N, N), and each one has (N).

    What is in one text a times and in another b times is common min(a, b) times, which is the number of levels l with
    a >= l and b >= l: so every level is a matrix product.
    """
    place = {gram: i for i, gram in enumerate({gram for text in texts for gram in text})}
    counts = np.zeros((len(texts), len(place)), np.float32)
    for row, text in zip(counts, texts, strict=True):
        row[[place[gram] for gram in text]] = list(text.values())
    levels = [(counts >= level).astype(np.float32) for level in range(1, int(counts.max(initial=0)) + 1)]
    common = sum((level @ level.T for level in levels), np.zeros((len(texts), len(texts)), np.float32))
    return common.astype(np.float64), counts.sum(1).astype(np.float64)
