"""Guided alignment: a head is shown where to look (Chen et al. 2016).

A new model translates word by word for its first hundreds of updates, until it finds out which source word each target
word comes from. A lexicon of the training text, learned in seconds, knows that roughly. So the first head of the last
layer is asked to look where it says, by a loss of its own, which ends when the decay of the schedule `wsd` begins.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from transduce.core.loss import learned_from
from transduce.core.rows import Rows
from transduce.core.special import END, PAD
from transduce.data.batches import Batch
from transduce.data.lexicon import learn_lexicon
from transduce.data.store import Side, Store

MOST_PAIRS, MOST_CELLS = 50_000, 4_000_000  # of text that the lexicon is learned from: a few seconds
DIAGONAL = 4.0  # how much the place in the sentence says
PROBABLE = 1e-3  # less is left out of the lexicon
SURE = 1e-4  # what a target token must have in all, or nobody knows where it comes from


class Guide:
    """Where target tokens come from, and the loss of a head that looks elsewhere."""

    def __init__(self, store: Store, weight: float) -> None:
        """`weight`: of this loss beside that of the tokens."""
        places = range(0, len(store.source.begins), max(1, len(store.source.begins) // MOST_PAIRS))
        pairs = ((_with_end(store.source, place), _with_end(store.target, place)) for place in places)
        lexicon = learn_lexicon(pairs, store.sizes[1], MOST_CELLS, DIAGONAL)
        probability = lexicon.probability
        kept = probability > PROBABLE
        self.size, self.weight = lexicon.size, weight
        self._pairs, self._probability = lexicon.pairs[kept], probability[kept].astype(np.float32)
        store.release()

    def loss(self, weights: Tensor, batch: Batch) -> Tensor:
        """-Σ q log a over target tokens, where a head looks by `weights` (R, T, S) and q is where it should."""
        q = self.alignment(batch).to(weights.device)
        return -(q * weights.float().clamp(min=1e-6).log()).sum()

    def alignment(self, batch: Batch) -> Tensor:
        """(R, T, S) where each token of target_out comes from, summing to 1; to 0, where nobody knows."""
        source, target = (Rows(*(part.cpu() for part in side)) for side in (batch.source, batch.target_in))
        here = source.tokens.unsqueeze(1) * self.size + batch.target_out.cpu().unsqueeze(2)
        together = source.segments.unsqueeze(1) == target.segments.unsqueeze(2)
        distance = (_shares(target).unsqueeze(2) - _shares(source).unsqueeze(1)).abs()
        q = self._look_up(here) * torch.exp(-DIAGONAL * distance) * together
        q = q.masked_fill((learned_from(batch.target_out.cpu()) == PAD).unsqueeze(2), 0.0)
        total = q.sum(-1, keepdim=True)
        return (q / total.clamp(min=SURE)).masked_fill(total < SURE, 0.0)

    def _look_up(self, pairs: Tensor) -> Tensor:
        wanted = pairs.numpy().ravel()
        found = np.searchsorted(self._pairs, wanted).clip(max=len(self._pairs) - 1)
        probability = np.where(self._pairs[found] == wanted, self._probability[found], np.float32(0))
        return torch.from_numpy(probability).view(pairs.shape)


def _with_end(side: Side, place: int) -> np.ndarray:
    return np.append(side.ids[side.begins[place] : side.begins[place] + side.lengths[place]].astype(np.int64), END)


def _shares(rows: Rows) -> Tensor:
    """(R, T) how far each slot is through its sentence, from 0 to 1."""
    lengths = torch.zeros(len(rows.segments), int(rows.segments.max()) + 1, dtype=rows.positions.dtype)
    lengths.scatter_reduce_(1, rows.segments, rows.positions + 1, "amax")
    return (rows.positions + 0.5) / lengths.gather(1, rows.segments)
