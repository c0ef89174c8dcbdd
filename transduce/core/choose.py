"""Which hypotheses go on: the most probable, the most probable of separate groups, or drawn at random."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from transduce.core.hypotheses import IMPOSSIBLE, Beams
from transduce.core.special import END

CHUNK = 64  # continuations whose best is looked at first


class End(NamedTuple):
    """A hypothesis that has written END."""

    row: int
    beam: int  # the hypothesis that it continues
    total: float  # its log-probability, END's too


class Chosen(NamedTuple):
    """What becomes of the hypotheses."""

    parents: Tensor  # (R, B) which hypothesis each new one continues
    tokens: Tensor  # (R, B) by which token
    scores: Tensor  # (R, B) its log-probability then
    ends: list[End]


class Chooser(Protocol):
    """A way to choose: from log-probabilities (R, B, V) of what comes next."""

    def __call__(self, log_p: Tensor, beams: Beams) -> Chosen: ...


def best_continuations(log_p: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best of all B x V continuations of a sentence's hypotheses: totals, parents, tokens (R, count each).

    They lie in the `count` chunks of the vocabulary that have the best bests: so everything is read once, nothing
    large is added up or sorted.
    """
    rows, beams, size = log_p.shape
    pieces = -(-size // CHUNK)
    if pieces < 4 or count >= beams * pieces:
        best, place = (log_p + scores.unsqueeze(-1)).flatten(1).topk(min(count, beams * size), 1)
        return best, place // size, place % size
    whole = size // CHUNK * CHUNK
    bests = log_p[..., :whole].unflatten(-1, (-1, CHUNK)).amax(-1)  # (R, B, chunks)
    if whole < size:
        bests = torch.cat([bests, log_p[..., whole:].amax(-1, keepdim=True)], -1)
    chunk = (bests + scores.unsqueeze(-1)).flatten(1).topk(count, 1).indices  # (R, count)
    parents, tokens = chunk // pieces, (chunk % pieces * CHUNK).unsqueeze(-1) + torch.arange(CHUNK, device=chunk.device)
    row = torch.arange(rows, device=chunk.device).view(-1, 1, 1)
    found = log_p[row, parents.unsqueeze(-1), tokens.clamp(max=size - 1)] + scores.gather(1, parents).unsqueeze(-1)
    found = found.masked_fill_(tokens >= size, IMPOSSIBLE) if whole < size else found
    best, place = found.flatten(1).topk(count, 1)
    return best, parents.gather(1, place // CHUNK), tokens.flatten(1).gather(1, place)


class Best:
    """Beam search: of all continuations of all hypotheses of a sentence the most probable."""

    def __call__(self, log_p: Tensor, beams: Beams) -> Chosen:
        return keep_best(log_p, beams.scores)


def keep_best(log_p: Tensor, scores: Tensor, value: Tensor | None = None) -> Chosen:
    """The best B of B x V continuations, by `value` (R, B, V) if it is not their log-probability alone.

    At most B of the best 2 B can be ends, so that B others are among them. An end that is outranked by B others
    would not have been kept, and is none.
    """
    size = scores.size(1)
    best, parents, tokens = best_continuations(log_p if value is None else value, scores, 2 * size)
    if value is not None:
        rows = torch.arange(len(scores), device=scores.device).unsqueeze(1)
        best = (scores.gather(1, parents) + log_p[rows, parents, tokens]).masked_fill(best == IMPOSSIBLE, IMPOSSIBLE)
    is_end = tokens == END
    ended = (is_end & (best > IMPOSSIBLE))[:, :size]
    ends = [End(row, int(parents[row, k]), float(best[row, k])) for row, k in ended.nonzero().tolist()]
    stay = is_end.int().argsort(dim=1, stable=True)[:, :size]  # the best that have not ended
    scores = best.gather(1, stay).masked_fill(is_end.gather(1, stay), IMPOSSIBLE)  # too small a vocabulary
    return Chosen(parents.gather(1, stay), tokens.gather(1, stay), scores, ends)


class Groups:
    """Diverse beam search: groups choose in turn, and a token that earlier groups took at this step counts less.

    What it counts less by decides who goes on, and does not enter the score.
    """

    def __init__(self, groups: int, diversity: float) -> None:
        self.groups = groups
        self.diversity = diversity

    def __call__(self, log_p: Tensor, beams: Beams) -> Chosen:
        size = log_p.size(1) // self.groups
        taken = torch.zeros_like(log_p[:, 0])  # (R, V) how many took a token before
        parts: list[Chosen] = []
        for first in range(0, log_p.size(1), size):
            scores = beams.scores[:, first : first + size].clone()
            if beams.length == 0:
                scores[:, 0] = 0.0  # every group has a first hypothesis
            here = log_p[:, first : first + size]
            part = keep_best(here, scores, here - self.diversity * taken.unsqueeze(1))
            alive = (part.scores > IMPOSSIBLE).to(taken.dtype)
            taken.scatter_add_(1, part.tokens, alive)
            ends = [End(row, first + beam, total) for row, beam, total in part.ends]
            parts.append(Chosen(part.parents + first, part.tokens, part.scores, ends))
        parents, tokens, totals = (torch.cat(column, 1) for column in zip(*(part[:3] for part in parts), strict=True))
        return Chosen(parents, tokens, totals, [end for part in parts for end in part.ends])


class Draw:
    """Sampling: every hypothesis is a sample of its own.

    The chances come from the seed and the sentence itself, so that it draws the same in any company.
    """

    def __init__(
        self, seed: int, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
    ) -> None:
        self.seed = seed
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.min_p = min_p

    def __call__(self, log_p: Tensor, beams: Beams) -> Chosen:
        if beams.length == 0:
            self._begin(beams)
        assert beams.chances is not None
        p = self._restricted((log_p / self.temperature).softmax(-1))
        reached = p.double().cumsum(-1)
        chance = beams.chances[:, :, beams.length] * reached[..., -1]
        tokens = torch.searchsorted(reached, chance.unsqueeze(-1), right=True).squeeze(-1).clamp_(max=p.size(-1) - 1)
        scores = beams.scores + log_p.gather(2, tokens.unsqueeze(-1)).squeeze(-1)
        ended = (tokens == END) & (scores > IMPOSSIBLE)
        ends = [End(row, beam, float(scores[row, beam])) for row, beam in ended.nonzero().tolist()]
        parents = torch.arange(p.size(1), device=p.device).expand(len(p), -1)
        return Chosen(parents, tokens, scores.masked_fill(tokens == END, IMPOSSIBLE), ends)

    def _restricted(self, p: Tensor) -> Tensor:
        """Probabilities of what may be drawn; zero for the rest."""
        if self.top_k is not None:
            p = p.masked_fill(p < p.topk(min(self.top_k, p.size(-1)), -1).values[..., -1:], 0.0)
        if self.min_p is not None:
            p = p.masked_fill(p < self.min_p * p.amax(-1, keepdim=True), 0.0)
        if self.top_p is not None:
            sorted_p = p.sort(-1, descending=True).values
            before = sorted_p.cumsum(-1) - sorted_p  # of all that are more probable
            enough = (before >= self.top_p * p.sum(-1, keepdim=True)).float().argmax(-1, keepdim=True)
            least = sorted_p.gather(-1, (enough - 1) % p.size(-1))  # the last one needed; all, if none is too many
            p = p.masked_fill(p < least, 0.0)
        return p

    def _begin(self, beams: Beams) -> None:
        """All samples begin, each with numbers between 0 and 1 that depend on the seed and the sentence alone."""
        beams.scores = torch.zeros_like(beams.scores)
        samples, longest = beams.scores.size(1), max(request.most for request in beams.requests)
        numbers = [
            [np.random.default_rng([self.seed, sample, *request.source]).random(longest) for sample in range(samples)]
            for request in beams.requests
        ]
        beams.chances = torch.from_numpy(np.array(numbers)).to(beams.scores.device)
