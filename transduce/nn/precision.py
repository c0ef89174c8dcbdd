"""Weights stay in float32; the work is done in the precision of what comes in.

So the residual stream alone decides: in bfloat16 the matrix products run on the GPU's fast units, while the sums
inside a norm, the weights and their gradients keep all their digits.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """y = W x + b in the precision of x."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.weight.to(x.dtype), bias)


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """x W in the precision of x."""
    return x @ weight.to(x.dtype)


def linear_together(x: Tensor, *parts: Linear) -> Tensor:
    """Several projections of one x side by side, as one product: faster than one after the other."""
    weight = torch.cat([part.weight for part in parts]).to(x.dtype)
    bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts]).to(x.dtype)
    return F.linear(x, weight, bias)


class LayerNorm(nn.LayerNorm):
    """(x - μ) / √(σ² + ε) · γ + β, summed in the precision of the weights."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)
