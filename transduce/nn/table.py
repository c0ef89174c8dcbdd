"""Vectors by their number: of tokens, and of positions where they are learned."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn import kernels


class Table(nn.Embedding):
    """A row for each number; on the fast path its gradient comes from kernels/table_gradient.py."""

    def forward(self, rows: Tensor) -> Tensor:
        return LookUp.apply(self.weight, rows) if kernels.in_use(self.weight) else super().forward(rows)


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
