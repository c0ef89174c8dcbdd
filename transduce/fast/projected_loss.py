"""Label-smoothed cross-entropy together with the projection that makes the logits; the plain twin is core/loss.py.

The logits of a batch are the largest thing in training (25,000 tokens x 32,000 words) and needed for a moment only. So
they are computed a slice of tokens at a time, and since the gradient of a slice is known as soon as its softmax is, it
is taken in the same breath: nothing of that size is kept for the way back, and nothing is computed twice.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.core.precision import Linear
from transduce.core.special import PAD, UNKNOWN

SLICE = 110_000_000  # numbers in a slice of logits at most: 220 MB in bfloat16; with small ones products get slower


def projected_cross_entropy(
    states: Tensor, projection: Linear, target_out: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """The sum over target tokens for logits = projection(states), without ever holding them all."""
    weight, bias = projection.read(projection.weight.dtype)
    return ProjectedCrossEntropy.apply(states.flatten(0, 1), weight, bias, target_out.flatten(), label_smoothing)


class ProjectedCrossEntropy(torch.autograd.Function):
    """Σ cross_entropy(states Wᵀ + b, targets); forward already takes the gradients, backward scales them."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, epsilon: float
    ) -> Tensor:
        W, b = weight.to(states.dtype), None if bias is None else bias.to(states.dtype)
        total = weight.new_zeros(())
        d_states, d_weight, d_bias = [], torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        slices = -(-states.size(0) * weight.size(0) // SLICE)  # of one size: a small last one would be slow
        for x, y in zip(states.chunk(slices), targets.chunk(slices), strict=True):
            loss, d_logits = _slice(F.linear(x, W, b), y, epsilon)
            total = total + loss
            d_states.append(d_logits @ W)
            d_weight += d_logits.T @ x
            if d_bias is not None:
                d_bias += d_logits.sum(0)
        ctx.save_for_backward(torch.cat(d_states), d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, d_total: Tensor) -> Any:
        d_states, d_weight, d_bias = ctx.saved_tensors
        d_bias = None if d_bias is None else d_bias * d_total
        return d_states * d_total.to(d_states.dtype), d_weight * d_total, d_bias, None, None


def _slice(logits: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The loss of some tokens, Σ -Σ q log p, and its gradient p - q with respect to the logits. PAD counts nothing, nor
    does UNKNOWN."""
    real = ((targets != PAD) & (targets != UNKNOWN)).unsqueeze(1)
    z = logits.float()
    log_norm = z.logsumexp(1, keepdim=True)
    right = z.gather(1, targets.unsqueeze(1))
    each = log_norm - (1 - epsilon) * right - epsilon * z.mean(1, keepdim=True)
    hit = torch.arange(z.size(1), device=z.device) == targets.unsqueeze(1)
    q = torch.where(hit, 1 - epsilon, 0.0) + epsilon / z.size(1)
    d_logits = torch.where(real, (z - log_norm).exp() - q, 0.0)
    return torch.where(real, each, 0.0).sum(), d_logits.to(logits.dtype)
