"""Attention over rows of several sentences in Triton: what the segment ids rule out is neither computed nor stored.

A row is cut into blocks of queries and blocks of keys. Segment ids ascend along a row, so two blocks whose ranges of
ids do not meet have nothing to say to each other and are skipped; with sentences of 25 tokens in rows of 128 or more
that is most of them. `nn/attention.py` holds the plain twin; the tests hold the two together, on a CPU through
Triton's interpreter (TRITON_INTERPRET=1).

Letters as everywhere (R rows, T queries, S keys, H heads, K, V); a pointer's name ends in `_at`, its strides follow.
One program works on one row and head: forward on one block of queries, backward on all of it, so that the sums of a
gradient are always taken in one order and a run can be repeated to the bit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without it (macOS, or torch for CPUs) takes PyTorch's own kernels
    triton = None

WIDEST = 128  # a head's width that fits on the chip


def fits(q: Tensor, v: Tensor, dropout: float) -> bool:
    """Whether these kernels can do the work; they know no dropout on the weights."""
    return triton is not None and dropout == 0.0 and max(q.size(-1), v.size(-1)) <= WIDEST


if triton is not None:

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
    def _meet(of_queries, of_keys, first_query, first_key, causal: tl.constexpr, block: tl.constexpr):
        """Whether any query of a block may look at any key of another; a superset where ids do not ascend."""
        far = 2147483647
        lowest_query = tl.min(tl.where(of_queries == 0, far, of_queries), 0)
        lowest_key = tl.min(tl.where(of_keys == 0, far, of_keys), 0)
        meet = (tl.max(of_queries, 0) >= lowest_key) & (tl.max(of_keys, 0) >= lowest_query)
        if causal:
            meet = meet & (first_key < first_query + block)
        return meet

    @triton.jit
    def _may_look(of_queries, of_keys, queries, keys, causal: tl.constexpr):
        """The mask of two blocks; given queries as a column and keys as a row, or the other way round."""
        may_look = (of_queries == of_keys) & (of_keys != 0)
        if causal:
            may_look = may_look & (queries >= keys)
        return may_look

    @triton.jit
    def _forward(
        q_at, q_r, q_h, q_t, k_at, k_r, k_h, k_t, v_at, v_r, v_h, v_t, out_at, out_r, out_h, out_t,
        of_queries_at, of_keys_at, norm_at, scale, H, T, S, K: tl.constexpr, V: tl.constexpr,
        K_TILE: tl.constexpr, V_TILE: tl.constexpr, causal: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """One block of queries: softmax(q kᵀ scale) v over the blocks of keys it meets, and log Σ exp for backward."""
        r, h = tl.program_id(0) // H, tl.program_id(0) % H
        first = tl.program_id(1) * block
        queries = first + tl.arange(0, block)
        k_columns, v_columns = tl.arange(0, K_TILE), tl.arange(0, V_TILE)
        q = _tile(q_at + r * q_r + h * q_h, q_t, queries, k_columns, T, K)
        of_queries = tl.load(of_queries_at + r * T + queries, mask=queries < T, other=0)

        highest = tl.full([block], -1.0e30, tl.float32)  # of the scores so far; finite, so that nothing gives NaN
        norm = tl.zeros([block], tl.float32)  # Σ exp(score - highest)
        summary = tl.zeros([block, V_TILE], tl.float32)
        for start in range(0, S, block):
            keys = start + tl.arange(0, block)
            of_keys = tl.load(of_keys_at + r * S + keys, mask=keys < S, other=0)
            if _meet(of_queries, of_keys, first, start, causal, block):
                k = _tile(k_at + r * k_r + h * k_h, k_t, keys, k_columns, S, K)
                v = _tile(v_at + r * v_r + h * v_h, v_t, keys, v_columns, S, V)
                may_look = _may_look(of_queries[:, None], of_keys[None, :], queries[:, None], keys[None, :], causal)
                scores = tl.where(may_look, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1.0e30)
                now = tl.maximum(highest, tl.max(scores, 1))
                weights = tl.where(may_look, tl.exp(scores - now[:, None]), 0.0)
                fade = tl.exp(highest - now)
                norm = norm * fade + tl.sum(weights, 1)
                new = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
                summary = summary * fade[:, None] + new
                highest = now

        some = tl.where(norm == 0.0, 1.0, norm)  # a query that may look at nothing gets zeros
        _put(out_at + r * out_r + h * out_h, out_t, queries, v_columns, T, V, summary / some[:, None])
        tl.store(norm_at + tl.program_id(0) * T + queries, highest + tl.log(some), mask=queries < T)

    @triton.jit
    def _backward(
        q_at, q_r, q_h, q_t, k_at, k_r, k_h, k_t, v_at, v_r, v_h, v_t, out_at, out_r, out_h, out_t,
        d_out_at, d_out_r, d_out_h, d_out_t, d_q_at, d_q_r, d_q_h, d_q_t, d_k_at, d_k_r, d_k_h, d_k_t,
        d_v_at, d_v_r, d_v_h, d_v_t, sum_at, of_queries_at, of_keys_at, norm_at, scale, H, T, S,
        K: tl.constexpr, V: tl.constexpr, K_TILE: tl.constexpr, V_TILE: tl.constexpr,
        causal: tl.constexpr, block: tl.constexpr, one_block: tl.constexpr,
    ):  # fmt: skip
        """One row and head: key blocks outside, query blocks inside.

        The gradient of a key block is summed on the chip. That of a query block grows in float32 at `sum_at` as key
        blocks come by, or is done at once where there is only one.
        """
        r, h = tl.program_id(0) // H, tl.program_id(0) % H
        k_columns, v_columns = tl.arange(0, K_TILE), tl.arange(0, V_TILE)
        of_queries_at += r * T
        of_keys_at += r * S
        norm_at += tl.program_id(0) * T
        sum_at += tl.program_id(0) * T * K
        for start in range(0, S, block):
            keys = start + tl.arange(0, block)
            of_keys = tl.load(of_keys_at + keys, mask=keys < S, other=0)
            k = _tile(k_at + r * k_r + h * k_h, k_t, keys, k_columns, S, K)
            v = _tile(v_at + r * v_r + h * v_h, v_t, keys, v_columns, S, V)
            d_k = tl.zeros([block, K_TILE], tl.float32)
            d_v = tl.zeros([block, V_TILE], tl.float32)
            for first in range(0, T, block):
                queries = first + tl.arange(0, block)
                of_queries = tl.load(of_queries_at + queries, mask=queries < T, other=0)
                if one_block or _meet(of_queries, of_keys, first, start, causal, block):
                    q = _tile(q_at + r * q_r + h * q_h, q_t, queries, k_columns, T, K)
                    out = _tile(out_at + r * out_r + h * out_h, out_t, queries, v_columns, T, V)
                    d_out = _tile(d_out_at + r * d_out_r + h * d_out_h, d_out_t, queries, v_columns, T, V)
                    norm = tl.load(norm_at + queries, mask=queries < T, other=0.0)
                    may_look = _may_look(of_queries[None, :], of_keys[:, None], queries[None, :], keys[:, None], causal)
                    scores = tl.dot(k, tl.trans(q), input_precision="ieee") * scale  # transposed: (keys, queries)
                    weights = tl.exp(tl.where(may_look, scores - norm[None, :], -1.0e30))

                    d_v += tl.dot(weights.to(d_out.dtype), d_out, input_precision="ieee")
                    d_weights = tl.dot(v, tl.trans(d_out), input_precision="ieee")
                    mean = tl.sum(d_out.to(tl.float32) * out.to(tl.float32), 1)  # Σ weights · d_weights of a query
                    d_scores = (weights * (d_weights - mean[None, :]) * scale).to(q.dtype)
                    d_k += tl.dot(d_scores, q, input_precision="ieee")
                    d_q = tl.dot(tl.trans(d_scores), k, input_precision="ieee")
                    if one_block:
                        _put(d_q_at + r * d_q_r + h * d_q_h, d_q_t, queries, k_columns, T, K, d_q)
                    else:
                        _put(sum_at, K, queries, k_columns, T, K, d_q + _tile(sum_at, K, queries, k_columns, T, K))
                        tl.debug_barrier()  # what is written here is read again at the next key block
            _put(d_k_at + r * d_k_r + h * d_k_h, d_k_t, keys, k_columns, S, K, d_k)
            _put(d_v_at + r * d_v_r + h * d_v_h, d_v_t, keys, v_columns, S, V, d_v)


def _strides(x: Tensor) -> tuple[int, int, int]:
    """Of rows, heads and slots of (R, H, T, K)."""
    assert x.stride(3) == 1
    return x.stride(0), x.stride(1), x.stride(2)


def _like(x: Tensor, width: int) -> Tensor:
    """Room for (R, H, T, width) that lies as (R, T, H, width), ready to be concatenated over heads."""
    return x.new_empty(x.size(0), x.size(2), x.size(1), width).transpose(1, 2)


def _block(slots: int) -> dict[str, int]:
    """Slots of a row that are worked on together, and the warps that do it."""
    return {"block": 64, "num_warps": 4} if slots <= 64 else {"block": 128, "num_warps": 8}


def _tiles(k_width: int, v_width: int) -> tuple[int, int]:
    """Powers of two that hold the widths of a head."""
    return max(16, triton.next_power_of_2(k_width)), max(16, triton.next_power_of_2(v_width))


@torch.library.custom_op("transduce::segment_attention", mutates_args=())
def segment_attention(
    q: Tensor, k: Tensor, v: Tensor, of_queries: Tensor, of_keys: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / √d_k) V within sentences, and log Σ exp of each query's scores (R, H, T).

    q (R, H, T, K), k (R, H, S, K), v (R, H, S, V); segment ids `of_queries` (R, T), `of_keys` (R, S).
    """
    (R, H, T, K), S, V = q.shape, k.size(2), v.size(3)
    out, norm = _like(q, V), q.new_empty(R, H, T, dtype=torch.float32)
    k_tile, v_tile = _tiles(K, V)
    work = _block(max(S, T))
    _forward[(R * H, triton.cdiv(T, work["block"]))](
        q, *_strides(q), k, *_strides(k), v, *_strides(v), out, *_strides(out),
        of_queries, of_keys, norm, 1 / math.sqrt(K), H, T, S, K, V, k_tile, v_tile, causal, **work,
    )  # fmt: skip
    return out, norm


@segment_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, of_queries: Tensor, of_keys: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    return _like(q, v.size(3)), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("transduce::segment_attention_backward", mutates_args=())
def segment_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, of_queries: Tensor, of_keys: Tensor, causal: bool,
    out: Tensor, norm: Tensor, d_out: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    (R, H, T, K), S, V = q.shape, k.size(2), v.size(3)
    d_out = d_out if d_out.stride(3) == 1 else d_out.contiguous()
    d_q, d_k, d_v = _like(q, K), _like(k, K), _like(v, V)
    work = _block(max(S, T))
    one_block = max(S, T) <= work["block"]
    sums = q.new_empty(0, dtype=torch.float32) if one_block else q.new_zeros(R, H, T, K, dtype=torch.float32)
    k_tile, v_tile = _tiles(K, V)
    _backward[(R * H,)](
        q, *_strides(q), k, *_strides(k), v, *_strides(v), out, *_strides(out), d_out, *_strides(d_out),
        d_q, *_strides(d_q), d_k, *_strides(d_k), d_v, *_strides(d_v), sums, of_queries, of_keys, norm,
        1 / math.sqrt(K), H, T, S, K, V, k_tile, v_tile, causal, one_block=one_block, **work,
    )  # fmt: skip
    return (d_q if one_block else d_q.copy_(sums)), d_k, d_v


@segment_attention_backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, of_queries: Tensor, of_keys: Tensor, causal: bool,
    out: Tensor, norm: Tensor, d_out: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _like(q, q.size(3)), _like(k, k.size(3)), _like(v, v.size(3))


def _keep(ctx, inputs, output) -> None:  # noqa: ANN001
    q, k, v, of_queries, of_keys, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, of_queries, of_keys, *output)


def _gradients(ctx, d_out, d_norm):  # noqa: ANN001, ANN202
    q, k, v, of_queries, of_keys, out, norm = ctx.saved_tensors
    gradients = segment_attention_backward(q, k, v, of_queries, of_keys, ctx.causal, out, norm, d_out)
    return *gradients, None, None, None


segment_attention.register_autograd(_gradients, setup_context=_keep)
