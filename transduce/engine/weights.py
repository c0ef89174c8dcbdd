"""A Transformer laid out for inference: what is computed together lies together, in the wanted dtype.

Made once, when a model begins to translate. Whatever is not exactly what this knows has no such layout (`None`), and is
searched by the plain way, which is right for every model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.attention import MultiHeadAttention
from transduce.core.dropout import Dropout
from transduce.core.layers import DecoderLayer, EncoderLayer
from transduce.core.precision import Affine, LayerNorm, Linear
from transduce.core.scores import Dot, ScaledDot
from transduce.core.seq2seq import Seq2Seq
from transduce.core.transformer import Embedding, Transformer, WithEncoder
from transduce.fast.modules import is_known


class Norm(NamedTuple):
    """(x - μ) / √(σ² + ε) · γ + β, summed in float32."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class Heads(NamedTuple):
    """The sizes of an attention."""

    number: int
    d_k: int
    d_v: int
    scale: float


class Layer(NamedTuple):
    """The numbers of a decoder layer."""

    self_qkv: Affine  # W_Q, W_K, W_V side by side
    self_output: Affine
    self_norm: Norm
    cross_query: Affine
    cross_keys_values: Affine  # W_K, W_V side by side
    cross_output: Affine
    cross_norm: Norm
    inner: Affine
    outer: Affine
    norm: Norm


class DecoderWeights(NamedTuple):
    """All that a step of the decoder reads."""

    embedding: Embedding
    layers: list[Layer]
    self_heads: Heads
    cross_heads: Heads
    norm_before: bool
    activation: Callable[[Tensor], Tensor]
    final_norm: Norm | None
    projection: Affine
    projection_scale: float
    dtype: torch.dtype


class EncoderWeights(NamedTuple):
    """All that the encoder reads behind its embedding."""

    layers: list[EncoderLayerWeights]
    heads: Heads
    norm_before: bool
    activation: Callable[[Tensor], Tensor]
    final_norm: Norm | None


class EncoderLayerWeights(NamedTuple):
    """The numbers of an encoder layer."""

    self_qkv: Affine
    self_output: Affine
    self_norm: Norm
    inner: Affine
    outer: Affine
    norm: Norm


BOTH = {"self_attention", "self_residual", "feed_forward", "feed_forward_residual"}
PARTS: dict[type[nn.Module], set[str]] = {
    EncoderLayer: BOTH,
    DecoderLayer: BOTH | {"cross_attention", "cross_residual"},
}
WITHOUT_WEIGHTS = (ScaledDot, Dot, Dropout, nn.Identity, nn.ModuleList)


def decoder_weights(model: Seq2Seq, dtype: torch.dtype) -> DecoderWeights | None:
    """The layout of a model, or nothing if it has a part that is not known here."""
    if type(model) is not Transformer or type(model.target) is not Embedding:
        return None
    if not all(map(_is_known, (*model.decoder.modules(), model.decoder_norm, model.projection))):
        return None
    layers = [cast(DecoderLayer, layer) for layer in model.decoder]
    first = layers[0]
    return DecoderWeights(
        embedding=model.target,
        layers=[_layer(layer, dtype) for layer in layers],
        self_heads=_heads(first.self_attention),
        cross_heads=_heads(first.cross_attention),
        norm_before=first.self_residual.norm_before,
        activation=first.feed_forward.activation,
        final_norm=_norm(model.decoder_norm, dtype) if isinstance(model.decoder_norm, LayerNorm) else None,
        projection=_together(dtype, model.projection),
        projection_scale=model.projection_scale,
        dtype=dtype,
    )


def encoder_weights(model: WithEncoder, dtype: torch.dtype) -> EncoderWeights | None:
    """The same of an encoder."""
    if not all(map(_is_known, (*model.encoder.modules(), model.encoder_norm))):
        return None
    layers = [cast(EncoderLayer, layer) for layer in model.encoder]
    first = layers[0]
    return EncoderWeights(
        layers=[_encoder_layer(layer, dtype) for layer in layers],
        heads=_heads(first.self_attention),
        norm_before=first.self_residual.norm_before,
        activation=first.feed_forward.activation,
        final_norm=_norm(model.encoder_norm, dtype) if isinstance(model.encoder_norm, LayerNorm) else None,
    )


def alike(layers: Sequence[Layer] | Sequence[EncoderLayerWeights]) -> bool:
    """Whether all have weights of the same shapes: for compiled loops, which do not look."""
    return len({tuple(part.weight.shape for part in layer) for layer in layers}) == 1


def position_table(embedding: Embedding) -> Tensor:
    """What is added at each position, computed or learned (positions, D)."""
    table = embedding.positions.table
    return table.weight if isinstance(table, nn.Embedding) else cast(Tensor, table)


def _is_known(module: nn.Module) -> bool:
    if type(module) in PARTS:
        return set(module._modules) == PARTS[type(module)]
    return type(module) in WITHOUT_WEIGHTS or is_known(module)


def _heads(attention: MultiHeadAttention) -> Heads:
    scale = attention.d_k**-0.5 if type(attention.score) is ScaledDot else 1.0
    return Heads(attention.heads, attention.d_k, attention.d_v, scale)


def _layer(layer: DecoderLayer, dtype: torch.dtype) -> Layer:
    itself, cross, ff = layer.self_attention, layer.cross_attention, layer.feed_forward
    return Layer(
        self_qkv=_together(dtype, itself.query, itself.key, itself.value),
        self_output=_together(dtype, itself.output),
        self_norm=_norm(layer.self_residual.norm, dtype),
        cross_query=_together(dtype, cross.query),
        cross_keys_values=_together(dtype, cross.key, cross.value),
        cross_output=_together(dtype, cross.output),
        cross_norm=_norm(layer.cross_residual.norm, dtype),
        inner=_together(dtype, ff.inner),
        outer=_together(dtype, ff.outer),
        norm=_norm(layer.feed_forward_residual.norm, dtype),
    )


def _encoder_layer(layer: EncoderLayer, dtype: torch.dtype) -> EncoderLayerWeights:
    itself, ff = layer.self_attention, layer.feed_forward
    return EncoderLayerWeights(
        self_qkv=_together(dtype, itself.query, itself.key, itself.value),
        self_output=_together(dtype, itself.output),
        self_norm=_norm(layer.self_residual.norm, dtype),
        inner=_together(dtype, ff.inner),
        outer=_together(dtype, ff.outer),
        norm=_norm(layer.feed_forward_residual.norm, dtype),
    )


def _together(dtype: torch.dtype, *parts: Linear) -> Affine:
    """Side by side, for one product. On a CPU column by column, as a product of few rows reads them fastest."""
    weights, biases = zip(*(part.read(dtype) for part in parts), strict=True)
    weight = (weights[0] if len(weights) == 1 else torch.cat(weights)).detach()
    weight = weight if weight.is_cuda else weight.t().contiguous().t()
    return Affine(weight, None if biases[0] is None else torch.cat(biases).detach())


def _norm(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    return Norm(norm.weight.detach().to(dtype), norm.bias.detach().to(dtype), norm.eps)


def cast_copy(model: Seq2Seq, dtype: torch.dtype) -> Seq2Seq:
    """The model with the weights of its products in another dtype; itself, if that is what they are in."""
    if model.projection.weight.dtype == dtype:
        return model
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, Linear):
            module.to(dtype)
    return model
