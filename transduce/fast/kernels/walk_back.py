"""The best hypothesis of each sentence that is done, from its end back to its first token: only that leaves the GPU.

The plain twin, which also knows the others, is engine/walk_back.py.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.choose import Slots

FACTS = 3  # that stand before the tokens of a sentence


@triton.jit
def _walk_back(
    places_at, length_at, most_at, history_at, parents_at, end_totals_at, end_parents_at, scores_at, penalties_at,
    table_at,
    T: tl.constexpr, B: tl.constexpr, C2: tl.constexpr, B2: tl.constexpr, FACTS: tl.constexpr,
    ended_first: tl.constexpr, forced_end: tl.constexpr,
):  # fmt: skip
    """One sentence: the best that ended, or, where none has (or by its score), the best that its limit cut."""
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
    if not ended_first:
        most = tl.load(penalties_at + tl.maximum(steps + forced_end, 1) - 1)
        ended = ended & (tl.max(scores, 0) >= tl.max(open_totals, 0).to(tl.float64) / most)
    total = tl.where(ended, tl.load(end_totals_at + table + which), tl.max(open_totals, 0))
    last = tl.load(end_parents_at + table + which).to(tl.int64)
    beam = tl.where(ended, last, tl.argmax(open_totals, 0).to(tl.int64))
    written = tl.where(ended, which // B, steps)
    facts_at = table_at + row * (FACTS + T)
    tl.store(facts_at, written)
    tl.store(facts_at + 1, ended.to(tl.int32))
    tl.store(facts_at + 2, total.to(tl.int32, bitcast=True))
    for step in range(written - 1, -1, -1):
        slot = table + step * B + beam
        tl.store(facts_at + FACTS + step, tl.load(history_at + slot))
        beam = tl.load(parents_at + slot).to(tl.int64)


def walk_back(
    slots: Slots, places: Tensor, penalties: Tensor, ended_first: bool = True, forced_end: bool = False
) -> Tensor:
    """What was found for the sentences in these places (F,): a table (F, FACTS + T) of int32, with how many tokens;
    whether END ended them, or their limit cut them; the log-probability, a float32 by its bits, -inf where nothing was
    found; then the tokens, and behind them anything. penalties (T + 1,) float64: of one token, of two, ...
    `forced_end`: what a limit cuts counts an END too."""
    _, steps, beams = slots.history.shape
    rows, candidates = len(places), triton.next_power_of_2(steps * beams)
    table = slots.history.new_empty(rows, FACTS + steps)
    _walk_back[(rows,)](
        places, slots.length, slots.most, slots.history, slots.parents, slots.end_totals, slots.end_parents,
        slots.scores, penalties, table,
        steps, beams, candidates, triton.next_power_of_2(beams), FACTS, ended_first or beams == 1, int(forced_end),
        num_warps=1 if candidates <= 1024 else 8,
    )  # fmt: skip
    return table


def columns(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The parts of such a table: the tokens (F, T), how many of them, log-probabilities, and whether END ended them."""
    length, ended, total = table[:, :FACTS].T.copy()
    return table[:, FACTS:], length, total.view(np.float32), ended
