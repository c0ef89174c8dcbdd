"""From the tables of a recorded search to hypotheses: who ended where, and the way back to the first token."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transduce.core.hypotheses import IMPOSSIBLE, Hypothesis, Penalty
from transduce.core.search import Roles


class Found(NamedTuple):
    """The tables of F sentences that are done; see `Slots` in fast/kernels/choose.py."""

    length: np.ndarray  # (F,)
    most: np.ndarray  # (F,)
    history: np.ndarray  # (F, T, B)
    parents: np.ndarray  # (F, T, B)
    end_totals: np.ndarray  # (F, T, B)
    end_parents: np.ndarray  # (F, T, B)
    scores: np.ndarray  # (F, B) of those that had not ended

    def shortened(self) -> Found:
        """Without the steps that none of them took."""
        used = int(self.length.max(initial=1))
        return Found(*(table[:, :used] if table.ndim == 3 else table for table in self))

    def hypotheses(self, roles: Roles) -> list[list[Hypothesis]]:
        """The wanted ones of each sentence, best first: those that ended, then those that its limit cut, if these do
        not have their place by their score."""
        found, wanted = self.shortened(), roles.n_best
        if found.history.shape[2] == 1:
            return _followed(found).hypotheses(roles)
        totals, scores, tokens, beams, complete = _candidates(found, roles.penalty)
        rank = np.where(complete, scores, scores - 1e9) if roles.ended_first else scores  # the impossible stays last
        order = rank.argmax(1)[:, None] if wanted == 1 else np.argsort(-rank, axis=1, kind="stable")[:, :wanted]
        sentence = np.arange(len(found.length))[:, None]
        totals, scores, tokens, beams, complete = (
            x[sentence, order] for x in (totals, scores, tokens, beams, complete)
        )
        written = _walk_back(found, np.broadcast_to(sentence, order.shape).ravel(), tokens.ravel(), beams.ravel())
        flat = zip(written.tolist(), *(x.ravel().tolist() for x in (tokens, scores, totals, complete)), strict=True)
        every = [Hypothesis(row[:n], s, t, c) for row, n, s, t, c in flat]
        if wanted == 1:
            return [[h] if h.log_probability > IMPOSSIBLE else [] for h in every]
        some = [every[first : first + order.shape[1]] for first in range(0, len(every), order.shape[1])]
        return [[h for h in hypotheses if h.log_probability > IMPOSSIBLE] for hypotheses in some]


class Only(NamedTuple):
    """One hypothesis of each of F sentences."""

    tokens: np.ndarray  # (F, T)
    length: np.ndarray  # (F,) tokens that are meant
    total: np.ndarray  # (F,) log-probability; -inf: nothing was found
    ended: np.ndarray  # (F,) by END; 0: cut at its limit

    def hypotheses(self, roles: Roles) -> list[list[Hypothesis]]:
        length, total, ended = self.length, self.total.astype(np.float64), self.ended.astype(bool)
        used = int(length.max(initial=0))
        has_end = ended | roles.penalty.forced_end
        scores = total / of_lengths(roles.penalty, used + 1)[np.maximum(length + has_end, 1) - 1]
        written = self.tokens[:, :used][np.arange(used) < length[:, None]].tolist()  # one after the other
        ends = np.cumsum(length)
        each = zip(*(column.tolist() for column in (ends - length, ends, scores, total, ended)), strict=True)
        return [[Hypothesis(written[a:b], s, t, c)] if t > IMPOSSIBLE else [] for a, b, s, t, c in each]


def of_lengths(penalty: Penalty, most: int) -> np.ndarray:
    """What log-probabilities are divided by: [n] of n + 1 tokens."""
    return np.array([penalty.of_length(n) for n in range(1, most + 1)])


def _followed(found: Found) -> Only:
    """What greedy search follows: it ended with the last step, or was cut there."""
    last = np.maximum(found.length, 1) - 1
    ends = found.end_totals[np.arange(len(last)), last, 0]
    ended = ends > IMPOSSIBLE
    return Only(found.history[:, :, 0], found.length - ended, np.where(ended, ends, found.scores[:, 0]), ended)


def _candidates(found: Found, penalty: Penalty) -> tuple[np.ndarray, ...]:
    """What each sentence has found, (F, T * B + B): log-probability, score, number of tokens, last hypothesis, whether
    it ended."""
    count, steps, beams = found.end_totals.shape
    at = np.arange(steps)
    lengths = of_lengths(penalty, steps + 1)
    totals = np.where(at[None, :, None] < found.length[:, None, None], found.end_totals, IMPOSSIBLE)
    cut = (found.length >= found.most)[:, None] & (found.scores > IMPOSSIBLE)
    open_totals = np.where(cut, found.scores, IMPOSSIBLE)
    open_scores = open_totals / lengths[np.maximum(found.length + penalty.forced_end, 1) - 1][:, None]
    ended = (totals / lengths[:steps][None, :, None]).reshape(count, -1)
    tokens = np.broadcast_to(at[None, :, None], totals.shape).reshape(count, -1)
    own = np.broadcast_to(np.arange(beams), (count, beams))
    return (
        np.concatenate([totals.reshape(count, -1), open_totals], 1).astype(np.float64),
        np.concatenate([ended, open_scores], 1).astype(np.float64),
        np.concatenate([tokens, np.broadcast_to(found.length[:, None], own.shape)], 1),
        np.concatenate([found.end_parents.reshape(count, -1).astype(np.int64), own], 1),
        np.concatenate([np.ones(ended.shape, bool), np.zeros(own.shape, bool)], 1),
    )


def _walk_back(found: Found, sentence: np.ndarray, tokens: np.ndarray, beam: np.ndarray) -> np.ndarray:
    """The tokens (E, T) of E hypotheses, each by its sentence, its number of tokens and where it stood last."""
    beam = beam.copy()
    written = np.zeros((len(sentence), max(1, int(tokens.max(initial=0)))), np.int64)
    for step in range(int(tokens.max(initial=0)) - 1, -1, -1):
        on = np.flatnonzero(step < tokens)
        where = (sentence[on], step, beam[on])
        written[on, step] = found.history[where]
        beam[on] = found.parents[where]
    return written
