"""Looking for the most probable target: greedy, and beam search with length penalty, over the model's four verbs.

Rows are sentences (R). Hypotheses are rows of a state: R of them in greedy search, R x B in beam search, the beams
of a sentence next to each other. A sentence's result does not depend on the others in its batch: each has its own
length limit, and finished sentences leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.models.seq2seq import Seq2Seq
from transduce.nn.rows import Rows
from transduce.text.special import BEGIN, END, PAD, UNKNOWN

IMPOSSIBLE = float("-inf")


class Hypothesis(NamedTuple):
    """A target that was found."""

    tokens: list[int]  # without BEGIN and END
    score: float  # log-probability by length penalty
    log_probability: float
    complete: bool  # ended by END, not by the length limit


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha, END counted."""
    return ((5 + length) / 6) ** alpha


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-probabilities of the next token; what is never a translation is impossible."""
    result = logits.float().log_softmax(-1)
    result[..., [PAD, BEGIN, UNKNOWN]] = IMPOSSIBLE
    return result


@torch.inference_mode()
def greedy(model: Seq2Seq, source: Rows, limits: list[int], alpha: float = 0.0) -> list[list[Hypothesis]]:
    """The most probable token at each step. `limits`: most tokens for each sentence, END counted."""
    memory = model.encode(source)
    state = model.start(memory)
    tokens = torch.full_like(source.tokens[:, 0], BEGIN)
    alive = torch.arange(len(limits))  # sentences still in the batch
    written: list[list[int]] = [[] for _ in limits]
    total = [0.0] * len(limits)
    complete = [False] * len(limits)
    while len(alive):
        logits, state = model.step(tokens, memory, state)
        best, tokens = log_probabilities(logits).max(-1)
        going_on = []
        for row, (sentence, token, score) in enumerate(
            zip(alive.tolist(), tokens.tolist(), best.tolist(), strict=True)
        ):
            total[sentence] += score
            complete[sentence] = token == END
            if not complete[sentence]:
                written[sentence].append(token)
                if len(written[sentence]) < limits[sentence]:
                    going_on.append(row)
        if len(going_on) < len(alive):
            keep = torch.tensor(going_on, dtype=torch.long)
            alive, keep = alive[keep], keep.to(tokens.device)
            tokens, memory, state = tokens[keep], memory.keep(keep), state.reorder(keep).keep(keep)
    return [
        [Hypothesis(f, t / length_penalty(len(f) + c, alpha), t, c)]
        for f, t, c in zip(written, total, complete, strict=True)
    ]


@dataclass
class Beams:
    """All that beam search knows about the sentences still in the batch."""

    tokens: Tensor  # (R, B, t) so far, BEGIN left out
    scores: Tensor  # (R, B) log-probability
    sentences: list[int]  # which sentence each row is
    finished: list[list[Hypothesis]]  # ended hypotheses of every sentence of the batch


@torch.inference_mode()
def beam(
    model: Seq2Seq,
    source: Rows,
    limits: list[int],
    size: int,
    alpha: float,
    n_best: int = 1,
    watch: Callable[[Beams], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` best targets of each sentence, best first, among `size` that are followed side by side.

    A sentence is done when `n_best` hypotheses have ended that no open one can still beat: its score divided by the
    largest penalty it could reach is no better. `watch` sees the beams after every step.
    """
    memory = model.encode(source)
    state = model.start(memory)
    count, device = len(limits), source.tokens.device
    # All beams start alike: only the first may be continued, or there would be `size` copies of it.
    scores = torch.full((count, size), IMPOSSIBLE, device=device)
    scores[:, 0] = 0.0
    empty = torch.empty(count, size, 0, dtype=torch.long, device=device)
    beams = Beams(empty, scores, list(range(count)), [[] for _ in limits])
    state = state.reorder(torch.arange(count, device=device).repeat_interleave(size))
    tokens = torch.full((count * size,), BEGIN, dtype=torch.long, device=device)
    while beams.sentences:
        logits, state = model.step(tokens, memory, state)
        rows = _advance(beams, log_probabilities(logits), alpha)  # which hypothesis each new one continues
        going_on = _still_open(beams, limits, alpha, n_best)
        if watch is not None:
            watch(beams)
        if len(going_on) < len(beams.sentences):
            keep = torch.tensor(going_on, dtype=torch.long, device=device)
            rows = rows.view(-1, size)[keep].flatten()
            beams.tokens, beams.scores = beams.tokens[keep], beams.scores[keep]
            beams.sentences = [beams.sentences[r] for r in going_on]
            memory, state = memory.keep(keep), state.keep(keep)
        state = state.reorder(rows)
        tokens = beams.tokens[:, :, -1].flatten()
    return [ranked(hypotheses)[:n_best] for hypotheses in beams.finished]


def ranked(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Best first; what ran into its limit comes after what ended."""
    return sorted(hypotheses, key=lambda h: (not h.complete, -h.score))


def _advance(beams: Beams, log_probability: Tensor, alpha: float) -> Tensor:
    """Continue every beam by one token; ended ones move to `finished`, the best others stay."""
    rows, size = beams.scores.shape
    scores = beams.scores.unsqueeze(-1) + log_probability.view(rows, size, -1)  # (R, B, vocabulary)
    vocabulary, length = scores.size(-1), beams.tokens.size(2)
    # At most `size` of the best 2 * size can be ends, so that `size` others are among them.
    best, place = scores.flatten(1).topk(min(2 * size, size * vocabulary), dim=1)
    beam, token = place // vocabulary, place % vocabulary
    ended = (token == END) & (best > IMPOSSIBLE)
    ended[:, size:] = False  # outranked by `size` others, it would not have been kept
    for r, k in ended.nonzero().tolist():
        total = float(best[r, k])
        tokens = beams.tokens[r, beam[r, k]].tolist()
        done = Hypothesis(tokens, total / length_penalty(length + 1, alpha), total, complete=True)
        beams.finished[beams.sentences[r]].append(done)
    open_first = (token == END).int().argsort(dim=1, stable=True)[:, :size]  # the best that have not ended
    beam, token = beam.gather(1, open_first), token.gather(1, open_first)
    beams.scores = best.gather(1, open_first)
    before = beams.tokens.gather(1, beam.unsqueeze(-1).expand(-1, -1, length))
    beams.tokens = torch.cat([before, token.unsqueeze(-1)], 2)
    return (torch.arange(rows, device=beam.device).unsqueeze(1) * size + beam).flatten()


def _still_open(beams: Beams, limits: list[int], alpha: float, n_best: int) -> list[int]:
    """Rows to go on with. At a sentence's limit its open hypotheses are taken as they are."""
    length = beams.tokens.size(2)
    going_on = []
    for row, (sentence, scores) in enumerate(zip(beams.sentences, beams.scores.tolist(), strict=True)):
        finished, limit = beams.finished[sentence], limits[sentence]
        if length >= limit:
            for tokens, total in zip(beams.tokens[row].tolist(), scores, strict=True):
                if total > IMPOSSIBLE:
                    finished.append(Hypothesis(tokens, total / length_penalty(length, alpha), total, complete=False))
            continue
        hope = scores[0] / length_penalty(limit, alpha)
        if sum(h.score >= hope for h in finished) < n_best:
            going_on.append(row)
    return going_on
