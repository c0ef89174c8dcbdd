"""A target that is given, not looked for: how probable it is, and what else could have stood at each place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.core.layout import lay_out
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import BEGIN, END
from transduce.decoding.batches import batches
from transduce.decoding.results import TargetScore
from transduce.decoding.sentences import shortened


@torch.inference_mode()
def forced_log_probabilities(
    model: Seq2Seq, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], device: str
) -> Tensor:
    """The log-probability of every token at every place (R, T, V), the one after the last, where END stands,
    included."""
    source = lay_out([[[*ids, END]] for ids in sources]).to(device)
    target_in = lay_out([[[BEGIN, *ids]] for ids in targets]).to(device)
    model.eval()
    return model(source, target_in).float().log_softmax(-1)


def score_targets(
    model: Seq2Seq,
    sources: list[list[int]],
    targets: list[list[int]],
    longest: int,
    slots: int,
    device: str,
    given: int = 0,
) -> list[TargetScore]:
    """The log-probability of each target given its source, and its first `given` tokens, which do not count."""
    status = ["truncated" if len(ids) > longest else "ok" for ids in sources]
    sources = [shortened(ids, longest) for ids in sources]
    sizes = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
    scores = [TargetScore(math.nan, len(t) - given + 1, "too long") for t in targets]
    fitting = [i for i, t in enumerate(targets) if len(t) - given <= longest]
    for batch in batches(fitting, sizes, slots):
        total = _totals(model, [sources[i] for i in batch], [targets[i] for i in batch], device, given)
        for i, value in zip(batch, total, strict=True):
            known = math.isfinite(value)
            scores[i] = scores[i]._replace(
                log_probability=value if known else math.nan, status=status[i] if known else "failed"
            )
    return scores


@torch.inference_mode()
def _totals(model: Seq2Seq, sources: list[list[int]], targets: list[list[int]], device: str, given: int) -> list[float]:
    log_p = forced_log_probabilities(model, sources, targets, device)
    target_out = lay_out([[[*ids, END]] for ids in targets]).to(device)
    right = log_p.gather(-1, target_out.tokens.unsqueeze(-1)).squeeze(-1)  # (R, T)
    return (right * (target_out.segments != 0))[:, given:].sum(-1).tolist()


def alternatives(
    model: Seq2Seq, source: Sequence[int], target: Sequence[int], count: int, device: str
) -> list[list[tuple[int, float]]]:
    """For each token of a target, END too, the `count` most probable at its place, with their probabilities."""
    p = forced_log_probabilities(model, [source], [target], device)[0].exp()
    best, tokens = p.topk(min(count, p.size(-1)))
    return [list(zip(*row, strict=True)) for row in zip(tokens.tolist(), best.tolist(), strict=True)]
