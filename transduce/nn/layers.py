"""The layers of figure 1: feed-forward, residual with norm, encoder layer, decoder layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn import kernels
from transduce.nn.attention import MultiHeadAttention
from transduce.nn.cache import KeysValues
from transduce.nn.dropout import Dropout
from transduce.nn.kernels.feed_forward import FeedForwardInOne
from transduce.nn.masks import MayLook
from transduce.nn.precision import LayerNorm, Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(nn.Module):
    """FFN(x) = W₂ max(0, W₁ x + b₁) + b₂, the same at every position (so two 1x1 convolutions)."""

    def __init__(self, d_model: int, d_ff: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, again: bool = False) -> Tensor:
        """`again`: on the fast path the inner activations are computed again for the way back, not kept."""
        if kernels.in_use(x) and self.activation is F.relu and not (self.training and self.dropout.p):
            weights = (self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias)
            return FeedForwardInOne.apply(x, *(weight.to(x.dtype) for weight in weights), again)
        return self.outer(self.dropout(self.activation(self.inner(x))))


class Residual(nn.Module):
    """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)) where the norm comes before.

    `enter` gives what the sublayer reads, `leave` joins what it wrote.
    """

    def __init__(self, d_model: int, dropout: float, eps: float, norm_before: bool) -> None:
        super().__init__()
        self.norm = LayerNorm(d_model, eps)
        self.dropout = Dropout(dropout)
        self.norm_before = norm_before

    def enter(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.norm_before else x

    def leave(self, x: Tensor, written: Tensor) -> Tensor:
        if kernels.in_use(x) and not self.norm_before:
            return self._leave_fused(x, written)
        x = x + self.dropout(written)
        return x if self.norm_before else self.norm(x)

    def _leave_fused(self, x: Tensor, written: Tensor) -> Tensor:
        """The same where the norm comes after, in one pass each way, from kernels/residual_norm.py."""
        norm, dropout = self.norm, self.dropout.p if self.training else 0.0
        seed = torch.randint(2**31 - 1, (1,), device=x.device)
        return torch.ops.transduce.residual_norm(x, written, norm.weight, norm.bias, seed, dropout, norm.eps)[0]


class LayerSizes(NamedTuple):
    """The numbers an encoder or decoder layer is made from."""

    d_model: int
    d_ff: int
    heads: int
    d_k: int
    d_v: int
    attention_bias: bool
    activation: str
    norm_before: bool
    eps: float
    residual_dropout: float
    attention_dropout: float
    feed_forward_dropout: float
    score: str
    score_rank: int | None

    def attention(self) -> MultiHeadAttention:
        return MultiHeadAttention(
            self.d_model,
            self.heads,
            self.d_k,
            self.d_v,
            self.attention_bias,
            self.attention_dropout,
            self.score,
            self.score_rank,
        )

    def feed_forward(self) -> FeedForward:
        return FeedForward(self.d_model, self.d_ff, self.activation, self.feed_forward_dropout)

    def residual(self) -> Residual:
        return Residual(self.d_model, self.residual_dropout, self.eps, self.norm_before)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.self_attention = sizes.attention()
        self.self_residual = sizes.residual()
        self.feed_forward = sizes.feed_forward()
        self.feed_forward_residual = sizes.residual()

    def forward(self, x: Tensor, may_look: MayLook, maps: list[Tensor] | None = None) -> Tensor:
        h = self.self_residual.enter(x)
        read, _ = self.self_attention.over_itself(h, None, may_look, maps)
        x = self.self_residual.leave(x, read)

        h = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.leave(x, self.feed_forward(h, again=True))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(self, sizes: LayerSizes, again: bool = False) -> None:
        super().__init__()
        self.again = again
        self.self_attention = sizes.attention()
        self.self_residual = sizes.residual()
        self.cross_attention = sizes.attention()
        self.cross_residual = sizes.residual()
        self.feed_forward = sizes.feed_forward()
        self.feed_forward_residual = sizes.residual()

    def forward(
        self,
        x: Tensor,
        memory: KeysValues,
        may_look: MayLook | None,
        may_look_memory: MayLook,
        past: KeysValues | None = None,
        self_maps: list[Tensor] | None = None,
        cross_maps: list[Tensor] | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """The whole target (R, T, D) at once, or one token (T = 1) after its `past`.

        Also gives back the keys and values seen so far, the next step's `past`. `memory` may have fewer rows
        than `x`: then consecutive rows of `x` are beams of one sentence and look at its memory together.
        """
        h = self.self_residual.enter(x)
        read, seen = self.self_attention.over_itself(h, past, may_look, self_maps)
        x = self.self_residual.leave(x, read)

        h = self.cross_residual.enter(x).reshape(memory.packed.size(0), -1, x.size(-1))  # beams become queries
        read = self.cross_attention(h, memory, may_look_memory, cross_maps)
        x = self.cross_residual.leave(x, read.reshape_as(x))

        h = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.leave(x, self.feed_forward(h, self.again)), seen
