"""Scaled dot-product attention and its multi-head form (sections 3.2.1 and 3.2.2 of the paper)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn import segment_attention
from transduce.nn.cache import KeysValues
from transduce.nn.masks import MayLook
from transduce.nn.precision import Linear


class Attended(NamedTuple):
    """A summary for each query, and the weights behind it."""

    summary: Tensor  # (R, H, T, V)
    weights: Tensor  # (R, H, T, S)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Attended:
    """softmax(Q Kᵀ / √d_k) V, written out. A query that may look at nothing gets zeros."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (R, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # matters only where a whole row is masked
    return Attended(F.dropout(weights, dropout) @ v, weights)


def attend_fused(q: Tensor, k: Tensor, v: Tensor, may_look: MayLook | None, dropout: float = 0.0) -> Tensor:
    """The same summary from a kernel that never stores the weights: ours over segments, otherwise PyTorch's."""
    if may_look is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    if may_look.segments is not None and segment_attention.fits(q, v, dropout):
        return segment_attention.segment_attention(q, k, v, *may_look.segments)[0]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=may_look.mask, dropout_p=dropout)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O with head_i = Attention(Q W_Q, K W_K, V W_V)."""

    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = Linear(d_model, heads * d_k, bias=bias)  # W_Q of all heads side by side
        self.key = Linear(d_model, heads * d_k, bias=bias)  # W_K
        self.value = Linear(d_model, heads * d_v, bias=bias)  # W_V
        self.output = Linear(heads * d_v, d_model, bias=bias)  # W_O

    def keys_values(self, context: Tensor) -> KeysValues:
        """What `forward` looks at, projected from `context` (R, S, D)."""
        return KeysValues(self._split(self.key(context)), self._split(self.value(context)))

    def forward(
        self, x: Tensor, context: KeysValues, may_look: MayLook | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """Queries from `x` (R, T, D). Given a list `maps`, the weights (R, H, T, S) are appended to it."""
        q = self._split(self.query(x))
        dropout = self.dropout if self.training else 0.0
        if maps is None:
            summary = attend_fused(q, context.keys, context.values, may_look, dropout)
        else:
            mask = None if may_look is None else may_look.mask
            summary, weights = attend(q, context.keys, context.values, mask, dropout)
            maps.append(weights)
        return self.output(summary.transpose(1, 2).flatten(2))  # (R, H, T, V) -> (R, T, D)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)  # (R, T, H*K) -> (R, H, T, K)
