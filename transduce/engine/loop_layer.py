"""Layers for compiled loops (loops.py), the products between them by BLAS: no Python within.

Batches are searched beside each other in threads, and Python runs one of them at a time; each product that is called
from it would wait for the other thread.
"""

from __future__ import annotations

import numpy as np

from transduce.compiled import external, kernel
from transduce.engine.blas import address_of_sgemm
from transduce.engine.loops import add_norm, look_around, look_at_memory, look_back

sgemm = external("sgemm_of_pytorch", address_of_sgemm() or 0, 13)


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
    w, x_, y = np.intp(weight.ctypes.data), np.intp(x.ctypes.data), np.intp(out.ctypes.data)
    # BLAS counts down columns: what lies row by row here is its transpose there, and Yᵀ = Wᵀ Xᵀ
    sgemm(plain, plain, columns, rows, inner, one, w, columns, x_, inner, one, y, columns)


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
