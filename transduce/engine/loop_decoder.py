"""A step of the decoder on a CPU: PyTorch's products, and compiled loops between them (loops.py).

Batches are searched beside each other in threads, and only one thread at a time can be in Python. So there is to be
little of it: every step writes to the same memory, which PyTorch and NumPy see alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.engine import loops
from transduce.engine.incremental import Incremental
from transduce.engine.weights import DecoderWeights, Layer, Norm, position_table
from transduce.models.seq2seq import Memory
from transduce.nn.precision import Affine


class Buffer(NamedTuple):
    """Memory as PyTorch sees it, and as NumPy does."""

    tensor: Tensor
    array: np.ndarray

    @staticmethod
    def of(tensor: Tensor, *shape: int) -> Buffer:
        """The rows of a matrix; in NumPy each of that shape."""
        return Buffer(tensor, tensor.numpy().reshape(len(tensor), *shape or (-1,)))


class Buffers(NamedTuple):
    """Where the rows of a step are written."""

    x: Buffer  # the residual stream
    h: Buffer  # what a sublayer reads of it: its norm, or itself
    qkv: Buffer  # in NumPy (rows, 3, H, K)
    q: Buffer  # (rows, H, K)
    read: Buffer  # (rows, H, K)
    written: Buffer
    inner: Buffer
    logits: Buffer

    @staticmethod
    def make(rows: int, w: DecoderWeights) -> Buffers:
        vocabulary, d_model = w.projection.weight.shape
        heads = w.self_heads.number, w.self_heads.d_k
        cross = w.cross_heads.number, w.cross_heads.d_k
        x = Buffer.of(torch.empty(rows, d_model))
        return Buffers(
            x=x,
            h=Buffer.of(torch.empty(rows, d_model)) if w.norm_before else x,
            qkv=Buffer.of(torch.empty(rows, 3 * d_model), 3, *heads),
            q=Buffer.of(torch.empty(rows, d_model), *cross),
            read=Buffer.of(torch.empty(rows, d_model), *heads),
            written=Buffer.of(torch.empty(rows, d_model)),
            inner=Buffer.of(torch.empty(rows, len(w.layers[0].inner.weight))),
            logits=Buffer.of(torch.empty(rows, vocabulary)),
        )

    def first(self, rows: int) -> Buffers:
        """The same memory for fewer rows."""
        return Buffers(*(Buffer(each.tensor[:rows], each.array[:rows]) for each in self))


class LoopDecoder:
    """The decoder over the caches of a batch."""

    def __init__(self, model: Incremental, memory: Memory, steps: int, beams: int) -> None:
        w = self.weights = model.weights
        self.projection = model.projection.read(torch.float32)  # row by row: of many rows that product is faster
        heads, (rows, width) = w.cross_heads, memory.segments.shape
        self.lengths = (memory.segments != 0).sum(1).numpy()
        self.memory = [
            F.linear(memory.states, *layer.cross_keys_values).view(rows, width, 2, heads.number, heads.d_k).numpy()
            for layer in w.layers
        ]
        heads = w.self_heads
        self.past = [np.empty((rows, steps * beams, 2, heads.number, heads.d_k), np.float32) for _ in w.layers]
        self.norms = [
            [_as_arrays(norm) for norm in (following(w, i) if w.norm_before else (a.self_norm, a.cross_norm, a.norm))]
            for i, a in enumerate(w.layers)
        ]
        self.embedding = (
            w.embedding.tokens.weight.detach().numpy(),
            position_table(w.embedding).detach().numpy(),
            w.embedding.scale,
        )
        assert steps <= len(self.embedding[1])  # the loops do not look
        self._buffers = self._all_buffers = Buffers.make(rows * beams, w)

    def keep(self, rows: np.ndarray, used: int) -> None:
        """Only these sentences go on; `used` slots of the past are filled."""
        moved = np.flatnonzero(rows != np.arange(len(rows)))
        for cache, slots in ((self.past, used), (self.memory, None)):
            for array in cache:
                array[moved, :slots] = array[rows[moved], :slots]
        self.past, self.memory = ([array[: len(rows)] for array in cache] for cache in (self.past, self.memory))
        self.lengths = self.lengths[rows]

    def step(self, tokens: np.ndarray, n: int, ancestors: np.ndarray, active: np.ndarray) -> np.ndarray:
        """Logits (R * A, V) of what comes after these tokens (R * A)."""
        w = self.weights
        if len(tokens) != len(self._buffers.x.tensor):
            self._buffers = self._all_buffers.first(len(tokens))
        at = self._buffers
        loops.embed(tokens, n, *self.embedding, at.x.array)
        if not isinstance(w.embedding.norm, nn.Identity):
            at.x.tensor.copy_(w.embedding.norm(at.x.tensor))
        if w.norm_before:
            at.h.tensor.copy_(w.layers[0].self_norm(at.x.tensor))
        for i, layer in enumerate(w.layers):
            self._layer(i, layer, n, ancestors, active)
        h = at.h.tensor
        if not w.norm_before and w.final_norm is not None:
            h = w.final_norm(h)
        _product(h * w.projection_scale if w.projection_scale != 1 else h, self.projection, at.logits.tensor)
        return at.logits.array

    def _layer(self, i: int, layer: Layer, n: int, ancestors: np.ndarray, active: np.ndarray) -> None:
        """The residual stream through a layer."""
        w, at, norms = self.weights, self._buffers, self.norms[i]
        _product(at.h.tensor, layer.self_qkv, at.qkv.tensor)
        loops.look_back(at.qkv.array, self.past[i], ancestors, active, n, w.self_heads.scale, at.read.array)
        self._write(at.read.tensor, layer.self_output, norms[0])

        _product(at.h.tensor, layer.cross_query, at.q.tensor)
        seen = at.read.array.reshape(at.q.array.shape)
        loops.look_at_memory(at.q.array, self.memory[i], self.lengths, active, w.cross_heads.scale, seen)
        self._write(at.read.tensor, layer.cross_output, norms[1])

        _product(at.h.tensor, layer.inner, at.inner.tensor)
        inner = at.inner.tensor.relu_() if w.activation is F.relu else w.activation(at.inner.tensor)
        self._write(inner, layer.outer, norms[2])

    def _write(self, read: Tensor, output: Affine, norm: tuple[np.ndarray, np.ndarray, float] | None) -> None:
        """What a sublayer writes goes into the residual stream, and a norm makes what the next one reads."""
        at = self._buffers
        _product(read, output, at.written.tensor)
        if norm is not None:
            loops.add_norm(at.x.array, at.written.array, *norm, at.h.array)
        else:
            at.h.tensor.copy_(at.x.tensor.add_(at.written.tensor))


def _product(x: Tensor, affine: Affine, out: Tensor) -> None:
    """out = x Wᵀ + b; in its place, because new memory takes time."""
    weight, bias = affine
    if bias is None:
        torch.mm(x, weight.T, out=out)
    else:
        torch.addmm(bias, x, weight.T, out=out)


def _as_arrays(norm: Norm | None) -> tuple[np.ndarray, np.ndarray, float] | None:
    return None if norm is None else (norm.weight.numpy(), norm.bias.numpy(), norm.eps)


def following(w: DecoderWeights, i: int) -> tuple[Norm, Norm, Norm | None]:
    """The norms behind the three sublayers of a layer, where each stands before the next."""
    last = w.layers[i + 1].self_norm if i + 1 < len(w.layers) else w.final_norm
    return w.layers[i].cross_norm, w.layers[i].norm, last
