"""One step of beam search for all sentences: which hypotheses go on, which have ended, who is done.

The plain twin is `keep_best` in core/choose.py with the stopping rules of core/search.py. Log-probabilities are
never stored: a first kernel reads the logits once and keeps the best of every chunk of the vocabulary and the sum for
the softmax; a second finds the best 2 B continuations, which lie in the 2 B chunks with the best bests.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.core.special import BEGIN, END, PAD, UNKNOWN

CHUNK = 64  # tokens whose best is kept
PART = 2048  # tokens that a program reads
ALONE, WITH_BEAMS = 1, 4  # warps that choose for a sentence
_END, _PAD, _BEGIN, _UNKNOWN = (tl.constexpr(token) for token in (END, PAD, BEGIN, UNKNOWN))


class Slots(NamedTuple):
    """What is known of R sentences that are searched side by side; all tensors are changed in place."""

    tokens: Tensor  # (R, B) the last of each hypothesis
    scores: Tensor  # (R, B) float32
    ancestors: Tensor  # (R, B, T) uint8, which slot of a step it comes through
    length: Tensor  # (R,) int32, steps so far
    most: Tensor  # (R,) int32, limit
    source: Tensor  # (R,) int32, length of the source
    active: Tensor  # (R,) int32, whether it is still searched
    ended: Tensor  # (R,) int32, hypotheses that have ended
    finished: Tensor  # (R, N) float32, the best scores of those
    history: Tensor  # (R, T, B) int32, the token of each step
    parents: Tensor  # (R, T, B) uint8
    end_totals: Tensor  # (R, T, B) float32, log-probability of what ended at a step; -inf: nothing did
    end_parents: Tensor  # (R, T, B) uint8


@triton.jit
def _read_logits(logits_at, bias_at, best_at, top_at, sum_at, V, C, P, biased: tl.constexpr, CHUNK: tl.constexpr,
                 PART: tl.constexpr):  # fmt: skip
    """A part of a row: the best of every chunk that may be written, the maximum of all, and Σ exp(x - maximum)."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = part * PART + tl.arange(0, PART)
    x = tl.load(logits_at + row * V + columns, mask=columns < V, other=float("-inf")).to(tl.float32)
    if biased:
        x += tl.load(bias_at + columns, mask=columns < V, other=0.0).to(tl.float32)
    top = tl.max(x, 0)
    tl.store(top_at + row * P + part, top)
    tl.store(sum_at + row * P + part, tl.sum(tl.exp(x - top), 0))
    written = (columns != _PAD) & (columns != _BEGIN) & (columns != _UNKNOWN)
    best = tl.max(tl.reshape(tl.where(written, x, float("-inf")), (PART // CHUNK, CHUNK)), 1)
    tl.store(best_at + row * C + part * (PART // CHUNK) + tl.arange(0, PART // CHUNK), best)


@triton.jit
def _penalty(length, alpha, plain: tl.constexpr):
    """As core/hypotheses.py has it."""
    x = length.to(tl.float32) if plain else (5.0 + length.to(tl.float32)) / 6.0
    return tl.exp(alpha * tl.log(x))


@triton.jit
def _pick(values, places, wanted):
    """The one of `values` whose place is the wanted one."""
    return tl.sum(tl.where(places == wanted, values, 0), 0)


@triton.jit
def _log_z(top_at, sum_at, rows, inside, P, P2: tl.constexpr):
    """What has to be taken from a logit to make it a log-probability, from the parts of each row."""
    parts = tl.arange(0, P2)
    there = inside[:, None] & (parts < P)[None, :]
    top = tl.load(top_at + rows[:, None] * P + parts[None, :], mask=there, other=-1e30)
    total = tl.load(sum_at + rows[:, None] * P + parts[None, :], mask=there, other=0.0)
    highest = tl.max(top, 1)
    return highest + tl.log(tl.sum(tl.exp(top - highest[:, None]) * total, 1))


@triton.jit
def _best_chunks(best_at, rows, inside, offset, C, COUNT: tl.constexpr, B2: tl.constexpr, C2: tl.constexpr,
                 COUNT2: tl.constexpr):  # fmt: skip
    """The COUNT best chunks of all hypotheses, as beam * C2 + chunk; -1 where there are fewer."""
    chunks, count, places = tl.arange(0, C2), tl.arange(0, COUNT2), tl.arange(0, B2 * C2)
    best = tl.load(best_at + rows[:, None] * C + chunks[None, :],
                   mask=inside[:, None] & (chunks < C)[None, :], other=float("-inf"))  # fmt: skip
    flat = tl.reshape(best + offset[:, None], (B2 * C2,))
    chosen = tl.full((COUNT2,), -1, tl.int32)
    for k in range(COUNT):
        place = tl.argmax(flat, 0)
        chosen = tl.where(count == k, tl.where(tl.max(flat, 0) > float("-inf"), place, -1), chosen)
        flat = tl.where(places == place, float("-inf"), flat)
    return chosen


@triton.jit
def _scores_in(logits_at, bias_at, rows, beams, offset, beam_of, chunk_of, there, V, biased: tl.constexpr,
               CHUNK: tl.constexpr):  # fmt: skip
    """The scores of all continuations in the chosen chunks (COUNT2, CHUNK)."""
    columns = chunk_of[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    may = (columns < V) & (columns != _PAD) & (columns != _BEGIN) & (columns != _UNKNOWN) & there[:, None]
    x = tl.load(logits_at + rows[:, None] * V + columns, mask=may, other=float("-inf")).to(tl.float32)
    if biased:
        x += tl.load(bias_at + columns, mask=may, other=0.0).to(tl.float32)
    return x + tl.sum(tl.where(beams[None, :] == beam_of[:, None], offset[None, :], 0.0), 1)[:, None]


@triton.jit
def _note_ancestors(ancestors_at, sentence, rows, beams, parents, length, B: tl.constexpr, T: tl.constexpr,
                    T2: tl.constexpr):  # fmt: skip
    """Every hypothesis takes over its parent's way, and the parent as the last step of it."""
    steps = tl.arange(0, T2)
    known = (beams < B)[:, None] & (steps < length)[None, :]
    through = tl.load(ancestors_at + (sentence * B + parents)[:, None] * T + steps[None, :], mask=known, other=0)
    through = tl.where(steps[None, :] == length, parents[:, None].to(tl.uint8), through)
    tl.debug_barrier()  # all have read before one writes
    written = (beams < B)[:, None] & (steps <= length)[None, :]
    tl.store(ancestors_at + rows[:, None] * T + steps[None, :], through, mask=written)


@triton.jit
def _choose(
    logits_at, bias_at, best_at, top_at, sum_at,
    tokens_at, scores_at, ancestors_at, length_at, most_at, active_at, ended_at, finished_at, history_at, parents_at,
    end_totals_at, end_parents_at, alpha,
    V, C, P, B: tl.constexpr, T: tl.constexpr, N: tl.constexpr, COUNT: tl.constexpr, CHUNK: tl.constexpr,
    biased: tl.constexpr, plain: tl.constexpr, exact: tl.constexpr, likely: tl.constexpr, forced_end: tl.constexpr,
    B2: tl.constexpr, C2: tl.constexpr, P2: tl.constexpr, T2: tl.constexpr, N2: tl.constexpr, COUNT2: tl.constexpr,
):  # fmt: skip
    """One sentence: its best continuations one after the other; ends are noted, others go on."""
    sentence = tl.program_id(0).to(tl.int64)
    if tl.load(active_at + sentence) == 0:
        return
    length, beams, count = tl.load(length_at + sentence), tl.arange(0, B2), tl.arange(0, COUNT2)
    best_of = tl.arange(0, N2)
    rows, inside, step = sentence * B + beams, beams < B, (sentence * T + length) * B
    scores = tl.load(scores_at + rows, mask=inside, other=float("-inf"))
    offset = tl.where(inside, scores - _log_z(top_at, sum_at, rows, inside, P, P2), float("-inf"))
    chosen = _best_chunks(best_at, rows, inside, offset, C, COUNT, B2, C2, COUNT2)
    beam_of, chunk_of = tl.maximum(chosen, 0) // C2, tl.maximum(chosen, 0) % C2
    flat = tl.reshape(_scores_in(logits_at, bias_at, sentence * B + beam_of, beams, offset, beam_of, chunk_of,
                                 chosen >= 0, V, biased, CHUNK), (COUNT2 * CHUNK,))  # fmt: skip
    places = tl.arange(0, COUNT2 * CHUNK)
    going_on, ended = 0, tl.load(ended_at + sentence)
    finished = tl.load(finished_at + sentence * N + best_of, mask=best_of < N, other=float("inf"))
    tokens, parents = tl.zeros((B2,), tl.int32), tl.zeros((B2,), tl.int32)
    scores = tl.full((B2,), float("-inf"), tl.float32)
    for k in range(COUNT):
        value, place = tl.max(flat, 0), tl.argmax(flat, 0)
        flat = tl.where(places == place, float("-inf"), flat)
        parent = _pick(beam_of, count, place // CHUNK)
        token = _pick(chunk_of, count, place // CHUNK) * CHUNK + place % CHUNK
        is_end = token == _END
        ends = is_end & (k < B) & (value > float("-inf"))
        tl.store(end_totals_at + step + k, tl.where(ends, value, float("-inf")), mask=k < B)
        tl.store(end_parents_at + step + k, parent.to(tl.uint8), mask=k < B)
        score = value / _penalty(length + 1, alpha, plain)
        better = ends & (score > tl.min(finished, 0))
        finished = tl.where((best_of == tl.argmin(finished, 0)) & better, score, finished)
        ended += ends.to(tl.int32)
        here = (beams == going_on) & (is_end == 0) & (going_on < B)
        tokens, parents = tl.where(here, token, tokens), tl.where(here, parent, parents)
        scores = tl.where(here, value, scores)
        going_on += (is_end == 0).to(tl.int32)

    tl.store(tokens_at + rows, tokens.to(tl.int64), mask=inside)
    tl.store(history_at + step + beams, tokens, mask=inside)
    tl.store(parents_at + step + beams, parents.to(tl.uint8), mask=inside)
    if B > 1:
        _note_ancestors(ancestors_at, sentence, rows, beams, parents, length, B, T, T2)
    most, hope, enough = tl.load(most_at + sentence), tl.max(scores, 0), ended >= B
    if exact or likely:
        enough = tl.min(finished, 0) >= hope / _penalty(most if exact else length + 1, alpha, plain)
    scores = tl.where(enough & forced_end, float("-inf"), scores)  # to be given an end would be one more step
    tl.store(scores_at + rows, scores, mask=inside)
    tl.store(finished_at + sentence * N + best_of, finished, mask=best_of < N)
    tl.store(ended_at + sentence, ended)
    tl.store(length_at + sentence, length + 1)
    done = enough | (length + 1 >= most) | (hope == float("-inf"))
    tl.store(active_at + sentence, tl.where(done, 0, 1))


def choose(
    logits: Tensor, bias: Tensor | None, slots: Slots, alpha: float, plain: bool, stop: str, forced_end: bool = False
) -> None:
    """From logits (R * B, V), to which a bias (V) is added, one step further; `stop`, `forced_end`: see
    core/search.py."""
    rows, beams, steps = slots.ancestors.shape
    vocabulary = logits.size(1)
    parts = triton.cdiv(vocabulary, PART)
    chunks = parts * (PART // CHUNK)
    best = logits.new_empty(rows * beams, chunks, dtype=torch.float32)
    top, total = logits.new_empty(2, rows * beams, parts, dtype=torch.float32)
    biased = bias is not None
    bias = bias if biased else logits  # not looked at
    _read_logits[rows * beams, parts](
        logits, bias, best, top, total, vocabulary, chunks, parts, biased, CHUNK, PART, num_warps=4
    )
    # Two also for greedy search: with one, the loops over `flat` vanish, and Triton, which sees the reshaped scores in
    # nothing but reductions then, reorders them, though argmax counts on their order.
    count, needed = 2 * beams, slots.finished.size(1)
    by_score = (beams > 1 and stop == rule for rule in ("exact", "likely"))
    _choose[(rows,)](
        logits, bias, best, top, total,
        slots.tokens, slots.scores, slots.ancestors, slots.length, slots.most, slots.active, slots.ended,
        slots.finished, slots.history, slots.parents, slots.end_totals, slots.end_parents, alpha,
        vocabulary, chunks, parts, beams, steps, needed, count, CHUNK, biased, plain, *by_score, forced_end,
        *map(triton.next_power_of_2, (beams, chunks, parts, steps, needed, count)),
        num_warps=ALONE if beams == 1 else WITH_BEAMS,
    )  # fmt: skip
