"""How well a key fits a query: the score functions, from which attention makes its weights.

Each takes queries (..., T, D_q) and keys (..., S, D_k) and gives scores (..., T, S), one row a query. With `heads`
the tensors have a dimension of heads before the last two, and every head has weights of its own.

Letters: x a key, q a query.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transduce.core.precision import matmul


class Product(NamedTuple):
    """A score as a plain product q kᵀ · scale, which is what fused kernels compute."""

    q: Tensor
    k: Tensor
    scale: float


class ScoreFunction(nn.Module):
    """A score that is a product in some form."""

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        q, k, scale = self.product(q, k)
        return q @ k.transpose(-2, -1) * scale

    def product(self, q: Tensor, k: Tensor) -> Product:
        raise AssertionError("each score says how it is a product, or has a forward of its own")

    is_product = True
    begins_large = False  # too large for a softmax, between random vectors of many dimensions


class Dot(ScoreFunction):
    """s(x, q) = xᵀ q"""

    begins_large = True

    def product(self, q: Tensor, k: Tensor) -> Product:
        return Product(q, k, 1.0)


class ScaledDot(ScoreFunction):
    """s(x, q) = xᵀ q / √D: the variance of a sum of D products is D, and this takes it back to 1."""

    def product(self, q: Tensor, k: Tensor) -> Product:
        return Product(q, k, 1 / math.sqrt(q.size(-1)))


class Bilinear(ScoreFunction):
    """s(x, q) = xᵀ W q; with a rank, W = UᵀV and s(x, q) = (U x)ᵀ (V q), which need not be symmetric.

    W begins as I / √D, the scaled dot, and UᵀV as that within a random subspace; they find their own way from there.
    A random start would saturate the softmax.
    """

    def __init__(self, d_k: int, d_q: int, heads: int | None = None, rank: int | None = None) -> None:
        super().__init__()
        self.W = _weight(heads, d_k, d_q) if rank is None else None
        with torch.no_grad():
            if self.W is not None:
                self.W.copy_(torch.eye(d_k, d_q) / math.sqrt(d_q))
            self.U = None if rank is None else _weight(heads, rank, d_k)
            self.V = None if rank is None else _weight(heads, rank, d_q)
            if self.U is not None and self.V is not None:
                axes = nn.init.orthogonal_(torch.empty(rank or 0, max(d_k, d_q)))
                self.U.copy_(axes[:, :d_k])
                self.V.copy_(axes[:, :d_q] / math.sqrt(d_q))

    def product(self, q: Tensor, k: Tensor) -> Product:
        if self.W is not None:
            return Product(matmul(q, self.W.transpose(-2, -1)), k, 1.0)  # W q of every query, then with every key
        assert self.U is not None
        assert self.V is not None
        return Product(matmul(q, self.V.transpose(-2, -1)), matmul(k, self.U.transpose(-2, -1)), 1.0)


class Additive(ScoreFunction):
    """s(x, q) = vᵀ tanh(W x + U q)"""

    is_product = False

    def __init__(self, d_k: int, d_q: int, heads: int | None = None, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or d_k
        self.W = _weight(heads, inner, d_k)
        self.U = _weight(heads, inner, d_q)
        self.v = _weight(heads, inner, 1)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        Wx, Uq = matmul(k, self.W.transpose(-2, -1)), matmul(q, self.U.transpose(-2, -1))
        inner = (Wx.unsqueeze(-3) + Uq.unsqueeze(-2)).tanh()  # (..., T, S, inner): every query with every key
        return matmul(inner, self.v.unsqueeze(-3)).squeeze(-1)


def _weight(heads: int | None, rows: int, columns: int) -> nn.Parameter:
    """A matrix, or one for each head; Xavier, as every matrix here."""
    weight = torch.empty(*([] if heads is None else [heads]), rows, columns)
    for matrix in weight.unbind(0) if heads is not None else [weight]:
        nn.init.xavier_uniform_(matrix)
    return nn.Parameter(weight)


def make_score(name: str, d_k: int, d_q: int, heads: int | None = None, rank: int | None = None) -> ScoreFunction:
    """By the name of the setting."""
    if name == "additive":
        return Additive(d_k, d_q, heads)
    if name == "bilinear":
        return Bilinear(d_k, d_q, heads, rank)
    return {"dot": Dot, "scaled": ScaledDot}[name]()
