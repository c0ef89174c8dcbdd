"""Label-smoothed cross-entropy. A loss gives its sum and its count; only the trainer divides."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from transduce.text.tokenizer import PAD


@dataclass(frozen=True)
class Loss:
    """A sum and what it is summed over."""

    total: Tensor  # nats, summed over target tokens
    count: Tensor  # target tokens


def cross_entropy(logits: Tensor, target_out: Tensor, label_smoothing: float = 0.0) -> Loss:
    """-Σ q(k) log p(k), where q gives 1 - ε to the right token and spreads ε evenly over the vocabulary."""
    total = F.cross_entropy(
        logits.flatten(0, 1).float(),  # (R, T, vocabulary) -> (R*T, vocabulary)
        target_out.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return Loss(total, (target_out != PAD).sum())
