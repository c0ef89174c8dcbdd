"""LayerNorm(x + Dropout(written)) in one pass each way; the plain twin is `Residual.leave` in core/layers.py.

Little is stored for the way back. Which numbers were dropped: backward draws the same random bits again from the same
seed. What the norm read: it follows from what the norm wrote, normed = (y - β) / γ (as in Apex' memory-efficient norm),
and y is kept anyway by the products that read it.
R are the rows of a matrix here, D its columns (rounded up to a power of two); a pointer's name ends in `_at`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LEAST = tl.constexpr(1e-4)  # a γ nearer to 0 than this counts as this where it is divided by


@triton.jit
def _kept(seed_at, row, p, D: tl.constexpr):
    """1 / (1 - p) where a number is kept, 0 where it is dropped; one draw of four random words serves four columns."""
    a, b, c, d = tl.randint4x(tl.load(seed_at), row * (D // 4) + tl.arange(0, D // 4), n_rounds=7)
    words = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (D,))
    return tl.where(tl.uint_to_uniform_float(words) >= p, 1.0 / (1.0 - p), 0.0)


@triton.jit
def _forward(
    x_at, written_at, weight_at, bias_at, seed_at, scale_at, y_at, p, eps,
    width: tl.constexpr, D: tl.constexpr, drop: tl.constexpr,
):  # fmt: skip
    """One row."""
    row, columns = tl.program_id(0), tl.arange(0, D)
    inside = columns < width
    written = tl.load(written_at + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    if drop:
        written = written * _kept(seed_at, row, p, D)
    total = tl.load(x_at + row * width + columns, mask=inside, other=0.0).to(tl.float32) + written

    mean = tl.sum(total, 0) / width
    centred = tl.where(inside, total - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    tl.store(scale_at + row, scale)
    weight = tl.load(weight_at + columns, mask=inside, other=0.0)
    bias = tl.load(bias_at + columns, mask=inside, other=0.0)
    y = centred * scale * weight + bias
    tl.store(y_at + row * width + columns, y.to(y_at.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    y_at, scale_at, d_y_at, weight_at, bias_at, seed_at, d_x_at, d_written_at, d_weights_at, R, each, p,
    width: tl.constexpr, D: tl.constexpr, drop: tl.constexpr,
):  # fmt: skip
    """`each` rows, one after the other."""
    columns = tl.arange(0, D)
    inside = columns < width
    weight = tl.load(weight_at + columns, mask=inside, other=1.0)
    bias = tl.load(bias_at + columns, mask=inside, other=0.0)
    one_over = 1.0 / tl.where(tl.abs(weight) < LEAST, tl.where(weight < 0, -LEAST, LEAST), weight)
    d_weight, d_bias = tl.zeros([D], tl.float32), tl.zeros([D], tl.float32)
    first = tl.program_id(0) * each
    for row in range(first, tl.minimum(first + each, R)):
        place = row * width + columns
        y = tl.load(y_at + place, mask=inside, other=0.0).to(tl.float32)
        d_y = tl.load(d_y_at + place, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scale_at + row)
        normed = tl.where(inside, (y - bias) * one_over, 0.0)
        d_weight += d_y * normed
        d_bias += d_y
        d_normed = d_y * weight
        d_x = (d_normed - tl.sum(d_normed, 0) / width - normed * (tl.sum(d_normed * normed, 0) / width)) * scale
        tl.store(d_x_at + place, d_x.to(d_x_at.dtype.element_ty), mask=inside)
        if drop:
            d_x = d_x * _kept(seed_at, row, p, D)
        tl.store(d_written_at + place, d_x.to(d_x_at.dtype.element_ty), mask=inside)
    tl.store(d_weights_at + tl.program_id(0) * 2 * width + columns, d_weight, mask=inside)
    tl.store(d_weights_at + (tl.program_id(0) * 2 + 1) * width + columns, d_bias, mask=inside)


def _warps(width: int) -> int:
    """Found by trying on an H200: the fewer, the less they wait for each other at a sum."""
    return 1 if width <= 256 else 2 if width <= 1024 else 8


def _programs(width: int) -> int:
    """Programs of backward, each of which sums gradients of γ and β over its rows; for each of 132 units 16, or 8."""
    return 132 * (16 if width <= 512 else 8)


@torch.library.custom_op("transduce::residual_norm", mutates_args=())
def residual_norm(
    x: Tensor, written: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, p: float, eps: float
) -> tuple[Tensor, Tensor]:
    """LayerNorm(x + Dropout(written)), and for backward the 1 / deviation of each row. `seed` holds one number."""
    x, written = x.contiguous(), written.contiguous()
    y, scale = _room(x)
    width = x.size(-1)
    _forward[(scale.numel(),)](
        x, written, weight, bias, seed, scale, y, p, eps,
        width, triton.next_power_of_2(width), p > 0, num_warps=_warps(width),
    )  # fmt: skip
    return y, scale


def _room(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)


@residual_norm.register_fake
def _(
    x: Tensor, written: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, p: float, eps: float
) -> tuple[Tensor, Tensor]:
    return _room(x)


@torch.library.custom_op("transduce::residual_norm_backward", mutates_args=())
def residual_norm_backward(
    y: Tensor, scale: Tensor, d_y: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, p: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, of written, and of weight and bias together (2, D)."""
    d_y = d_y.contiguous()
    d_x, d_written = torch.empty_like(y), torch.empty_like(y)
    width, R = y.size(-1), scale.numel()
    each = triton.cdiv(R, _programs(width))
    programs = triton.cdiv(R, each)
    d_weights = weight.new_empty(programs, 2, width)
    _backward[(programs,)](
        y, scale, d_y, weight, bias, seed, d_x, d_written, d_weights, R, each, p,
        width, triton.next_power_of_2(width), p > 0, num_warps=_warps(width),
    )  # fmt: skip
    return d_x, d_written, d_weights.sum(0)


@residual_norm_backward.register_fake
def _(
    y: Tensor, scale: Tensor, d_y: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, p: float
) -> tuple[Tensor, Tensor, Tensor]:
    return y.new_empty(y.shape), y.new_empty(y.shape), weight.new_empty(2, *weight.shape)


def _keep(ctx, inputs, output) -> None:
    _, _, weight, bias, seed, ctx.p, _ = inputs
    ctx.save_for_backward(*output, weight, bias, seed)


def _gradients(ctx, d_y, _):
    y, scale, weight, bias, seed = ctx.saved_tensors
    d_x, d_written, d_weights = residual_norm_backward(y, scale, d_y, weight, bias, seed, ctx.p)
    return d_x, d_written, d_weights[0], d_weights[1], None, None, None


residual_norm.register_autograd(_gradients, setup_context=_keep)
