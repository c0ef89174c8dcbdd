"""Vectors from a table, with a gradient that is summed in one order, so that a run can be repeated to the bit.

The compiler would let every token add to its row of the gradient as it comes by, and on a GPU they come by in another
order each time. PyTorch's own operator sorts the tokens first; wrapped up here, the compiler leaves it alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn import kernels


@torch.library.custom_op("transduce::table_gradient", mutates_args=())
def table_gradient(d_x: Tensor, rows: Tensor, height: int) -> Tensor:
    """Of a table (height, D): to each row the sum of all d_x (..., D) that were read from it, by `rows` (...)."""
    return torch.ops.aten.embedding_dense_backward(d_x, rows, height, -1, False)


@table_gradient.register_fake
def _(d_x: Tensor, rows: Tensor, height: int) -> Tensor:
    return d_x.new_empty(height, d_x.size(-1))


class LookUp(torch.autograd.Function):
    """The rows of a table (height, D)."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.height = table.size(0)
        return F.embedding(rows, table)

    @staticmethod
    def backward(ctx: Any, d_x: Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        return table_gradient(d_x, rows, ctx.height), None


class Table(nn.Embedding):
    """Vectors by their number; a plain nn.Embedding but on the fast path."""

    def forward(self, rows: Tensor) -> Tensor:
        return LookUp.apply(self.weight, rows) if kernels.in_use(self.weight) else super().forward(rows)
