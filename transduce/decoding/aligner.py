"""Which head aligns words best, found without anybody's alignments.

If a head links each target token to the source token it comes from, then the source token tells what the target token
is. So links of one half of the validation text are counted, and the head is the best whose counts predict the target
tokens of the other half from the source tokens it links them to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import BEGIN, END, PAD
from transduce.data.batches import Batch
from transduce.decoding.alignment import Aligner, source_positions

MOST_TOKENS = 50_000  # of the target that are looked at
SMOOTHING = 1.0  # weight of what a target token's own frequency says


class Tokens(NamedTuple):
    """Target tokens, the source tokens that every head links them to, and the half of the text they are in."""

    target: np.ndarray  # (n,)
    source: np.ndarray  # (layers, heads + 1, n)
    half: np.ndarray  # (n,) 0 or 1


def find_aligner(model: Seq2Seq, batches: Iterable[Batch], vocabulary: int, device: str) -> Aligner | None:
    """The head that aligns best; None without a source to look at or text to try."""
    scores = score_aligners(model, batches, vocabulary, device)
    return max(scores, key=lambda aligner: scores[aligner], default=None)


def score_aligners(model: Seq2Seq, batches: Iterable[Batch], vocabulary: int, device: str) -> dict[Aligner, float]:
    """The mean log-probability of a target token of one half, given the source token it is linked to, by the links of
    the other half; of every head, when tokens are written and when they are read."""
    if not model.looks_at_source:
        return {}
    scores = {}
    for reads, tokens in _looked_at(model, batches, device).items():
        if len(set(tokens.half.tolist())) < 2:
            return {}
        layers, heads, _ = tokens.source.shape
        for layer in range(layers):
            for head in range(heads):
                source = tokens.source[layer, head]
                score = _predicts(source, tokens.target, tokens.half, vocabulary)
                scores[Aligner(layer + 1, head + 1 if head + 1 < heads else None, reads)] = score
    return scores


@torch.inference_mode()
def _looked_at(model: Seq2Seq, batches: Iterable[Batch], device: str) -> dict[bool, Tokens]:
    """When tokens are written (False), and when they are read."""
    model.eval()
    found: dict[bool, list[Tokens]] = {False: [], True: []}
    seen = 0
    for batch in batches:
        batch = batch.to(device)
        cross = model.attention(batch.source, batch.target_in).cross
        places = torch.stack([source_positions(cross, batch.source, layer) for layer in range(len(cross))])
        rows = torch.arange(len(batch.target_out), device=device).unsqueeze(1)
        source = batch.source.tokens[rows, places]  # (layers, heads + 1, R, T)
        for reads, target in ((False, batch.target_out), (True, batch.target_in.tokens)):
            said = (target != PAD) & (target != BEGIN) & (target != END)
            half = ((rows + seen) % 2).expand_as(target)[said]
            found[reads].append(Tokens(*(x.cpu().numpy() for x in (target[said], source[:, :, said], half))))
        seen += len(batch.target_out)
        if sum(len(tokens.target) for tokens in found[False]) >= MOST_TOKENS:
            break
    return {
        reads: Tokens(*(np.concatenate(part, -1) for part in zip(*parts, strict=True)))
        for reads, parts in found.items()
        if parts
    }


def _predicts(source: np.ndarray, target: np.ndarray, half: np.ndarray, vocabulary: int) -> float:
    total = 0.0
    pairs = source.astype(np.int64) * vocabulary + target
    for held_out in (0, 1):
        count, test = half != held_out, half == held_out
        known, times = np.unique(pairs[count], return_counts=True)
        place = np.searchsorted(known, pairs[test]).clip(max=len(known) - 1)
        together = np.where(known[place] == pairs[test], times[place], 0)
        of_source = np.bincount(source[count], minlength=int(source.max()) + 1)[source[test]]
        of_target = np.bincount(target[count], minlength=vocabulary)[target[test]]
        alone = (of_target + 1) / (count.sum() + vocabulary)
        total += float(np.log((together + SMOOTHING * alone) / (of_source + SMOOTHING)).sum())
    return total / len(target)
