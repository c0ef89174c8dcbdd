"""LoRA (Hu et al., 2021): a weight that is kept, plus a product of two thin matrices that learns.

    W = W₀ + (α / r) B A        A (r, in), B (out, r)

B begins with zeros, so that at first nothing changes. `read` is the one door to a weight, so every product sees the
sum: plain, side by side with others, or inside a kernel.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from transduce.core.precision import Affine, Linear


class LowRank(Linear):
    """A projection with an adapter. Dropout takes whole columns of A away for a batch: W is the same for all of it."""

    A: nn.Parameter
    B: nn.Parameter
    scale: float
    dropout: float

    def read(self, dtype: torch.dtype) -> Affine:
        weight = self._with_dropout() if self.training and self.dropout else self.merged()
        return Affine(weight.to(dtype), None if self.bias is None else self.bias.to(dtype))

    def merged(self) -> Tensor:
        """W, as it is saved and used."""
        return torch.addmm(self.weight, self.B, self.A, alpha=self.scale)

    def _with_dropout(self) -> Tensor:
        stays = torch.rand(self.in_features, device=self.A.device) >= self.dropout
        return torch.addmm(self.weight, self.B, self.A * stays, alpha=self.scale / (1 - self.dropout))


def adapt(linear: Linear, rank: int, alpha: float, dropout: float) -> None:
    """Give a projection an adapter, in place; nothing else of it learns from now on."""
    linear.requires_grad_(False)
    linear.__class__ = LowRank
    assert isinstance(linear, LowRank)
    linear.A = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
    linear.B = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
    nn.init.kaiming_uniform_(linear.A, a=math.sqrt(5))
    linear.scale, linear.dropout = alpha / rank, dropout
