"""The best hypothesis of each sentence that is done, from its end back to its first token: only that leaves the GPU.

The plain twin, which also knows the others, is engine/walk_back.py.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.choose import Slots


class Written(NamedTuple):
    """What was found for F sentences."""

    tokens: Tensor  # (F, T) int32, of which only the first `length` are meant
    length: Tensor  # (F,) int32, without END
    total: Tensor  # (F,) float32, log-probability; -inf: nothing was found
    ended: Tensor  # (F,) int32, by END; 0: cut at its limit


@triton.jit
def _walk_back(
    places_at, length_at, most_at, history_at, parents_at, end_totals_at, end_parents_at, scores_at, penalties_at,
    tokens_at, written_at, total_at, ended_at,
    T: tl.constexpr, B: tl.constexpr, C2: tl.constexpr, B2: tl.constexpr,
):  # fmt: skip
    """One sentence: the best that ended, or, where none has, the best that its limit cut."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.load(places_at + row).to(tl.int64)
    steps = tl.load(length_at + place)
    table = place * T * B

    candidates = tl.arange(0, C2)  # step * B + beam
    there = candidates < steps * B
    totals = tl.load(end_totals_at + table + candidates, mask=there, other=float("-inf")).to(tl.float64)
    scores = totals / tl.load(penalties_at + candidates // B, mask=there, other=1.0)
    ended, which = tl.max(scores, 0) > float("-inf"), tl.argmax(scores, 0)

    beams = tl.arange(0, B2)
    cut = beams < tl.where(steps >= tl.load(most_at + place), B, 0)
    open_totals = tl.load(scores_at + place * B + beams, mask=cut, other=float("-inf"))
    total = tl.where(ended, tl.load(end_totals_at + table + which), tl.max(open_totals, 0))
    last = tl.load(end_parents_at + table + which).to(tl.int64)
    beam = tl.where(ended, last, tl.argmax(open_totals, 0).to(tl.int64))
    written = tl.where(ended, which // B, steps)
    tl.store(written_at + row, written)
    tl.store(total_at + row, total)
    tl.store(ended_at + row, ended.to(tl.int32))
    for step in range(written - 1, -1, -1):
        slot = table + step * B + beam
        tl.store(tokens_at + row * T + step, tl.load(history_at + slot))
        beam = tl.load(parents_at + slot).to(tl.int64)


def walk_back(slots: Slots, places: Tensor, penalties: Tensor) -> Written:
    """Of the sentences in these places (F,); penalties (T,) float64, of one token, of two, ..."""
    _, steps, beams = slots.history.shape
    rows, candidates = len(places), triton.next_power_of_2(steps * beams)
    tokens = slots.history.new_empty(rows, steps)
    length, ended = tokens.new_empty(rows), tokens.new_empty(rows)
    total = slots.scores.new_empty(rows)
    _walk_back[(rows,)](
        places, slots.length, slots.most, slots.history, slots.parents, slots.end_totals, slots.end_parents,
        slots.scores, penalties, tokens, length, total, ended,
        steps, beams, candidates, triton.next_power_of_2(beams), num_warps=1 if candidates <= 1024 else 8,
    )  # fmt: skip
    return Written(tokens, length, total, ended)
