"""Training as the paper has it: teacher forcing, label-smoothed cross-entropy, Adam, and a rate that rises and falls.

The twin of `training/updater.py`, which makes the same updates on packed rows, in many processes and on a GPU that has
recorded its work, and of `training/trainer.py`, which makes them survive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from transduce.core.layout import Lesson
from transduce.core.loss import cross_entropy
from transduce.core.schedule import noam
from transduce.core.seq2seq import Seq2Seq


def learn(
    model: Seq2Seq,
    lessons: Iterable[Lesson],
    optimizer: torch.optim.Optimizer,
    d_model: int,
    warmup: int = 4000,
    smoothing: float = 0.1,
) -> Iterator[tuple[int, float]]:
    """Make one update for each lesson; yields its number, from 1, and the loss a token that it began from."""
    model.train()
    for step, lesson in enumerate(lessons, 1):
        logits = model(lesson.source, lesson.target_in)  # teacher forcing: (R, T, V)
        total, tokens = cross_entropy(logits, lesson.target_out, smoothing)
        loss = total / tokens
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = noam(step, d_model, warmup)
        optimizer.step()
        optimizer.zero_grad()
        yield step, loss.item()
