"""Greedy and beam search of a batch on a CPU, in tables that compiled loops read and write (loops.py).

Everything has its place in memory, as on a GPU (recorded.py); sentences that are done leave, and the rest move up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from transduce.compiled import is_on_disk
from transduce.core.hypotheses import IMPOSSIBLE, Hypothesis, Request
from transduce.core.layout import lay_out
from transduce.core.search import LEAVING, Roles, moved_up
from transduce.core.special import BEGIN, END
from transduce.decoding.batches import PlainEngine
from transduce.engine import loops
from transduce.engine.incremental import Incremental
from transduce.engine.loop_decoder import DecoderArrays, LoopDecoder
from transduce.engine.loop_encoder import LoopEncoder
from transduce.engine.walk_back import Found, of_lengths


class Table(NamedTuple):
    """What is known of R sentences; T steps that there is room for, B beams."""

    active: np.ndarray  # (R,) whether it goes on
    length: np.ndarray  # (R,) tokens so far
    most: np.ndarray  # (R,) its limit
    history: np.ndarray  # (R, T, B) the token that a hypothesis got at a step
    parents: np.ndarray  # (R, T, B) and the hypothesis that it came from
    end_totals: np.ndarray  # (R, T, B) log-probabilities of what ended at a step
    end_parents: np.ndarray  # (R, T, B)
    scores: np.ndarray  # (R, B) log-probabilities of those that go on, best first
    ancestors: np.ndarray  # (R, B, T) through which beam of a step each of them came
    finished: np.ndarray  # (R, needed) the best scores of what ended
    ended: np.ndarray  # (R,) how many have

    @staticmethod
    def begin(requests: list[Request], roles: Roles) -> Table:
        most = np.array([request.most for request in requests])
        rows, steps, beams = len(requests), int(most.max()), roles.size
        scores = np.full((rows, beams), IMPOSSIBLE, np.float32)
        scores[:, 0] = 0  # only one begins
        history, parents, end_parents = (np.zeros((rows, steps, beams), np.int64) for _ in range(3))
        end_totals = np.empty((rows, steps, beams), np.float32)
        ancestors, finished = np.zeros((rows, beams, steps), np.int64), np.full((rows, roles.needed), IMPOSSIBLE)
        active, length, ended = np.ones(rows, np.bool_), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        return Table(
            active, length, most, history, parents, end_totals, end_parents, scores, ancestors, finished, ended
        )

    def found(self, rows: np.ndarray) -> Found:
        length, most, *rest = (column[rows] for column in self[1:8])
        return Found(length, most, *rest)


def is_compiled() -> bool:
    """Whether nobody has to wait for it: the loop that a search comes to last is there."""
    return is_on_disk(loops.advance)


class LoopModel:
    """A model as the loops read it."""

    def __init__(self, model: Incremental) -> None:
        self.encoder, self.decoder = LoopEncoder(model), DecoderArrays.of(model)


class LoopSearch:
    """One batch."""

    @torch.inference_mode()
    def __init__(self, model: LoopModel, requests: list[Request], roles: Roles) -> None:
        self.roles = roles
        self.table = Table.begin(requests, roles)
        memory = model.encoder.encode(lay_out([[[*request.source, END]] for request in requests]))
        self.decoder = LoopDecoder(model.decoder, memory, self.table.history.shape[1], roles.size)
        self.sentences = np.arange(len(requests))
        self.results: list[list[Hypothesis]] = [[] for _ in requests]

    @torch.inference_mode()
    def run(self) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence, best first."""
        steps, stop, forced_end = self.table.history.shape[1], self.roles.stop, self.roles.penalty.forced_end
        lengths = np.array([1.0, *of_lengths(self.roles.penalty, steps)])
        tokens, n = np.full(len(self.sentences), BEGIN), 0
        while len(self.sentences):
            logits = self.decoder.step(tokens.reshape(-1), n, self.table.ancestors, self.table.active)
            rows, room = len(self.sentences), 2 * self.roles.size
            best = (
                np.empty((rows, room), np.float32),
                np.empty((rows, room), np.int64),
                np.empty((rows, room), np.int64),
            )
            loops.best_continuations(logits, self.table.scores, self.table.active, *best)
            loops.advance(best, n, tuple(self.table), lengths, stop == "exact", stop == "likely", forced_end)
            n += 1
            if np.count_nonzero(self.table.active) <= LEAVING * rows:
                self._leave(n)
            tokens = self.table.history[:, n - 1]
        return self.results

    def _leave(self, n: int) -> None:
        """Who is done goes, and the last of the others move into the gaps."""
        done = np.flatnonzero(~self.table.active)
        for i, hypotheses in zip(self.sentences[done], self.table.found(done).hypotheses(self.roles), strict=True):
            self.results[i] = hypotheses
        rows = np.array(moved_up(np.flatnonzero(self.table.active).tolist()), np.int64)
        self.decoder.keep(rows, n * self.roles.size)
        self.table = Table(*(column[rows] for column in self.table))
        self.sentences = self.sentences[rows]


class LoopEngine(PlainEngine):
    """Batches of like length, each by a search of this kind."""

    def __init__(self, model: Incremental, device: str) -> None:
        super().__init__(model, device)
        self.loops = LoopModel(model)

    def _search(self, requests: list[Request], roles: Roles) -> list[list[Hypothesis]]:
        return LoopSearch(self.loops, requests, roles).run()
