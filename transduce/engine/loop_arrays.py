"""What layers in compiled loops (loops.py) read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.core.precision import Affine
from transduce.engine import loops
from transduce.engine.weights import Norm

Array = np.ndarray
Product = tuple[Array, Array]  # W (K, N) and b
NormArrays = tuple[Array, Array, float]  # γ, β, ε


class Buffers(NamedTuple):
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
    def make(rows: int, d_model: int, d_ff: int, norm_before: bool) -> Buffers:
        widths = d_model, d_model, 3 * d_model, d_model, d_model, d_model, d_ff
        x, h, qkv, q, read, written, inner = (np.zeros((rows, width), np.float32) for width in widths)
        say = np.array([0, 0, 0, ord("N"), np.float32(1).view(np.int32)], np.int32)
        return Buffers(x, h if norm_before else x, qkv, q, read, written, inner, say)

    def first(self, rows: int) -> Buffers:
        """The same memory for fewer rows."""
        x, h, qkv, q, read, written, inner = (each[:rows] for each in self[:-1])
        return Buffers(x, h, qkv, q, read, written, inner, self.say)


class FeedForwardArrays(NamedTuple):
    """A feed-forward layer, and the norm behind it."""

    inner: Product
    outer: Product
    norm: NormArrays
    activation: Callable[[Tensor], Tensor]

    def __call__(self, at: Buffers) -> None:
        is_relu = self.activation is F.relu
        loops.widen(at, self.inner, is_relu)
        if not is_relu:
            at.inner[:] = self.activation(torch.from_numpy(at.inner)).numpy()
        loops.narrow(at, self.outer, self.norm)


def as_product(affine: Affine) -> Product:
    weight = affine.weight.t().contiguous().numpy()
    return weight, np.zeros(weight.shape[1], np.float32) if affine.bias is None else affine.bias.numpy()


def as_norm(norm: Norm | None) -> NormArrays:
    assert norm is not None  # who asks has seen to that
    return norm.weight.numpy(), norm.bias.numpy(), norm.eps
