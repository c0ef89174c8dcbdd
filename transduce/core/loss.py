"""Label-smoothed cross-entropy, and what a teacher adds to it. A loss gives its sum and its count; what makes an
update divides."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from transduce.core.special import PAD, UNKNOWN


class Loss(NamedTuple):
    """A sum and what it is summed over."""

    total: Tensor  # nats, summed over target tokens
    tokens: Tensor  # target tokens, counted


def cross_entropy(logits: Tensor, target_out: Tensor, label_smoothing: float = 0.0) -> Loss:
    """-Σ q(k) log p(k), where q gives 1 - ε to the right token and spreads ε evenly over the vocabulary. What the
    vocabulary cannot write is no right token: no search may write UNKNOWN, so no model is to learn it."""
    target_out = learned_from(target_out)
    total = F.cross_entropy(
        logits.flatten(0, 1).float(),  # (R, T, vocabulary) -> (R*T, vocabulary)
        target_out.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return Loss(total, (target_out != PAD).sum())


def learned_from(target_out: Tensor) -> Tensor:
    """target_out with PAD for what the vocabulary cannot write, of which no loss is taken."""
    return target_out.masked_fill(target_out == UNKNOWN, PAD)


def from_teacher(logits: Tensor, teacher: Tensor, target_out: Tensor) -> Tensor:
    """-Σ q(k) log p(k) where q is what a teacher thinks of each token, summed over target tokens (word-level
    distillation, Kim and Rush, 2016)."""
    q, log_p = teacher.float().softmax(-1), logits.float().log_softmax(-1)
    return -(q * log_p).sum(-1).masked_fill(learned_from(target_out) == PAD, 0.0).sum()
