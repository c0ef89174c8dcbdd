"""A kernel with nothing of ours in it. Where Triton's interpreter cannot run it, ours cannot be tried."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def row_sums(x, sums, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    total = tl.zeros((), tl.float32)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * columns + at, mask=at < columns, other=0.0), 0)
    tl.store(sums + row, total)


def try_it() -> None:
    x, sums = torch.arange(15.0).view(3, 5), torch.empty(3)
    row_sums[(3,)](x, sums, 5, BLOCK=4)
    assert torch.equal(sums, x.sum(1)), sums
