"""What a translation may not contain, or must: rules that change the log-probabilities of the next token.

A rule is called with log-probabilities (R, B, V), which it changes in place, and the hypotheses they continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transduce.decoding.hypotheses import IMPOSSIBLE, Beams
from transduce.text.special import BEGIN, END, PAD, UNKNOWN

Rule = Callable[[Tensor, Beams], None]


def never_written(log_p: Tensor, beams: Beams | None = None) -> None:
    """What is never a translation."""
    log_p[..., [PAD, BEGIN, UNKNOWN]] = IMPOSSIBLE


def at_least(log_p: Tensor, beams: Beams) -> None:
    """No END before a translation is as long as it must be."""
    too_short = [row for row, request in enumerate(beams.requests) if beams.length < request.least]
    log_p[too_short, :, END] = IMPOSSIBLE


def begin_with_prefix(log_p: Tensor, beams: Beams) -> None:
    """While the prefix lasts there is no choice."""
    for row, request in enumerate(beams.requests):
        if beams.length < len(request.prefix):
            token = request.prefix[beams.length]
            kept = log_p[row, :, token].clone()
            log_p[row] = IMPOSSIBLE
            log_p[row, :, token] = kept


def within_vocabulary(log_p: Tensor, beams: Beams) -> None:
    """Nothing outside a sentence's shortlist, whose probabilities sum to one."""
    short = [row for row, request in enumerate(beams.requests) if request.vocabulary is not None]
    outside = torch.ones(len(short), log_p.size(-1), dtype=torch.bool)
    for mask, row in zip(outside, short, strict=True):
        mask[torch.from_numpy(beams.requests[row].vocabulary)] = False
    inside = log_p[short].masked_fill(outside.unsqueeze(1).to(log_p.device), IMPOSSIBLE)
    log_p[short] = inside - inside.logsumexp(-1, keepdim=True)


class NoRepeat:
    """No sequence of `n` tokens twice."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, log_p: Tensor, beams: Beams) -> None:
        if beams.length < self.n:
            return
        written = beams.tokens.unfold(2, self.n, 1)  # (R, B, t - n + 1, n) every sequence so far
        last = beams.tokens[:, :, beams.length - self.n + 1 :]  # (R, B, n - 1) what the next token would end
        again = (written[..., :-1] == last.unsqueeze(2)).all(-1) & beams.choosing().unsqueeze(2)
        for row, beam, place in again.nonzero().tolist():
            log_p[row, beam, written[row, beam, place, -1]] = IMPOSSIBLE


class RepetitionPenalty:
    """A token that was written before is so many times less likely, in log-probability."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, log_p: Tensor, beams: Beams) -> None:
        log_p.scatter_(2, beams.tokens, log_p.gather(2, beams.tokens) * self.factor)


class Forbid:
    """Words that must not be written: sequences of tokens of which the last is impossible after the others."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.sequences = [torch.tensor(sequence) for sequence in sequences if sequence]

    def __call__(self, log_p: Tensor, beams: Beams) -> None:
        choosing = beams.choosing()
        for sequence in self.sequences:
            before = len(sequence) - 1
            if before > beams.length:
                continue
            last = beams.tokens[:, :, beams.length - before :]
            written = (last == sequence[:-1].to(last.device)).all(-1) & choosing  # (R, B)
            log_p[..., sequence[-1]] = log_p[..., sequence[-1]].masked_fill(written, IMPOSSIBLE)
