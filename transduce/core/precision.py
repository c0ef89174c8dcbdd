"""Weights stay in float32; the work is done in the dtype of what comes in.

So the residual stream alone decides: in bfloat16 the matrix products run on the GPU's fast units, while the sums
inside a norm, the weights and their gradients keep all their digits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Affine(NamedTuple):
    """The numbers of y = W x + b."""

    weight: Tensor
    bias: Tensor | None


class Linear(nn.Linear):
    """y = W x + b in the dtype of x.

    `read` is the one door to W and b: every product goes through it, alone (`forward`), side by side with others
    (`linear_together`) or inside a kernel, so that what changes a weight, such as an adapter, is seen by all of them.
    """

    def read(self, dtype: torch.dtype) -> Affine:
        """W and b as products use them."""
        return Affine(self.weight.to(dtype), None if self.bias is None else self.bias.to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, *self.read(x.dtype))


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """x W in the dtype of x."""
    return x @ weight.to(x.dtype)


def linear_together(x: Tensor, *parts: Linear) -> Tensor:
    """Several projections of one x side by side, as one product: faster than one after the other."""
    weights, biases = zip(*(part.read(x.dtype) for part in parts), strict=True)
    return F.linear(x, torch.cat(weights), None if biases[0] is None else torch.cat(biases))


class LayerNorm(nn.LayerNorm):
    """(x - μ) / √(σ² + ε) · γ + β, summed in the dtype of the weights."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)
