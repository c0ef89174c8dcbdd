"""W₂ max(0, W₁ x + b₁) + b₂, with bias and cut inside the first product, and with a choice: the inner activations,
four times as wide as the model, are kept for the way back or computed again on it.

They are the largest part of what a layer keeps; one product more in backward costs a few percent of time and saves a
quarter of the memory. The plain twin is `FeedForward` in core/layers.py. The products are the matrix library's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.fast import kernels


@torch.library.custom_op("transduce::linear_relu", mutates_args=())
def linear_relu(x: Tensor, weight: Tensor, bias: Tensor, after: Tensor | None) -> Tensor:
    """max(0, W x + b) of x (N, D), all in one precision. `after` is not read: it only has to be there first."""
    return torch._addmm_activation(bias, x, weight.T)


@linear_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, after: Tensor | None) -> Tensor:
    return x.new_empty(x.size(0), weight.size(0))


class FeedForwardInOne(torch.autograd.Function):
    """x (..., D); `recompute`: the inner activations are not kept, but computed again on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, recompute: bool) -> Tensor:
        inner = linear_relu(x.flatten(0, -2), w1, b1, None)
        ctx.save_for_backward(x, w1, b1, w2, None if recompute else inner)
        return F.linear(inner, w2, b2).unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> Any:
        x, w1, b1, w2, inner = ctx.saved_tensors
        rows, d_rows = x.flatten(0, -2), d_y.flatten(0, -2)
        if inner is None:  # after d_y: else the compiler would compute it on the way forth, and keep it
            inner = linear_relu(rows, w1, b1, d_rows)
        d_inner, d_b1 = _relu_gradient(d_rows @ w2, inner)
        d_x = (d_inner @ w1).unflatten(0, x.shape[:-1])
        return d_x, d_inner.T @ rows, d_b1.to(d_y.dtype), d_rows.T @ inner, d_rows.sum(0), None


def _relu_gradient(d: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    """What was cut at 0 has no gradient; and the sum over rows, the gradient of the bias."""
    if kernels.can_run_on(d):
        return torch.ops.transduce.relu_gradient(d, inner)
    d = torch.where(inner > 0, d, 0.0)
    return d, d.sum(0)
