"""A trial of the machine: how long an update takes, by a few real ones on sentences of the text."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from transduce.core.layout import lesson
from transduce.data.batches import Batch
from transduce.models.kinds import new_model
from transduce.settings.sections import BATCH_TOKENS, Settings
from transduce.training.random_state import random_states_kept
from transduce.training.state import RunState
from transduce.training.updater import Updater

SECONDS = 1.0  # that a trial takes, at least
FEWEST = 3  # updates

Ids = tuple[list[int], list[int]]  # of a pair


def seconds_an_update(settings: Settings, sizes: tuple[int, int], pairs: Sequence[Ids], device: str) -> float:
    """With a new model of these settings and vocabularies, which is thrown away again."""
    tokens = BATCH_TOKENS if settings.batch.tokens == "auto" else settings.batch.tokens
    with random_states_kept():
        updater = Updater(new_model(settings.model, *sizes), settings, device)
        batch, state = usual_batch(pairs, tokens), RunState()
        updater.update([batch], state)  # the first takes memory, which takes time
        took: list[float] = []
        begin = time.monotonic()
        while len(took) < FEWEST or time.monotonic() - begin < SECONDS:
            before = time.monotonic()
            updater.update([batch], state)
            took.append(time.monotonic() - before)
        return sorted(took)[len(took) // 4]  # not the mean: others use the machine now and then


def usual_batch(pairs: Sequence[Ids], tokens: int) -> Batch:
    """A full batch of sentences of about the usual length: the median one, and those like it."""
    by_length = sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
    middle = len(by_length) // 2
    width = max(len(side) for side in by_length[middle]) + 1
    rows = max(1, min(tokens // width, len(by_length)))
    first = max(0, middle - rows // 2)
    chosen = by_length[first : first + rows]
    tokens_with_ends = sum(len(target) + 1 for _, target in chosen)
    return Batch(*lesson(chosen), pairs=np.arange(len(chosen)), tokens=tokens_with_ends)
