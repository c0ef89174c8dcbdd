"""From sentences to the rows of a batch, on the CPU or where the text lies on the GPU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.core.rows import Rows
from transduce.core.special import BEGIN, END, PAD


class Sentences(NamedTuple):
    """Some sentences of a text that lies end to end."""

    ids: Tensor  # the whole text, on the device where rows are to be
    begins: np.ndarray  # where each sentence begins in it
    lengths: np.ndarray


class Lesson(NamedTuple):
    """A batch that a model learns from."""

    source: Rows  # what the encoder reads
    target_in: Rows  # what the decoder reads: each target behind BEGIN
    target_out: Tensor  # (R, T) what the decoder should write: each target, then END; PAD in empty slots


def lesson(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Lesson:
    """Pairs of token ids as a batch, one pair a row."""
    row = np.arange(len(pairs))
    source, target = (sentences([pair[side] for pair in pairs]) for side in (0, 1))
    target_out = with_end(target, row, len(pairs), int(target.lengths.max()) + 1)
    return Lesson(
        source=with_end(source, row, len(pairs), int(source.lengths.max()) + 1),
        target_in=shifted(target_out),
        target_out=target_out.tokens,
    )


def sentences(texts: Sequence[Sequence[int] | np.ndarray]) -> Sentences:
    """Lists or arrays of ids, put end to end."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ids = np.concatenate([np.empty(0, np.int64), *texts]).astype(np.int64)
    return Sentences(torch.from_numpy(ids), lengths.cumsum() - lengths, lengths)


def lay_out(rows: Sequence[Sequence[Sequence[int]]], width: int | None = None) -> Rows:
    """Lists as Rows: `rows[r]` are the sentences of row r, end to end, numbered from 1."""
    row = np.repeat(np.arange(len(rows)), [len(texts) for texts in rows])
    every = sentences(list(itertools.chain.from_iterable(rows)))
    width = width or int(np.bincount(row, every.lengths, minlength=1).max())
    return spread(every, row, len(rows), width)


def with_end(text: Sentences, row: np.ndarray, height: int, width: int) -> Rows:
    """Each sentence followed by END: what the encoder reads, and what the decoder should write."""
    return spread(text, row, height, width, more=1)


def shifted(target_out: Rows) -> Rows:
    """The same sentences with BEGIN before them instead of END after them: what the decoder reads."""
    tokens = target_out.tokens.roll(1, 1).where(target_out.positions != 0, BEGIN)
    return target_out._replace(tokens=tokens.where(target_out.segments != 0, PAD))


def spread(text: Sentences, row: np.ndarray, height: int, width: int, more: int = 0) -> Rows:
    """Sentences into their rows, side by side in the order given, which ascends; `more` slots for END after each."""
    slots = text.lengths + more
    before = slots.cumsum() - slots  # slots of all sentences before this one
    first = np.searchsorted(row, row)  # the first sentence of its row
    start = row * width + before - before[first]  # its first slot, rows counted end to end
    number = np.arange(1, len(row) + 1) - first
    facts = torch.from_numpy(np.stack([text.begins, before, start, number]).astype(np.int64))
    begin, before_, start_, number_ = _send(facts, text.ids.device)

    total = int(slots.sum())
    device = text.ids.device
    counts = _send(torch.from_numpy(slots.astype(np.int64)), device)
    which = torch.repeat_interleave(counts, output_size=total)  # the sentence of each token
    position = torch.arange(total, device=device) - before_[which]
    slot = start_[which] + position
    rows = torch.full((3, height * width), PAD, device=device)  # PAD is 0, as is an empty slot's segment
    place = (begin[which] + position).clamp_(max=max(len(text.ids) - 1, 0))  # END's place may lie beyond
    rows[0, slot] = text.ids[place].long() if len(text.ids) else END
    if more:
        rows[0, start_ + counts - 1] = END
    rows[1, slot] = number_[which]
    rows[2, slot] = position
    return Rows(*rows.view(3, height, width).unbind())


def _send(x: Tensor, device: torch.device) -> Tensor:
    """To the device without waiting for it."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x
