"""Attention within sentences that share a row: what segment ids rule out is not stored, and skipped where it can be.

A row is cut into blocks of queries and blocks of keys. Two blocks whose ranges of segment ids do not meet have nothing
to say to each other and are passed over; in long rows that is most of them. The plain twin is `attend` in
core/attention.py, with the mask of core/masks.py.

q, k and v come as their projections leave them, in one tensor or in two, and their gradients go back the same way, so
that nothing is copied together or apart. Letters as everywhere (R rows, T queries, S keys, H heads, K, V); a pointer's
name ends in `_at` and is followed by its strides over rows and slots.

Forward, one program works on one block of queries of one row and head; backward, on all of one row and head, so that
the sums of a gradient are always taken in one order and a run can be repeated to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tile(at, stride, rows, columns, height, width):
    """A tile of a matrix, zeros beyond its edges; `stride` is that of its rows, columns lie side by side."""
    inside = (rows[:, None] < height) & (columns[None, :] < width)
    return tl.load(at + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _put(at, stride, rows, columns, height, width, value):
    inside = (rows[:, None] < height) & (columns[None, :] < width)
    tl.store(at + rows[:, None] * stride + columns[None, :], value.to(at.dtype.element_ty), mask=inside)


@triton.jit
def _meet(of_queries, of_keys, first_query, first_key, causal: tl.constexpr, QUERIES: tl.constexpr):
    """Whether any query of a block may look at any key of another; too often true where ids do not ascend."""
    far = 2147483647
    lowest_query = tl.min(tl.where(of_queries == 0, far, of_queries), 0)
    lowest_key = tl.min(tl.where(of_keys == 0, far, of_keys), 0)
    meet = (tl.max(of_queries, 0) >= lowest_key) & (tl.max(of_keys, 0) >= lowest_query)
    if causal:
        meet = meet & (first_key < first_query + QUERIES)
    return meet


@triton.jit
def _allowed(of_queries, of_keys, queries, keys, causal: tl.constexpr):
    """The mask of two blocks; given queries as a column and keys as a row, or the other way round."""
    allowed = (of_queries == of_keys) & (of_keys != 0)
    if causal:
        allowed = allowed & (queries >= keys)
    return allowed


@triton.jit
def _forward(
    q_at, q_r, q_t, k_at, k_r, k_t, v_at, v_r, v_t, out_at, norm_at, of_queries_at, of_keys_at, scale, H, T, S,
    K: tl.constexpr, V: tl.constexpr, K_TILE: tl.constexpr, V_TILE: tl.constexpr,
    causal: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One block of queries: softmax(q kᵀ scale) v over the blocks of keys it meets, and log Σ exp for backward."""
    r, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    first = tl.program_id(1) * QUERIES
    queries = first + tl.arange(0, QUERIES)
    k_columns, v_columns = tl.arange(0, K_TILE), tl.arange(0, V_TILE)
    q = _tile(q_at + r * q_r + h * K, q_t, queries, k_columns, T, K)
    of_queries = tl.load(of_queries_at + r * T + queries, mask=queries < T, other=0)

    highest = tl.full([QUERIES], -1.0e30, tl.float32)  # of the scores so far; finite, so that nothing gives NaN
    norm = tl.zeros([QUERIES], tl.float32)  # Σ exp(score - highest)
    summary = tl.zeros([QUERIES, V_TILE], tl.float32)
    for start in range(0, S, KEYS):
        keys = start + tl.arange(0, KEYS)
        of_keys = tl.load(of_keys_at + r * S + keys, mask=keys < S, other=0)
        if _meet(of_queries, of_keys, first, start, causal, QUERIES):
            k = _tile(k_at + r * k_r + h * K, k_t, keys, k_columns, S, K)
            v = _tile(v_at + r * v_r + h * V, v_t, keys, v_columns, S, V)
            allowed = _allowed(of_queries[:, None], of_keys[None, :], queries[:, None], keys[None, :], causal)
            scores = tl.where(allowed, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1.0e30)
            now = tl.maximum(highest, tl.max(scores, 1))
            weights = tl.where(allowed, tl.exp(scores - now[:, None]), 0.0)
            fade = tl.exp(highest - now)
            norm = norm * fade + tl.sum(weights, 1)
            summary = summary * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            highest = now

    some = tl.where(norm == 0.0, 1.0, norm)  # a query that may look at nothing gets zeros
    _put(out_at + r * T * H * V + h * V, H * V, queries, v_columns, T, V, summary / some[:, None])
    tl.store(norm_at + tl.program_id(0) * T + queries, highest + tl.log(some), mask=queries < T)


@triton.jit
def _backward(
    q_at, q_r, q_t, k_at, k_r, k_t, v_at, v_r, v_t, d_q_at, d_k_at, d_v_at, sum_at,
    out_at, d_out_at, norm_at, of_queries_at, of_keys_at, scale, H, T, S,
    K: tl.constexpr, V: tl.constexpr, K_TILE: tl.constexpr, V_TILE: tl.constexpr,
    causal: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, one: tl.constexpr,
):  # fmt: skip
    """One row and head: key blocks outside, query blocks inside. Gradients lie as what they are gradients of.

    The gradient of a key block is summed on the chip. That of a query block is complete at once where there is only
    `one` key block, and otherwise grows in float32 at `sum_at` as key blocks come by.
    """
    r, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    k_columns, v_columns = tl.arange(0, K_TILE), tl.arange(0, V_TILE)
    of_queries_at += r * T
    of_keys_at += r * S
    norm_at += tl.program_id(0) * T
    sum_at += tl.program_id(0) * T * K
    out_at += r * T * H * V + h * V
    d_out_at += r * T * H * V + h * V
    for start in range(0, S, KEYS):
        keys = start + tl.arange(0, KEYS)
        of_keys = tl.load(of_keys_at + keys, mask=keys < S, other=0)
        k = _tile(k_at + r * k_r + h * K, k_t, keys, k_columns, S, K)
        v = _tile(v_at + r * v_r + h * V, v_t, keys, v_columns, S, V)
        d_k = tl.zeros([KEYS, K_TILE], tl.float32)
        d_v = tl.zeros([KEYS, V_TILE], tl.float32)
        for first in range(0, T, QUERIES):
            queries = first + tl.arange(0, QUERIES)
            of_queries = tl.load(of_queries_at + queries, mask=queries < T, other=0)
            if one or _meet(of_queries, of_keys, first, start, causal, QUERIES):
                q = _tile(q_at + r * q_r + h * K, q_t, queries, k_columns, T, K)
                out = _tile(out_at, H * V, queries, v_columns, T, V)
                d_out = _tile(d_out_at, H * V, queries, v_columns, T, V)
                norm = tl.load(norm_at + queries, mask=queries < T, other=0.0)
                allowed = _allowed(of_queries[None, :], of_keys[:, None], queries[None, :], keys[:, None], causal)
                scores = tl.dot(k, tl.trans(q), input_precision="ieee") * scale  # transposed: (keys, queries)
                weights = tl.exp(tl.where(allowed, scores - norm[None, :], -1.0e30))

                d_v += tl.dot(weights.to(d_out.dtype), d_out, input_precision="ieee")
                d_weights = tl.dot(v, tl.trans(d_out), input_precision="ieee")
                mean = tl.sum(d_out.to(tl.float32) * out.to(tl.float32), 1)  # Σ weights · d_weights of a query
                d_scores = (weights * (d_weights - mean[None, :]) * scale).to(q.dtype)
                d_k += tl.dot(d_scores, q, input_precision="ieee")
                d_q = tl.dot(tl.trans(d_scores), k, input_precision="ieee")
                if one:
                    _put(d_q_at + r * q_r + h * K, q_t, queries, k_columns, T, K, d_q)
                else:
                    _put(sum_at, K, queries, k_columns, T, K, d_q + _tile(sum_at, K, queries, k_columns, T, K))
                    tl.debug_barrier()  # what is written here is read again at the next key block
        _put(d_k_at + r * k_r + h * K, k_t, keys, k_columns, S, K, d_k)
        _put(d_v_at + r * v_r + h * V, v_t, keys, v_columns, S, V, d_v)


class Parts(NamedTuple):
    """Views of the three projections; each slot holds all heads side by side."""

    q: Tensor  # (R, T, H*K)
    k: Tensor  # (R, S, H*K)
    v: Tensor  # (R, S, H*V)

    def located(self) -> list[Tensor | int]:
        """Each part with its strides over rows and slots."""
        return [item for part in self for item in (part, part.stride(0), part.stride(1))]


def parts(packed: Sequence[Tensor], width: int) -> Parts:
    """q, k and v from one tensor that holds all three, or from q and one that holds k and v; `width` is H*K."""
    if len(packed) == 2:
        return Parts(packed[0], packed[1][..., :width], packed[1][..., width:])
    return Parts(packed[0][..., :width], packed[0][..., width : 2 * width], packed[0][..., 2 * width :])


def _sizes(p: Parts, heads: int) -> dict[str, int]:
    K, V = p.q.size(2) // heads, p.v.size(2) // heads
    tiles = {"K_TILE": max(16, triton.next_power_of_2(K)), "V_TILE": max(16, triton.next_power_of_2(V))}
    return {"H": heads, "T": p.q.size(1), "S": p.k.size(1), "K": K, "V": V, **tiles}


def _forward_work(slots: int, dtype: torch.dtype, searched: bool) -> dict[str, int]:
    """How many queries and keys are worked on together, and by how many warps: found by trying on an H200.

    Rows that are `searched` hold one short sentence each. They get small tiles whatever their width is, so that a
    sentence comes out the same beside a longer one.
    """
    if searched:
        return {"QUERIES": 32, "KEYS": 32, "num_warps": 4 if dtype == torch.float32 else 1}
    if slots <= 64 or dtype == torch.float32:
        return {"QUERIES": 64, "KEYS": 64, "num_warps": 4}
    return {"QUERIES": 128, "KEYS": 64, "num_warps": 4}


def _backward_work(slots: int, dtype: torch.dtype, causal: bool) -> dict[str, int]:
    """The same for backward, where one block of keys for the whole row saves most."""
    if slots <= 64 or dtype == torch.float32:
        return {"QUERIES": 32, "KEYS": 64, "num_warps": 4}
    if slots <= 128:
        return {"QUERIES": 16, "KEYS": 128, "num_warps": 4} if causal else {"QUERIES": 64, "KEYS": 128, "num_warps": 8}
    return {"QUERIES": 64, "KEYS": 64, "num_warps": 4}


@torch.library.custom_op("transduce::segment_attention", mutates_args=())
def segment_attention(
    packed: Sequence[Tensor], heads: int, d_k: int, of_queries: Tensor, of_keys: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / √d_k) V within sentences (R, T, H*V), and log Σ exp of each query's scores (R, H, T).

    `packed` as for `parts`; segment ids `of_queries` (R, T) and `of_keys` (R, S).
    """
    p = parts([x.contiguous() for x in packed], heads * d_k)
    R, T, S = p.q.size(0), p.q.size(1), p.k.size(1)
    out, norm = _room(packed, heads, d_k)
    work = _forward_work(max(S, T), out.dtype, searched=p.q.is_inference())
    _forward[(R * heads, triton.cdiv(T, work["QUERIES"]))](
        *p.located(), out, norm, of_queries.contiguous(), of_keys.contiguous(), 1 / math.sqrt(d_k),
        causal=causal, **_sizes(p, heads), **work,
    )  # fmt: skip
    return out, norm


def _room(packed: Sequence[Tensor], heads: int, d_k: int) -> tuple[Tensor, Tensor]:
    p = parts(packed, heads * d_k)
    R, T = p.q.shape[:2]
    return p.q.new_empty(R, T, p.v.size(2)), p.q.new_empty(R, heads, T, dtype=torch.float32)


@segment_attention.register_fake
def _(
    packed: Sequence[Tensor], heads: int, d_k: int, of_queries: Tensor, of_keys: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    return _room(packed, heads, d_k)


@torch.library.custom_op("transduce::segment_attention_backward", mutates_args=())
def segment_attention_backward(
    packed: Sequence[Tensor], heads: int, d_k: int, of_queries: Tensor, of_keys: Tensor, causal: bool,
    out: Tensor, norm: Tensor, d_out: Tensor,
) -> list[Tensor]:  # fmt: skip
    """The gradient of each tensor in `packed`."""
    packed = [x.contiguous() for x in packed]
    gradients = [torch.empty_like(x) for x in packed]
    p, d = parts(packed, heads * d_k), parts(gradients, heads * d_k)
    R, T, S = p.q.size(0), p.q.size(1), p.k.size(1)
    work = _backward_work(max(S, T), out.dtype, causal)
    one = work["KEYS"] >= S
    sums = out.new_zeros(0 if one else (R, heads, T, d_k), dtype=torch.float32)
    _backward[(R * heads,)](
        *p.located(), *d, sums, out, d_out.contiguous(), norm, of_queries.contiguous(), of_keys.contiguous(),
        1 / math.sqrt(d_k), causal=causal, one=one, **_sizes(p, heads), **work,
    )  # fmt: skip
    if not one:
        d.q.copy_(sums.transpose(1, 2).flatten(2))
    return gradients


@segment_attention_backward.register_fake
def _(
    packed: Sequence[Tensor], heads: int, d_k: int, of_queries: Tensor, of_keys: Tensor, causal: bool,
    out: Tensor, norm: Tensor, d_out: Tensor,
) -> list[Tensor]:  # fmt: skip
    return [x.new_empty(x.shape) for x in packed]


def _keep(ctx, inputs, output) -> None:
    packed, ctx.heads, ctx.d_k, of_queries, of_keys, ctx.causal = inputs
    ctx.save_for_backward(*packed, of_queries, of_keys, *output)


def _gradients(ctx, d_out, d_norm):
    *packed, of_queries, of_keys, out, norm = ctx.saved_tensors
    gradients = segment_attention_backward(
        packed, ctx.heads, ctx.d_k, of_queries, of_keys, ctx.causal, out, norm, d_out
    )
    return gradients, None, None, None, None, None


segment_attention.register_autograd(_gradients, setup_context=_keep)
