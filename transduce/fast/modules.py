"""Fast modules that take the place of plain ones, each beside its plain twin in core/.

`make_fast` goes through a working copy of a model and changes the class of every module for which there is a fast one:
its weights and their names stay. It looks for exactly the modules it knows, with exactly the attributes it knows. A
subclass, a new switch or table, another score, dropout where a kernel has none: whatever is not known stays plain, and
is right.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.attention import MultiHeadAttention
from transduce.core.cache import KeysValues
from transduce.core.layers import FeedForward, Residual
from transduce.core.low_rank import LowRank
from transduce.core.masks import AttentionMask, Segments
from transduce.core.precision import LayerNorm, Linear, linear_together
from transduce.core.scores import ScaledDot
from transduce.fast import kernels
from transduce.fast.kernels.feed_forward import FeedForwardInOne

# What the twins read, and engine/weights.py. A module that has more computes something that they do not know.
KNOWN: dict[type[nn.Module], set[str]] = {
    MultiHeadAttention: {"heads", "d_k", "d_v", "dropout", "query", "key", "value", "output", "score"},
    FeedForward: {"inner", "outer", "activation", "dropout"},
    Residual: {"norm", "dropout", "norm_before"},
    nn.Embedding: set(vars(nn.Embedding(1, 1))) | {"weight"},
    Linear: {"in_features", "out_features", "weight", "bias"},
    LowRank: {"in_features", "out_features", "weight", "bias", "A", "B", "scale", "dropout"},
    LayerNorm: {"normalized_shape", "eps", "elementwise_affine", "weight", "bias"},
}


def make_fast(model: nn.Module) -> None:
    """Replace what can be replaced, in place: only ever in a working copy (working_copy.py)."""
    kernels.load()
    for name, module in model.named_modules():
        if not is_known(module):
            continue
        if type(module) is MultiHeadAttention and fits_kernel(module):
            module.__class__ = SegmentAttention
        elif type(module) is FeedForward and module.activation is F.relu and not module.dropout.p:
            module.__class__ = FusedFeedForward
            module.recompute = _is_worth_recomputing(name)  # type: ignore[assignment]
        elif type(module) is Residual and not module.norm_before:
            module.__class__ = FusedResidual
        elif type(module) is nn.Embedding:
            module.__class__ = OrderedEmbedding


def is_known(module: nn.Module) -> bool:
    """Whether a module is exactly of a class in the list above, and has nothing more than it is known to have."""
    return type(module) in KNOWN and not _attributes(module) - KNOWN[type(module)]


def _attributes(module: nn.Module) -> set[str]:
    """Its own, with submodules, parameters and buffers; not those that PyTorch gives every module."""
    own = {name for name in vars(module) if name not in vars(nn.Module())}
    return own | set(module._modules) | set(module._parameters) | set(module._buffers)


def fits_kernel(attention: MultiHeadAttention) -> bool:
    """Our attention kernel knows one score, no dropout on the weights, and no wide heads."""
    wide = max(attention.d_k, attention.d_v) > kernels.WIDEST_HEAD
    return type(attention.score) is ScaledDot and not attention.dropout and not wide


def _is_worth_recomputing(name: str) -> bool:
    """Recompute inner activations in the encoder and in one layer of the decoder: of the paper's models that is just
    enough to train in half the memory of torch.nn.Transformer, and each such layer costs half a percent of
    time."""
    return not name.startswith("decoder.") or name.startswith("decoder.0.")


class SegmentAttention(MultiHeadAttention):
    """Attention that never stores its mask or its weights: kernels/segment_attention.py."""

    def forward(
        self, x: Tensor, context: KeysValues, mask: AttentionMask | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        assert mask is not None
        assert mask.segments is not None
        return self._by_kernel([self.query(x), context.packed], mask.segments)

    def over_itself(
        self, x: Tensor, past: KeysValues | None, mask: AttentionMask | None, maps: list[Tensor] | None = None
    ) -> tuple[Tensor, KeysValues]:
        assert mask is not None
        assert mask.segments is not None
        qkv = linear_together(x, self.query, self.key, self.value)
        width = self.heads * self.d_k
        return self._by_kernel([qkv], mask.segments), KeysValues(qkv[..., width:], width)

    def _by_kernel(self, packed: list[Tensor], segments: Segments) -> Tensor:
        return self.output(torch.ops.transduce.segment_attention(packed, self.heads, self.d_k, *segments)[0])


class FusedFeedForward(FeedForward):
    """Bias and cut inside the first product: kernels/feed_forward.py."""

    recompute: bool  # the inner activations on the way back, instead of keeping them

    def forward(self, x: Tensor) -> Tensor:
        return FeedForwardInOne.apply(x, *self.inner.read(x.dtype), *self.outer.read(x.dtype), self.recompute)


class FusedResidual(Residual):
    """LayerNorm(x + Dropout(written)) in one pass each way: kernels/residual_norm.py."""

    def leave(self, x: Tensor, written: Tensor) -> Tensor:
        norm, dropout = self.norm, self.dropout.p if self.training else 0.0
        seed = torch.randint(2**31 - 1, (1,), device=x.device)
        return torch.ops.transduce.residual_norm(x, written, norm.weight, norm.bias, seed, dropout, norm.eps)[0]


class OrderedEmbedding(nn.Embedding):
    """A table whose gradient is summed in one order: kernels/table_gradient.py."""

    def forward(self, rows: Tensor) -> Tensor:
        return LookUp.apply(self.weight, rows)


class LookUp(torch.autograd.Function):
    """The `rows` (...) of a table (height, D)."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.height = table.size(0)
        return F.embedding(rows, table)

    @staticmethod
    def backward(ctx: Any, d_x: Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        return torch.ops.transduce.table_gradient(d_x, rows, ctx.height), None
