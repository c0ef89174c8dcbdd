"""Hard attention: one value instead of the mean of all, and two ways to train a choice that has no gradient."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.core.attention import SCALED_DOT, attention_weights
from transduce.core.scores import ScoreFunction

Selection = Literal["arg_max", "sample", "straight_through"]


class Chosen(NamedTuple):
    """What hard attention picked for each query."""

    summary: Tensor  # (..., T, V)
    weights: Tensor  # (..., T, S) the distribution it was picked from
    log_probability: Tensor  # (..., T) of the pick, what the score-function estimator needs


def attend_hard(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, selection: Selection, score: ScoreFunction = SCALED_DOT
) -> Chosen:
    """One value for each query: that of the largest weight (`arg_max`), or of one draw (`sample`).

    Neither lets a gradient through to the scores. `sample` is trained by `reinforced` (the score-function estimator);
    `straight_through` draws too, and on the way back pretends that it had been soft.
    """
    weights = attention_weights(q, k, mask, score)
    if selection == "arg_max":
        picked = weights.argmax(-1)
    else:
        flat = weights.detach().flatten(0, -2)
        some = torch.where(flat.sum(-1, keepdim=True) > 0, flat, torch.ones_like(flat))  # nothing to see: any, times 0
        picked = torch.multinomial(some, 1).view(weights.shape[:-1])
    one = F.one_hot(picked, weights.size(-1)).to(weights.dtype)
    one = one * (weights.detach().sum(-1, keepdim=True) > 0)  # a query that may look at nothing gets zeros
    log_probability = (weights * one).sum(-1).clamp(min=torch.finfo(weights.dtype).tiny).log()
    if selection == "straight_through":
        one = one + weights - weights.detach()
    return Chosen(one @ v, weights, log_probability)


class Baseline:
    """The reward that is usual so far: a moving mean, subtracted from rewards so that their estimate varies less."""

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = decay
        self.value: float | None = None

    def update(self, reward: float) -> float:
        """The mean before this reward, and take it in."""
        before = reward if self.value is None else self.value
        self.value = self.decay * before + (1 - self.decay) * reward
        return before


def reinforced(reward: Tensor, log_probability: Tensor, baseline: Baseline) -> Tensor:
    """The score-function estimator as a loss: ∇ E[r] = E[(r - b) ∇ log p(pick)], for any r that the pick led to.

    `reward` (...), one for each sum of picks; `log_probability` the same shape, summed over the picks behind it.
    """
    reward = reward.detach()
    usual = baseline.update(float(reward.mean()))
    return -((reward - usual) * log_probability).mean()
