"""One step of attention over caches that are only partly filled; the plain twin is engine/incremental.py.

A program looks for one head of one sentence, with all its beams at once: they share what is read, and are enough for
the units that multiply matrices. Where there are no beams it looks for several heads. Only what is filled is read. A
sentence that is done is not looked at.

Letters: R sentences, B beams, H heads, T steps that a cache has room for, S slots of the source, K and V widths of a
key and a value. Names that end in 2 are rounded up to a power of two; a pointer's name ends in `_at`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

SLOTS = 16  # of a cache that are looked at in one go, by one head
HEADS, FEW_SLOTS, WARPS = 2, 8, 1  # that are looked at in one go, and by how many, where there are no beams


@triton.jit
def _take_in(q, best, total, read, keys, values, shown):
    """Softmax as far as it has come, a block of slots further, for the beams (rows of q) of one head."""
    scores = tl.dot(q.to(keys.dtype), tl.trans(keys), input_precision="ieee")
    scores = tl.where(shown, scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp(scores - new_best[:, None])
    before = tl.exp(best - new_best)
    new = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return new_best, total * before + tl.sum(weights, 1), read * before[:, None] + new


@triton.jit
def _take_in_heads(q, best, total, read, keys, values, shown):
    """The same without beams, for many heads (rows of q) at once; keys and values are (heads, slots, width)."""
    scores = tl.sum(q[:, None, :] * keys.to(tl.float32), 2)
    scores = tl.where(shown[None, :], scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp(scores - new_best[:, None])
    before = tl.exp(best - new_best)
    new = tl.sum(weights[:, :, None] * values.to(tl.float32), 1)
    return new_best, total * before + tl.sum(weights, 1), read * before[:, None] + new


@triton.jit
def _look_back_with_beams(
    qkv_at, keys_at, values_at, ancestors_at, length_at, active_at, read_at, scale,
    H: tl.constexpr, B: tl.constexpr, T: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    B2: tl.constexpr, K2: tl.constexpr, V2: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """One head of a sentence: write this step's keys and values, then look at them and at all that came before."""
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(active_at + sentence) == 0:
        return
    length = tl.load(length_at + sentence)
    beams, k_columns, v_columns = tl.arange(0, B2), tl.arange(0, K2), tl.arange(0, V2)
    k_inside = (beams < B)[:, None] & (k_columns < K)[None, :]
    v_inside = (beams < B)[:, None] & (v_columns < V)[None, :]
    row = qkv_at + (sentence * B + beams)[:, None] * (H * (2 * K + V))
    q = tl.load(row + head * K + k_columns[None, :], mask=k_inside, other=0.0).to(tl.float32) * scale
    key = tl.load(row + (H + head) * K + k_columns[None, :], mask=k_inside, other=0.0)
    value = tl.load(row + 2 * H * K + head * V + v_columns[None, :], mask=v_inside, other=0.0)
    keys_at += (sentence * H + head) * T * B * K
    values_at += (sentence * H + head) * T * B * V
    slot = length * B + beams
    tl.store(keys_at + slot[:, None] * K + k_columns[None, :], key, mask=k_inside)
    tl.store(values_at + slot[:, None] * V + v_columns[None, :], value, mask=v_inside)

    best = tl.sum(q * key.to(tl.float32), 1)  # itself first
    total = tl.full((B2,), 1.0, tl.float32)
    read = value.to(tl.float32)
    for begin in range(0, length * B, SLOTS):
        slots = begin + tl.arange(0, SLOTS)
        inside = slots < length * B
        keys = tl.load(keys_at + slots[:, None] * K + k_columns[None, :],
                       mask=inside[:, None] & (k_columns < K)[None, :], other=0.0)  # fmt: skip
        values = tl.load(values_at + slots[:, None] * V + v_columns[None, :],
                         mask=inside[:, None] & (v_columns < V)[None, :], other=0.0)  # fmt: skip
        shown = ((beams < B)[:, None]) & inside[None, :]
        through = tl.load(
            ancestors_at + (sentence * B + beams)[:, None] * T + (slots // B)[None, :], mask=shown, other=0
        )
        shown = shown & (through == (slots % B)[None, :])
        best, total, read = _take_in(q, best, total, read, keys, values, shown)
    place = read_at + (sentence * B + beams)[:, None] * (H * V) + head * V + v_columns[None, :]
    tl.store(place, (read / total[:, None]).to(read_at.dtype.element_ty), mask=v_inside)


@triton.jit
def _look_back_alone(
    qkv_at, keys_at, values_at, length_at, active_at, read_at, scale,
    H: tl.constexpr, T: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    G: tl.constexpr, K2: tl.constexpr, V2: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """The same for G heads of a sentence that has one hypothesis."""
    sentence, heads = tl.program_id(0).to(tl.int64), tl.program_id(1) * G + tl.arange(0, G)
    if tl.load(active_at + sentence) == 0:
        return
    length = tl.load(length_at + sentence)
    k_columns, v_columns = tl.arange(0, K2), tl.arange(0, V2)
    k_inside = (heads < H)[:, None] & (k_columns < K)[None, :]
    v_inside = (heads < H)[:, None] & (v_columns < V)[None, :]
    row = qkv_at + sentence * (H * (2 * K + V))
    q = tl.load(row + heads[:, None] * K + k_columns[None, :], mask=k_inside, other=0.0).to(tl.float32) * scale
    key = tl.load(row + (H + heads)[:, None] * K + k_columns[None, :], mask=k_inside, other=0.0)
    value = tl.load(row + 2 * H * K + heads[:, None] * V + v_columns[None, :], mask=v_inside, other=0.0)
    first = (sentence * H + heads) * T
    tl.store(keys_at + (first + length)[:, None] * K + k_columns[None, :], key, mask=k_inside)
    tl.store(values_at + (first + length)[:, None] * V + v_columns[None, :], value, mask=v_inside)

    best = tl.sum(q * key.to(tl.float32), 1)  # itself first
    total = tl.full((G,), 1.0, tl.float32)
    read = value.to(tl.float32)
    for begin in range(0, length, SLOTS):
        slots = begin + tl.arange(0, SLOTS)
        place = (first[:, None] + slots[None, :])[:, :, None]  # (G, slots, 1)
        there = (slots < length)[None, :, None]
        keys = tl.load(keys_at + place * K + k_columns[None, None, :], mask=there & k_inside[:, None, :], other=0.0)
        values = tl.load(values_at + place * V + v_columns[None, None, :], mask=there & v_inside[:, None, :], other=0.0)
        best, total, read = _take_in_heads(q, best, total, read, keys, values, slots < length)
    place = read_at + sentence * (H * V) + heads[:, None] * V + v_columns[None, :]
    tl.store(place, (read / total[:, None]).to(read_at.dtype.element_ty), mask=v_inside)


@triton.jit
def _look_at_memory_with_beams(
    q_at, keys_at, values_at, source_at, active_at, read_at, scale,
    H: tl.constexpr, B: tl.constexpr, S: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    B2: tl.constexpr, K2: tl.constexpr, V2: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """One head of a sentence: look at the source."""
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(active_at + sentence) == 0:
        return
    source = tl.load(source_at + sentence)
    beams, k_columns, v_columns = tl.arange(0, B2), tl.arange(0, K2), tl.arange(0, V2)
    k_inside = (beams < B)[:, None] & (k_columns < K)[None, :]
    v_inside = (beams < B)[:, None] & (v_columns < V)[None, :]
    row = q_at + (sentence * B + beams)[:, None] * (H * K)
    q = tl.load(row + head * K + k_columns[None, :], mask=k_inside, other=0.0).to(tl.float32) * scale
    keys_at += (sentence * H + head) * S * K
    values_at += (sentence * H + head) * S * V
    best = tl.full((B2,), -1e30, tl.float32)
    total = tl.zeros((B2,), tl.float32)
    read = tl.zeros((B2, V2), tl.float32)
    for begin in range(0, source, SLOTS):
        slots = begin + tl.arange(0, SLOTS)
        inside = slots < source
        keys = tl.load(keys_at + slots[:, None] * K + k_columns[None, :],
                       mask=inside[:, None] & (k_columns < K)[None, :], other=0.0)  # fmt: skip
        values = tl.load(values_at + slots[:, None] * V + v_columns[None, :],
                         mask=inside[:, None] & (v_columns < V)[None, :], other=0.0)  # fmt: skip
        best, total, read = _take_in(q, best, total, read, keys, values, inside[None, :])
    place = read_at + (sentence * B + beams)[:, None] * (H * V) + head * V + v_columns[None, :]
    tl.store(place, (read / total[:, None]).to(read_at.dtype.element_ty), mask=v_inside)


@triton.jit
def _look_at_memory_alone(
    q_at, keys_at, values_at, source_at, active_at, read_at, scale,
    H: tl.constexpr, S: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    G: tl.constexpr, K2: tl.constexpr, V2: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """The same for G heads of a sentence that has one hypothesis."""
    sentence, heads = tl.program_id(0).to(tl.int64), tl.program_id(1) * G + tl.arange(0, G)
    if tl.load(active_at + sentence) == 0:
        return
    source = tl.load(source_at + sentence)
    k_columns, v_columns = tl.arange(0, K2), tl.arange(0, V2)
    k_inside = (heads < H)[:, None] & (k_columns < K)[None, :]
    v_inside = (heads < H)[:, None] & (v_columns < V)[None, :]
    row = q_at + sentence * (H * K)
    q = tl.load(row + heads[:, None] * K + k_columns[None, :], mask=k_inside, other=0.0).to(tl.float32) * scale
    first = (sentence * H + heads) * S
    best = tl.full((G,), -1e30, tl.float32)
    total = tl.zeros((G,), tl.float32)
    read = tl.zeros((G, V2), tl.float32)
    for begin in range(0, source, SLOTS):
        slots = begin + tl.arange(0, SLOTS)
        place = (first[:, None] + slots[None, :])[:, :, None]
        there = (slots < source)[None, :, None]
        keys = tl.load(keys_at + place * K + k_columns[None, None, :], mask=there & k_inside[:, None, :], other=0.0)
        values = tl.load(values_at + place * V + v_columns[None, None, :], mask=there & v_inside[:, None, :], other=0.0)
        best, total, read = _take_in_heads(q, best, total, read, keys, values, slots < source)
    place = read_at + sentence * (H * V) + heads[:, None] * V + v_columns[None, :]
    tl.store(place, (read / total[:, None]).to(read_at.dtype.element_ty), mask=v_inside)


def _powers(least: int, *sizes: int) -> tuple[int, ...]:
    """As powers of two, none below the least: matrix units want 16 of everything."""
    return tuple(max(least, triton.next_power_of_2(size)) for size in sizes)


def look_back(
    qkv: Tensor, keys: Tensor, values: Tensor, ancestors: Tensor, length: Tensor, active: Tensor, scale: float
) -> Tensor:
    """qkv (R * B, H * (2 K + V)), keys (R, H, T * B, K), values (R, H, T * B, V), ancestors (R, B, T), length and
    active (R) -> what the heads read (R * B, H * V)."""
    rows, beams, steps = ancestors.shape
    heads, k, v = keys.size(1), keys.size(3), values.size(3)
    read = qkv.new_empty(rows * beams, heads * v)
    if beams == 1:
        group = min(HEADS, triton.next_power_of_2(heads))
        _look_back_alone[rows, triton.cdiv(heads, group)](
            qkv, keys, values, length, active, read, scale, heads, steps, k, v, group, *_powers(1, k, v), FEW_SLOTS,
            num_warps=WARPS,
        )  # fmt: skip
    else:
        _look_back_with_beams[rows, heads](
            qkv, keys, values, ancestors, length, active, read, scale, heads, beams, steps, k, v,
            *_powers(16, beams, k, v), SLOTS, num_warps=1,
        )  # fmt: skip
    return read


def look_at_memory(
    q: Tensor, keys: Tensor, values: Tensor, source: Tensor, active: Tensor, beams: int, scale: float
) -> Tensor:
    """q (R * B, H * K), keys (R, H, S, K), values (R, H, S, V), source and active (R) -> (R * B, H * V)."""
    rows, heads, slots, k = keys.shape
    v = values.size(3)
    read = q.new_empty(rows * beams, heads * v)
    if beams == 1:
        group = min(HEADS, triton.next_power_of_2(heads))
        _look_at_memory_alone[rows, triton.cdiv(heads, group)](
            q, keys, values, source, active, read, scale, heads, slots, k, v, group, *_powers(1, k, v), FEW_SLOTS,
            num_warps=WARPS,
        )  # fmt: skip
    else:
        _look_at_memory_with_beams[rows, heads](
            q, keys, values, source, active, read, scale, heads, beams, slots, k, v, *_powers(16, beams, k, v), SLOTS,
            num_warps=1,
        )  # fmt: skip
    return read


@triton.jit
def _put(packed_at, keys_at, values_at, place_at, source_at, S, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
         ROOM: tl.constexpr, W2: tl.constexpr):  # fmt: skip
    """A slot of a source: its keys and values to where its sentence lies, every head by itself."""
    sentence, slot = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if slot >= tl.load(source_at + sentence):
        return
    place = tl.load(place_at + sentence).to(tl.int64)
    columns = tl.arange(0, W2)
    row = packed_at + (sentence * S + slot) * (H * (K + V))
    keys = tl.load(row + columns, mask=columns < H * K)
    tl.store(keys_at + ((place * H + columns // K) * ROOM + slot) * K + columns % K, keys, mask=columns < H * K)
    values = tl.load(row + H * K + columns, mask=columns < H * V)
    tl.store(values_at + ((place * H + columns // V) * ROOM + slot) * V + columns % V, values, mask=columns < H * V)


def put_memory(packed: Tensor, keys: Tensor, values: Tensor, places: Tensor, source: Tensor) -> None:
    """packed (n, S, H * (K + V)) into the rows `places` (n) of keys (R, H, S', K) and values (R, H, S', V)."""
    _, heads, room, k = keys.shape
    v = values.size(3)
    _put[packed.size(0), packed.size(1)](
        packed, keys, values, places, source, packed.size(1), heads, k, v, room,
        triton.next_power_of_2(heads * max(k, v)), num_warps=4,
    )  # fmt: skip


@triton.jit
def _embed(tokens_at, length_at, table_at, positions_at, x_at, scale, last, B: tl.constexpr, width: tl.constexpr,
           D: tl.constexpr):  # fmt: skip
    """One row: the vector of a token, times a scale, plus that of its position."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    inside = columns < width
    position = tl.minimum(tl.load(length_at + row // B), last)
    x = tl.load(table_at + tl.load(tokens_at + row) * width + columns, mask=inside, other=0.0).to(tl.float32) * scale
    x += tl.load(positions_at + position * width + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(x_at + row * width + columns, x.to(x_at.dtype.element_ty), mask=inside)


def embed(tokens: Tensor, length: Tensor, table: Tensor, positions: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """tokens (R, B), length (R) -> (R * B, D)."""
    rows, width = tokens.numel(), table.size(1)
    x = torch.empty(rows, width, dtype=dtype, device=tokens.device)
    _embed[(rows,)](tokens, length, table, positions, x, scale, len(positions) - 1, tokens.size(1), width,
                    triton.next_power_of_2(width), num_warps=4)  # fmt: skip
    return x


@triton.jit
def _add_norm(x_at, written_at, weight_at, bias_at, sum_at, y_at, eps, keep: tl.constexpr,
              width: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """One row: x + written, and its norm."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    inside = columns < width
    place = row * width + columns
    total = tl.load(x_at + place, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(written_at + place, mask=inside, other=0.0).to(tl.float32)
    if keep:
        tl.store(sum_at + place, total.to(sum_at.dtype.element_ty), mask=inside)
    mean = tl.sum(total, 0) / width
    centred = tl.where(inside, total - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    weight = tl.load(weight_at + columns, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_at + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_at + place, (centred * scale * weight + bias).to(y_at.dtype.element_ty), mask=inside)


def add_norm(x: Tensor, written: Tensor, weight: Tensor, bias: Tensor, eps: float, keep: bool) -> tuple[Tensor, Tensor]:
    """x + written and its norm; the sum only where it is to be kept, else the norm twice."""
    y = torch.empty_like(x)
    total = torch.empty_like(x) if keep else y
    _add_norm[(x.size(0),)](x, written, weight, bias, total, y, eps, keep, x.size(1), triton.next_power_of_2(x.size(1)),
                            num_warps=4)  # fmt: skip
    return total, y
