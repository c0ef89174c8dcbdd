"""The gradient of a table that vectors were read from: to each row the sum of what comes back to it.

The tokens are sorted, so that those of a row stand together, and a row is summed by one program: always in one order,
so that a run can be repeated to the bit. (The compiler lets tokens add to their rows as they come by, and on a GPU they
come in another order each time.) A few words make up half of a text, and one program would be at them for long: where a
whole chunk of sorted tokens is of one row, another program has summed it before.

The plain twin is PyTorch's. A pointer's name ends in `_at`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 32  # sorted tokens; this and the tiles below were found by trying on an H200
CHUNK_COLUMNS, CHUNK_WARPS = 256, 4
TOKENS, COLUMNS = 4, 512


@triton.jit
def _sum_of_chunk(d_x_at, tokens_at, order_at, sums_at, width, CHUNK: tl.constexpr, COLUMNS: tl.constexpr):
    """Where all tokens of a chunk are the same."""
    chunk = tl.program_id(0)
    if tl.load(tokens_at + chunk * CHUNK) == tl.load(tokens_at + chunk * CHUNK + CHUNK - 1):
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        places = tl.load(order_at + chunk * CHUNK + tl.arange(0, CHUNK))
        d_x = tl.load(d_x_at + places[:, None] * width + columns[None, :], mask=columns[None, :] < width, other=0.0)
        tl.store(sums_at + chunk * width + columns, tl.sum(d_x.to(tl.float32), 0), mask=columns < width)


@triton.jit
def _sum_of_row(
    d_x_at, order_at, begins_at, sums_at, out_at, width,
    CHUNK: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The tokens before its first whole chunk, the whole chunks, the tokens after the last."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    begin, end = tl.load(begins_at + row), tl.load(begins_at + row + 1)
    first, last = tl.cdiv(begin, CHUNK), end // CHUNK
    before = end if first >= last else first * CHUNK
    after = end if first >= last else last * CHUNK
    total = tl.zeros([TOKENS, COLUMNS], tl.float32)
    for start in range(begin, before, TOKENS):
        total += _some(d_x_at, order_at, start, before, columns, width, TOKENS)
    for start in range(first, last, TOKENS):
        chunks = start + tl.arange(0, TOKENS)
        inside = (chunks[:, None] < last) & (columns[None, :] < width)
        total += tl.load(sums_at + chunks[:, None] * width + columns[None, :], mask=inside, other=0.0)
    for start in range(after, end, TOKENS):
        total += _some(d_x_at, order_at, start, end, columns, width, TOKENS)
    place = row.to(tl.int64) * width + columns
    tl.store(out_at + place, tl.sum(total, 0).to(out_at.dtype.element_ty), mask=columns < width)


@triton.jit
def _some(d_x_at, order_at, start, end, columns, width, TOKENS: tl.constexpr):
    """What comes back to some tokens from `start` on; zeros beyond the end."""
    tokens = start + tl.arange(0, TOKENS)
    places = tl.load(order_at + tokens, mask=tokens < end, other=0)
    inside = (tokens[:, None] < end) & (columns[None, :] < width)
    return tl.load(d_x_at + places[:, None] * width + columns[None, :], mask=inside, other=0.0).to(tl.float32)


@torch.library.custom_op("transduce::table_gradient", mutates_args=())
def table_gradient(d_x: Tensor, rows: Tensor, height: int) -> Tensor:
    """The gradient of a table (height, D) whose `rows` (...) were read and came back with d_x (..., D)."""
    d_x, width = d_x.contiguous(), d_x.size(-1)
    tokens, order = rows.flatten().int().sort(stable=True)
    begins = torch.searchsorted(tokens, torch.arange(height + 1, dtype=torch.int32, device=rows.device))
    chunks = tokens.numel() // CHUNK
    sums = d_x.new_empty(chunks, width, dtype=torch.float32)
    columns = min(CHUNK_COLUMNS, triton.next_power_of_2(width))
    if chunks:
        grid = (chunks, triton.cdiv(width, columns))
        _sum_of_chunk[grid](d_x, tokens, order, sums, width, CHUNK, columns, num_warps=CHUNK_WARPS)
    out = d_x.new_empty(height, width)
    columns = min(COLUMNS, triton.next_power_of_2(width))
    grid = (height, triton.cdiv(width, columns))
    warps = max(1, columns // 128)
    _sum_of_row[grid](d_x, order, begins, sums, out, width, CHUNK, TOKENS, columns, num_warps=warps)
    return out


@table_gradient.register_fake
def _(d_x: Tensor, rows: Tensor, height: int) -> Tensor:
    return d_x.new_empty(height, d_x.size(-1))
