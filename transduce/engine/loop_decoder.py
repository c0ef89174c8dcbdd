"""A step of the decoder on a CPU: layers in compiled loops (loops.py), and PyTorch for what is around them.

Every step writes to the same memory, which PyTorch and NumPy see alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.precision import Affine
from transduce.core.seq2seq import Memory
from transduce.engine import loops
from transduce.engine.incremental import Incremental
from transduce.engine.loop_arrays import Array, Buffers, FeedForwardArrays, NormArrays, Product, as_norm, as_product
from transduce.engine.weights import DecoderWeights, position_table


class DecoderArrays(NamedTuple):
    """The decoder as the loops read it, made once for many batches."""

    weights: DecoderWeights
    layers: list[Decoding]
    embedding: tuple[Array, Array, float]  # of tokens, of positions, and what the first is multiplied by
    projection: Affine  # row by row: of many rows that product is faster

    @staticmethod
    def of(model: Incremental) -> DecoderArrays:
        w, embedding = model.weights, model.weights.embedding
        tables = embedding.tokens.weight.detach().numpy(), position_table(embedding).detach().numpy()
        layers = [_as_arrays(w, i) for i in range(len(w.layers))]
        return DecoderArrays(w, layers, (*tables, embedding.scale), model.projection.read(torch.float32))


class LoopDecoder:
    """The decoder over the caches of a batch."""

    def __init__(self, arrays: DecoderArrays, memory: Memory, steps: int, beams: int) -> None:
        w, self.arrays = arrays.weights, arrays
        heads, (rows, width) = w.cross_heads, memory.segments.shape
        self.lengths = (memory.segments != 0).sum(1).numpy()
        self.memory = [
            F.linear(memory.states, *layer.cross_keys_values).view(rows, width, 2, heads.number, heads.d_k).numpy()
            for layer in w.layers
        ]
        heads = w.self_heads
        self.past = [np.empty((rows, steps * beams, 2, heads.number, heads.d_k), np.float32) for _ in w.layers]
        assert steps <= len(arrays.embedding[1])  # the loops do not look
        self._rows = self._all_rows = Buffers.make(
            rows * beams, w.projection.weight.size(1), len(w.layers[0].inner.weight), w.norm_before
        )
        self._logits = torch.empty(rows * beams, len(w.projection.weight))

    def keep(self, rows: np.ndarray, used: int) -> None:
        """Only these sentences go on; `used` slots of the past are filled."""
        moved = np.flatnonzero(rows != np.arange(len(rows)))
        for cache, slots in ((self.past, used), (self.memory, None)):
            for array in cache:
                array[moved, :slots] = array[rows[moved], :slots]
        self.past, self.memory = ([array[: len(rows)] for array in cache] for cache in (self.past, self.memory))
        self.lengths = self.lengths[rows]

    def step(self, tokens: Array, n: int, ancestors: Array, active: Array) -> Array:
        """Logits (R * A, V) of what comes after these tokens (R * A)."""
        w = self.arrays.weights
        if len(tokens) != len(self._rows.x):
            self._rows = self._all_rows.first(len(tokens))
        at = self._rows
        x, h = torch.from_numpy(at.x), torch.from_numpy(at.h)
        loops.embed(tokens, n, *self.arrays.embedding, at.x)
        if not isinstance(w.embedding.norm, nn.Identity):
            x.copy_(w.embedding.norm(x))
        if w.norm_before:
            h.copy_(w.layers[0].self_norm(x))
        for i in range(len(w.layers)):
            self._layer(i, (n, ancestors, active))
        if not w.norm_before and w.final_norm is not None:
            h = w.final_norm(h)
        logits = self._logits[: len(tokens)]
        _project(h * w.projection_scale if w.projection_scale != 1 else h, self.arrays.projection, logits)
        return logits.numpy()

    def _layer(self, i: int, now: tuple[int, Array, Array]) -> None:
        """The residual stream through a layer."""
        w, at, layer = self.arrays.weights, self._rows, self.arrays.layers[i]
        caches, scales = (self.past[i], self.memory[i], self.lengths), (w.self_heads.scale, w.cross_heads.scale)
        loops.look(at, layer.looking, caches, now, scales)
        layer.feed_forward(at)


class Decoding(NamedTuple):
    """The numbers of a layer as the loops want them."""

    looking: tuple[Product, Product, NormArrays, Product, Product, NormArrays]
    feed_forward: FeedForwardArrays


def _as_arrays(w: DecoderWeights, i: int) -> Decoding:
    """A norm is the one behind a sublayer: its own, or where norms stand before, that of the next."""
    a = w.layers[i]
    last = w.layers[i + 1].self_norm if i + 1 < len(w.layers) else w.final_norm
    norms = (a.cross_norm, a.norm, last) if w.norm_before else (a.self_norm, a.cross_norm, a.norm)
    first, second, third = map(as_norm, norms)
    self_qkv, self_output, query, output = map(as_product, (a.self_qkv, a.self_output, a.cross_query, a.cross_output))
    feed_forward = FeedForwardArrays(as_product(a.inner), as_product(a.outer), third, w.activation)
    return Decoding((self_qkv, self_output, first, query, output, second), feed_forward)


def _project(x: Tensor, affine: Affine, out: Tensor) -> None:
    """out = x Wᵀ + b; in its place, because new memory takes time."""
    weight, bias = affine
    if bias is None:
        torch.mm(x, weight.T, out=out)
    else:
        torch.addmm(bias, x, weight.T, out=out)
