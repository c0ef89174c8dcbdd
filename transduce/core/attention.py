"""Attention: a score for every entry, a distribution over them, a summary (sections 3.2.1 and 3.2.2 of the paper).

    weights = softmax(score(q, k))        the distribution a
    summary = Σ aₙ vₙ                     the expectation of v under a

Keys score and values are summed; the plain form of attention has keys = values. `attend` writes this out,
`attend_fused` is PyTorch's kernel for the same, which `MultiHeadAttention` uses unless somebody asks for the weights.
hard.py picks one value.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.cache import KeysValues
from transduce.core.masks import AttentionMask
from transduce.core.precision import Linear, linear_together
from transduce.core.scores import ScaledDot, ScoreFunction, make_score

SCALED_DOT = ScaledDot()


class Attended(NamedTuple):
    """A summary for each query, and the weights behind it."""

    summary: Tensor  # (R, H, T, V)
    weights: Tensor  # (R, H, T, S)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None, score: ScoreFunction = SCALED_DOT) -> Tensor:
    """softmax(score(q, k)) over the keys that a query may look at; zeros where that is none."""
    scores = score(q, k)  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)  # matters only where a whole row is masked


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0, score: ScoreFunction = SCALED_DOT
) -> Attended:
    """Soft attention, written out; with the scaled dot score softmax(Q Kᵀ / √d_k) V."""
    weights = attention_weights(q, k, mask, score)
    return Attended(F.dropout(weights, dropout) @ v, weights)


def attend_fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0, score: ScoreFunction = SCALED_DOT
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
        bias: bool = True,
        dropout: float = 0.0,
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
    def shrink_queries(self) -> None:
        """For fresh weights: where nothing scales the scores, begin with queries that are smaller by √d_k."""
        if self.score.begins_large:
            self.query.weight.mul_(self.d_k**-0.5)

    def forward(
        self, x: Tensor, context: KeysValues, mask: AttentionMask | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """Queries from `x` (R, T, D). Given a list `maps`, the weights (R, H, T, S) are appended to it."""
        return self.read(self.query(x), *context.split(), mask, maps)

    def over_itself(
        self, x: Tensor, past: KeysValues | None, mask: AttentionMask | None, maps: list[Tensor] | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Queries, keys and values all from `x`, in one product; also gives back what could be seen."""
        q, seen = self.project(x)
        seen = seen if past is None else past.append(seen)
        return self.read(q, *seen.split(), mask, maps), seen

    def project(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        """Queries (R, T, H*K), keys and values of one x."""
        qkv = linear_together(x, self.query, self.key, self.value)
        width = self.heads * self.d_k
        return qkv[..., :width], KeysValues(qkv[..., width:], width)

    def keys_values(self, context: Tensor) -> KeysValues:
        """What `forward` looks at, projected from `context` (R, S, D)."""
        return KeysValues(linear_together(context, self.key, self.value), self.heads * self.d_k)

    def read(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask | None, maps: list[Tensor] | None) -> Tensor:
        """What the heads read, then W_O. q (R, T, H*K), k (R, S, H*K), v (R, S, H*V)."""
        q, k, v = (x.unflatten(2, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))  # (R, H, T, K)
        allowed = None if mask is None else mask.allowed
        dropout = self.dropout if self.training else 0.0
        if maps is None and self.score.is_product:
            summary = attend_fused(q, k, v, allowed, dropout, self.score)
        else:
            summary, weights = attend(q, k, v, allowed, dropout, self.score)
            if maps is not None:
                maps.append(weights)
        return self.output(summary.transpose(1, 2).flatten(2))  # (R, H, T, V) -> (R, T, D)
