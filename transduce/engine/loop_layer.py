"""Layers for compiled loops (loops.py), the products between them by BLAS: no Python within.

Batches are searched beside each other in threads, and Python runs one of them at a time; each product that is called
from it would wait for the other thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.compiled import external, kernel
from transduce.engine.blas import address_of_sgemm
from transduce.engine.loops import add_norm, look_around, look_at_memory, look_back
from transduce.engine.weights import Norm
from transduce.nn.precision import Affine

Array = np.ndarray
Product = tuple[Array, Array]  # W (K, N) and b
NormArrays = tuple[Array, Array, float]  # γ, β, ε
sgemm = external("sgemm_of_pytorch", address_of_sgemm() or 0, 13)


class Rows(NamedTuple):
    """Where the rows of a step are written."""

    x: Array  # the residual stream
    h: Array  # what a sublayer reads of it: its norm, or itself
    qkv: Array
    q: Array
    read: Array
    written: Array
    inner: Array
    say: Array  # to BLAS: columns, rows, inner width, the letter N (nothing is transposed), 1.0 as bits

    @staticmethod
    def make(rows: int, d_model: int, d_ff: int, norm_before: bool) -> Rows:
        widths = d_model, d_model, 3 * d_model, d_model, d_model, d_model, d_ff
        x, h, *rest = (np.zeros((rows, width), np.float32) for width in widths)
        say = np.array([0, 0, 0, ord("N"), np.float32(1).view(np.int32)], np.int32)
        return Rows(x, h if norm_before else x, *rest, say)

    def first(self, rows: int) -> Rows:
        """The same memory for fewer rows."""
        return Rows(*(each[:rows] for each in self[:-1]), self.say)


class FeedForwardArrays(NamedTuple):
    """A feed-forward layer, and the norm behind it."""

    inner: Product
    outer: Product
    norm: NormArrays
    activation: Callable[[Tensor], Tensor]

    def __call__(self, at: Rows) -> None:
        is_relu = self.activation is F.relu
        widen(at, self.inner, is_relu)
        if not is_relu:
            at.inner[:] = self.activation(torch.from_numpy(at.inner)).numpy()
        narrow(at, self.outer, self.norm)


def as_product(affine: Affine) -> Product:
    weight = affine.weight.t().contiguous().numpy()
    return weight, np.zeros(weight.shape[1], np.float32) if affine.bias is None else affine.bias.numpy()


def as_norm(norm: Norm | None) -> NormArrays:
    assert norm is not None  # can_loop saw to that
    return norm.weight.numpy(), norm.bias.numpy(), norm.eps


@kernel
def product(x, affine, out, say):
    """out = x W + b; affine is W (K, N) and b."""
    weight, bias = affine
    for row in range(len(out)):
        for i in range(len(bias)):
            out[row, i] = bias[i]
    say[0], say[1], say[2] = out.shape[1], out.shape[0], x.shape[1]
    columns = np.intp(say.ctypes.data)
    rows, inner, plain, one = columns + 4, columns + 8, columns + 12, columns + 16
    W, X, Y = np.intp(weight.ctypes.data), np.intp(x.ctypes.data), np.intp(out.ctypes.data)
    # BLAS counts down columns: what lies row by row here is its transpose there, and Yᵀ = Wᵀ Xᵀ
    sgemm(plain, plain, columns, rows, inner, one, W, columns, X, inner, one, Y, columns)


@kernel
def look(at, layer, caches, now, scales):
    """The residual stream through self-attention and attention over the memory."""
    x, h, qkv, q, read, written, _, say = at
    self_qkv, self_output, self_norm, cross_query, cross_output, cross_norm = layer
    past, memory, lengths = caches
    n, ancestors, active = now
    rows, heads, d_k = len(x), past.shape[3], past.shape[4]
    product(h, self_qkv, qkv, say)
    look_back(qkv.reshape(rows, 3, heads, d_k), past, ancestors, active, n, scales[0], read.reshape(rows, heads, d_k))
    product(read, self_output, written, say)
    add_norm(x, written, self_norm, h)

    heads, d_k = memory.shape[3], memory.shape[4]
    product(h, cross_query, q, say)
    look_at_memory(q.reshape(rows, 1, heads, d_k), memory, lengths, active, scales[1], read.reshape(rows, heads, d_k))
    product(read, cross_output, written, say)
    add_norm(x, written, cross_norm, h)


@kernel
def look_into(at, layer, lengths, scale, heads):
    """The residual stream of R sources, each in as many rows, through self-attention."""
    x, h, qkv, _, read, written, _, say = at
    self_qkv, self_output, norm = layer
    rows, d_k = len(x), x.shape[1] // heads
    product(h, self_qkv, qkv, say)
    look_around(qkv.reshape(rows, 3, heads, d_k), lengths, scale, read.reshape(rows, heads, d_k))
    product(read, self_output, written, say)
    add_norm(x, written, norm, h)


@kernel
def widen(at, into, is_relu):
    """Into the feed-forward layer, and through its activation if that is a ReLU."""
    _, h, _, _, _, _, inner, say = at
    product(h, into, inner, say)
    if is_relu:
        for row in range(len(inner)):
            for i in range(inner.shape[1]):
                inner[row, i] = max(inner[row, i], np.float32(0))


@kernel
def narrow(at, out_of, norm):
    """Out of it."""
    x, h, _, _, _, written, inner, say = at
    product(inner, out_of, written, say)
    add_norm(x, written, norm, h)
