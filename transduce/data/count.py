"""How many tokens a text has for training, without a store: what filters leave, pair by pair."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from transduce.data.build import CHUNK
from transduce.data.corpus import Pair
from transduce.data.pool import tokenize_all
from transduce.data.tokenize import Chunk, Job


class Lengths(NamedTuple):
    """The lengths of the pairs that stay."""

    lines: np.ndarray  # where each stands, from 1
    tokens: np.ndarray  # (pairs, 2)


def count_tokens(pairs: Iterable[Pair], job: Job) -> Lengths:
    """On all cores, as a store would be built."""
    places, hashes = [np.zeros((0, 3), np.int64)], [np.zeros(0, np.uint64)]
    for tokenized in tokenize_all(_chunks(iter(pairs)), [job]):
        places.append(tokenized.places[:, [4, 1, 3]])
        hashes.append(tokenized.hashes)
    every = np.concatenate(places)
    if job.settings.drop_duplicates:
        every = every[np.sort(np.unique(np.concatenate(hashes), return_index=True)[1])]
    return Lengths(every[:, 0], every[:, 1:])


def _chunks(pairs: Iterator[Pair]) -> Iterator[Chunk]:
    for number in itertools.count():
        some = list(itertools.islice(pairs, CHUNK))
        if not some:
            return
        yield Chunk(0, number, some)
