"""Backward of max(0, inner): the gradient where inner > 0, and its sum over rows, which is the gradient of the bias.

One pass where the compiler needs two: the sums are taken while the numbers are at hand. The plain twin stands in
`feed_forward.py`. Each program works on some columns of some rows; a pointer's name ends in `_at`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS, WARPS = 32, 128, 4  # of a tile: found by trying on an H200
PROGRAMS = 132 * 8  # for each of 132 units


@triton.jit
def _relu_gradient(d_at, inner_at, out_at, sums_at, R, width, each, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    first = tl.program_id(1) * each
    for start in range(first, tl.minimum(first + each, R), ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows[:, None] < tl.minimum(first + each, R)) & (columns[None, :] < width)
        place = rows[:, None].to(tl.int64) * width + columns[None, :]
        inner = tl.load(inner_at + place, mask=inside, other=0.0)
        d = tl.where(inner > 0, tl.load(d_at + place, mask=inside, other=0.0), 0.0)
        tl.store(out_at + place, d, mask=inside)
        total += tl.sum(d.to(tl.float32), 0)
    tl.store(sums_at + tl.program_id(1) * width + columns, total, mask=columns < width)


@torch.library.custom_op("transduce::relu_gradient", mutates_args=())
def relu_gradient(d: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    """d (R, F) where inner > 0, else 0; and its sum over R in float32."""
    d, inner = d.contiguous(), inner.contiguous()
    (R, width), out = d.shape, torch.empty_like(d)
    across = triton.cdiv(width, COLUMNS)
    each = triton.cdiv(triton.cdiv(R, max(1, PROGRAMS // across)), ROWS) * ROWS
    sums = d.new_empty(triton.cdiv(R, each), width, dtype=torch.float32)
    _relu_gradient[(across, len(sums))](d, inner, out, sums, R, width, each, ROWS, COLUMNS, num_warps=WARPS)
    return out, sums.sum(0)


@relu_gradient.register_fake
def _(d: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(d), d.new_empty(d.size(1), dtype=torch.float32)
