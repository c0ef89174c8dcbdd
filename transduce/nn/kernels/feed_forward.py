"""W₂ max(0, W₁ x + b₁) + b₂, the inner activations, four times as wide as the model, computed again on the way back.

They are the largest part of what a layer keeps; one product more in backward costs a few percent of time and saves a
quarter of the memory. The plain twin is `FeedForward` in nn/layers.py. No Triton here: the products are the matrix
library's, which also adds the bias and cuts at 0 before it writes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _inner(x: Tensor, w1: Tensor, b1: Tensor) -> Tensor:
    return torch._addmm_activation(b1, x.flatten(0, -2), w1.T)


@torch.library.custom_op("transduce::feed_forward", mutates_args=())
def feed_forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """x (..., D); all in one precision."""
    return torch.addmm(b2, _inner(x, w1, b1), w2.T).unflatten(0, x.shape[:-1])


@feed_forward.register_fake
def _(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], w2.size(0))


@torch.library.custom_op("transduce::feed_forward_backward", mutates_args=())
def feed_forward_backward(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, d_y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, w1, b1, w2 and b2."""
    inner, rows, d_rows = _inner(x, w1, b1), x.flatten(0, -2), d_y.flatten(0, -2)
    d_w2 = d_rows.T @ inner
    d_inner = torch.ops.aten.threshold_backward(d_rows @ w2, inner, 0)  # what was cut at 0 has no gradient
    d_x = (d_inner @ w1).unflatten(0, x.shape[:-1])
    return d_x, d_inner.T @ rows, d_inner.sum(0), d_w2, d_rows.sum(0)


@feed_forward_backward.register_fake
def _(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, d_y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape),
        w1.new_empty(w1.shape),
        b1.new_empty(b1.shape),
        w2.new_empty(w2.shape),
        w2.new_empty(w2.size(0)),
    )


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:4])


def _gradients(ctx, d_y):
    return feed_forward_backward(*ctx.saved_tensors, d_y)


feed_forward.register_autograd(_gradients, setup_context=_keep)
