"""What encoder and decoder of a recorded search are made of: products of a library, and our kernels between them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.precision import Affine
from transduce.core.transformer import Embedding
from transduce.engine.weights import Norm, position_table
from transduce.fast.kernels.decode_attention import add_norm, embed


def embedded(embedding: Embedding, tokens: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Tokens (R, B) at the positions (R) as vectors (R * B, D)."""
    table, added = embedding.tokens.weight, position_table(embedding)
    x = embed(tokens, positions, table, added, embedding.scale, dtype)
    return x if isinstance(embedding.norm, nn.Identity) else embedding.norm(x)


def joined(x: Tensor, written: Tensor, norm: Norm | None, before: bool) -> tuple[Tensor, Tensor]:
    """The residual sum, and what is read next: its norm. Where the norm comes after the sum, it is both."""
    if norm is None:
        x = x + written
        return x, x
    return add_norm(x, written, *norm, keep=before)


def inner(h: Tensor, affine: Affine, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """The inner activations of a feed-forward layer."""
    if activation is F.relu and h.is_cuda and affine.bias is not None:
        return torch._addmm_activation(affine.bias, h, affine.weight.t())  # bias and ReLU inside the product
    return activation(F.linear(h, *affine))
