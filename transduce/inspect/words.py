"""Subwords joined to words: sums over keys, means over queries, so that rows still sum to one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transduce.core.special import SPECIAL
from transduce.text.case import OF_WORD
from transduce.text.scripts import is_unspaced


def words(tokens: Sequence[str]) -> list[int]:
    """Which word each token belongs to, counted from 0: a space begins one, so does a punctuation mark, and
    what follows it.

    Where a language writes no spaces (Chinese, Japanese, Thai) every token is a word.
    """
    groups: list[int] = []
    alone = True  # whether the token before stands alone
    for token in tokens:
        bare = token.removeprefix("▁")
        is_punctuation = not OF_WORD.search(bare)
        stands_alone = token in SPECIAL or is_punctuation or is_unspaced(bare[:1])
        starts = not groups or alone or stands_alone or token.startswith("▁")
        if groups and token != "▁" and tokens[len(groups) - 1] == "▁":
            starts = False  # a space by itself belongs to what follows
        groups.append(groups[-1] + starts if groups else 0)
        alone = stands_alone and token != "▁"
    return groups


def joined(tokens: Sequence[str], group: list[int]) -> tuple[str, ...]:
    """The words themselves."""
    whole = [""] * (max(group, default=-1) + 1)
    for token, word in zip(tokens, group, strict=True):
        whole[word] += token.replace("▁", "")
    return tuple(whole)


def merge(maps: np.ndarray, queries: list[int], keys: list[int]) -> np.ndarray:
    """(layers, heads, T, S) to words on both axes."""
    q = np.eye(max(queries) + 1, dtype=maps.dtype)[queries]  # (T, words): which word a token is part of
    k = np.eye(max(keys) + 1, dtype=maps.dtype)[keys]
    return (q / q.sum(0)).T @ maps @ k
