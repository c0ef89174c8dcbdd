"""Attention: a score for every entry, a distribution over them, a summary (sections 3.2.1 and 3.2.2 of the paper).

    weights = softmax(score(q, k))        the distribution a
    summary = Σ aₙ vₙ                     the expectation of v under a

Keys score and values are summed; the plain form of attention has keys = values. `attend` writes this out; where a fused
kernel computes the same, `MultiHeadAttention` uses it unless somebody asks for the weights. hard.py picks one value.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn import kernels
from transduce.nn.cache import KeysValues
from transduce.nn.masks import MayLook, Segments
from transduce.nn.precision import Linear, linear_together
from transduce.nn.scores import ScaledDot, Score, make_score

SCALED_DOT = ScaledDot()


class Attended(NamedTuple):
    """A summary for each query, and the weights behind it."""

    summary: Tensor  # (R, H, T, V)
    weights: Tensor  # (R, H, T, S)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None, score: Score = SCALED_DOT) -> Tensor:
    """softmax(score(q, k)) over the keys that a query may look at; zeros where that is none."""
    scores = score(q, k)  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)  # matters only where a whole row is masked


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0, score: Score = SCALED_DOT
) -> Attended:
    """Soft attention, written out; with the scaled dot score softmax(Q Kᵀ / √d_k) V."""
    weights = attention_weights(q, k, mask, score)
    return Attended(F.dropout(weights, dropout) @ v, weights)


def attend_fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0, score: Score = SCALED_DOT
) -> Tensor:
    """The same summary from PyTorch's fused kernel, which never stores the weights; for scores that are products."""
    q, k, scale = score.product(q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O with head_i = Attention(Q W_Q, K W_K, V W_V)."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_k: int,
        d_v: int,
        bias: bool,
        dropout: float,
        score: str = "scaled",
        rank: int | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.d_k = d_k
        self.d_v = d_v
        self.dropout = dropout
        self.query = Linear(d_model, heads * d_k, bias=bias)  # W_Q of all heads side by side
        self.key = Linear(d_model, heads * d_k, bias=bias)  # W_K
        self.value = Linear(d_model, heads * d_v, bias=bias)  # W_V
        self.output = Linear(heads * d_v, d_model, bias=bias)  # W_O
        self.score = make_score(score, d_k, d_k, heads, rank)

    @torch.no_grad()
    def calm(self) -> None:
        """For fresh weights: where nothing scales the scores, begin with queries that are smaller by √d_k."""
        if self.score.begins_large:
            self.query.weight.mul_(self.d_k**-0.5)

    def forward(
        self, x: Tensor, context: KeysValues, may_look: MayLook | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """Queries from `x` (R, T, D). Given a list `maps`, the weights (R, H, T, S) are appended to it."""
        q = self.query(x)
        if maps is None and (segments := self._for_kernel(may_look, q)):
            return self._by_kernel([q, context.packed], segments)
        return self._read(q, *context.split(), may_look, maps)

    def over_itself(
        self, x: Tensor, past: KeysValues | None, may_look: MayLook | None, maps: list[Tensor] | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Queries, keys and values all from `x`, in one product; also gives back what could be seen."""
        qkv = linear_together(x, self.query, self.key, self.value)
        width = self.heads * self.d_k
        seen = KeysValues(qkv[..., width:], width)
        if past is not None:
            seen = past.append(seen)
            return self._read(qkv[..., :width], *seen.split(), may_look, maps), seen
        if maps is None and (segments := self._for_kernel(may_look, qkv)):
            return self._by_kernel([qkv], segments), seen
        q, k, v = qkv.split([width, width, qkv.size(2) - 2 * width], 2)
        return self._read(q, k, v, may_look, maps), seen

    def keys_values(self, context: Tensor) -> KeysValues:
        """What `forward` looks at, projected from `context` (R, S, D)."""
        return KeysValues(linear_together(context, self.key, self.value), self.heads * self.d_k)

    def _read(self, q: Tensor, k: Tensor, v: Tensor, may_look: MayLook | None, maps: list[Tensor] | None) -> Tensor:
        """What the heads find, then W_O. q (R, T, H*K), k (R, S, H*K), v (R, S, H*V)."""
        q, k, v = (x.unflatten(2, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))  # (R, H, T, K)
        mask = None if may_look is None else may_look.mask
        dropout = self.dropout if self.training else 0.0
        if maps is None and self.score.is_product:
            summary = attend_fused(q, k, v, mask, dropout, self.score)
        else:
            summary, weights = attend(q, k, v, mask, dropout, self.score)
            if maps is not None:
                maps.append(weights)
        return self.output(summary.transpose(1, 2).flatten(2))  # (R, H, T, V) -> (R, T, D)

    def _for_kernel(self, may_look: MayLook | None, x: Tensor) -> Segments | None:
        """What our kernel needs, where it is in use; it knows one score, no dropout on the weights, no wide heads."""
        drops, wide = self.training and self.dropout > 0, max(self.d_k, self.d_v) > kernels.WIDEST_HEAD
        if may_look is None or not kernels.in_use(x) or drops or wide or not self.score.is_scaled_dot:
            return None
        return may_look.segments

    def _by_kernel(self, packed: list[Tensor], segments: Segments) -> Tensor:
        """The same as `_read`, from kernels/segment_attention.py."""
        return self.output(torch.ops.transduce.segment_attention(packed, self.heads, self.d_k, *segments)[0])
