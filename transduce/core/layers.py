"""The layers of figure 1: feed-forward, residual with norm, encoder layer, decoder layer."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.attention import MultiHeadAttention
from transduce.core.cache import KeysValues
from transduce.core.dropout import Dropout
from transduce.core.masks import AttentionMask
from transduce.core.precision import LayerNorm, Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(nn.Module):
    """FFN(x) = W₂ max(0, W₁ x + b₁) + b₂, the same at every position (so two 1x1 convolutions)."""

    def __init__(self, d_model: int, d_ff: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
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
        x = x + self.dropout(written)
        return x if self.norm_before else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside its residual."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        self_residual: Residual,
        feed_forward: FeedForward,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_residual = self_residual
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    def forward(self, x: Tensor, mask: AttentionMask, maps: list[Tensor] | None = None) -> Tensor:
        h = self.self_residual.enter(x)
        read, _ = self.self_attention.over_itself(h, None, mask, maps)
        x = self.self_residual.leave(x, read)

        h = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.leave(x, self.feed_forward(h))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        self_residual: Residual,
        cross_attention: MultiHeadAttention,
        cross_residual: Residual,
        feed_forward: FeedForward,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_residual = self_residual
        self.cross_attention = cross_attention
        self.cross_residual = cross_residual
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    def forward(
        self,
        x: Tensor,
        memory: KeysValues,
        mask: AttentionMask | None,
        memory_mask: AttentionMask,
        past: KeysValues | None = None,
        self_maps: list[Tensor] | None = None,
        cross_maps: list[Tensor] | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """The whole target (R, T, D) at once, or one token (T = 1) after its `past`.

        Also gives back the keys and values seen so far, the next step's `past`. `memory` may have fewer rows
        than `x`: then consecutive rows of `x` are beams of one sentence and look at its memory together.
        """
        h = self.self_residual.enter(x)
        read, seen = self.self_attention.over_itself(h, past, mask, self_maps)
        x = self.self_residual.leave(x, read)

        h = self.cross_residual.enter(x).reshape(memory.packed.size(0), -1, x.size(-1))  # beams become queries
        read = self.cross_attention(h, memory, memory_mask, cross_maps)
        x = self.cross_residual.leave(x, read.reshape_as(x))

        h = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.leave(x, self.feed_forward(h)), seen
