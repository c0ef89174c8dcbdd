"""Minimum Bayes risk: of many candidates the one that is most like all the others (Eikema and Aziz 2020).

The most probable target can be an odd one. If candidates are drawn from the model, each of them stands for a
translation that the model thinks possible, and the mean similarity to them is the expected score of a choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from transduce.decoding import similarity


def most_like_the_others(texts: Sequence[str], measure: str) -> list[int]:
    """Places of candidates by their mean similarity to all, best first, each text once."""
    counts = Counter(texts)
    measured = {"chrf": similarity.chrf, "bleu": similarity.bleu}[measure](list(counts))
    utility = measured @ np.array(list(counts.values()))
    first = {text: place for place, text in reversed(list(enumerate(texts)))}
    order = sorted(zip(-utility, map(first.__getitem__, counts), strict=True))
    return [place for _, place in order]
