"""Greedy and beam search of a batch on a CPU: PyTorch's products, and compiled loops between them (loops.py).

Everything has its place in memory, as on a GPU (recorded.py); sentences that are done leave, and the rest move up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.data.layout import lay_out
from transduce.decoding.batches import PlainEngine
from transduce.decoding.hypotheses import IMPOSSIBLE, Hypothesis, Request
from transduce.decoding.search import LEAVING, Roles, moved_up
from transduce.engine import loops
from transduce.engine.incremental import Incremental
from transduce.engine.walk_back import Found, hypotheses_of
from transduce.engine.weights import DecoderWeights, Layer, Norm
from transduce.nn.precision import Affine
from transduce.text.special import BEGIN, END


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
    finished: np.ndarray  # (R, n_best) the best scores of what ended
    ended: np.ndarray  # (R,) how many have

    @staticmethod
    def begin(requests: list[Request], roles: Roles) -> Table:
        most = np.array([request.most for request in requests])
        rows, steps, beams = len(requests), int(most.max()), roles.size
        scores = np.full((rows, beams), IMPOSSIBLE, np.float32)
        scores[:, 0] = 0  # only one begins
        history, parents, end_parents = (np.zeros((rows, steps, beams), np.int64) for _ in range(3))
        end_totals = np.empty((rows, steps, beams), np.float32)
        ancestors, finished = np.zeros((rows, beams, steps), np.int64), np.full((rows, roles.n_best), IMPOSSIBLE)
        active, length, ended = np.ones(rows, np.bool_), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        return Table(
            active, length, most, history, parents, end_totals, end_parents, scores, ancestors, finished, ended
        )

    def found(self, rows: np.ndarray) -> Found:
        length, most, *rest = (column[rows] for column in self[1:8])
        return Found(length, most, *rest)


class LoopSearch:
    """One batch."""

    @torch.inference_mode()
    def __init__(self, model: Incremental, requests: list[Request], roles: Roles) -> None:
        self.weights = model.weights
        self.projection = model.projection.read(torch.float32)  # row by row: of many rows that product is faster
        self.roles = roles
        self.table = Table.begin(requests, roles)
        memory = model.encode(lay_out([[[*request.source, END]] for request in requests]))
        heads, (rows, width) = self.weights.cross_heads, memory.segments.shape
        self.lengths = (memory.segments != 0).sum(1).numpy()
        self.memory = [
            F.linear(memory.states, *layer.cross_keys_values).view(rows, width, 2, heads.number, heads.d_k).numpy()
            for layer in self.weights.layers
        ]
        heads, slots = self.weights.self_heads, self.table.history.shape[1] * roles.size
        self.past = [np.empty((rows, slots, 2, heads.number, heads.d_k), np.float32) for _ in self.memory]
        self.logits = torch.empty(rows * roles.size, len(self.projection.weight))
        self.sentences = np.arange(rows)
        self.results: list[list[Hypothesis]] = [[] for _ in requests]

    @torch.inference_mode()
    def run(self) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence, best first."""
        steps = self.table.history.shape[1]
        lengths = np.array([1.0, *(self.roles.penalty.of_length(n) for n in range(1, steps + 1))])
        tokens, n = np.full(len(self.sentences), BEGIN), 0
        while len(self.sentences):
            logits = self._step(torch.from_numpy(tokens.reshape(-1)), n)
            rows, room = len(self.sentences), 2 * self.roles.size
            best = (
                np.empty((rows, room), np.float32),
                np.empty((rows, room), np.int64),
                np.empty((rows, room), np.int64),
            )
            loops.best_continuations(logits, self.table.scores, self.table.active, *best)
            loops.advance(best, n, tuple(self.table), lengths, self.roles.exact)
            n += 1
            if np.count_nonzero(self.table.active) <= LEAVING * rows:
                self._leave(n)
            tokens = self.table.history[:, n - 1]
        return self.results

    def _leave(self, n: int) -> None:
        """Who is done goes, and the last of the others move into the gaps."""
        done = np.flatnonzero(~self.table.active)
        for i, hypotheses in zip(
            self.sentences[done],
            hypotheses_of(self.table.found(done), self.roles.n_best, self.roles.penalty),
            strict=True,
        ):
            self.results[i] = hypotheses
        rows = np.array(moved_up(np.flatnonzero(self.table.active).tolist()), np.int64)
        moved = np.flatnonzero(rows != np.arange(len(rows)))
        for cache, used in ((self.past, n * self.roles.size), (self.memory, None)):
            for array in cache:
                array[moved, :used] = array[rows[moved], :used]
        self.past, self.memory = ([array[: len(rows)] for array in cache] for cache in (self.past, self.memory))
        self.table = Table(*(column[rows] for column in self.table))
        self.sentences, self.lengths = self.sentences[rows], self.lengths[rows]

    def _step(self, tokens: Tensor, n: int) -> np.ndarray:
        """Logits (R * A, V) of what comes after these tokens (R * A)."""
        w = self.weights
        x = w.embedding(tokens, torch.full_like(tokens, n))
        h = w.layers[0].self_norm(x) if w.norm_before else x
        for i, layer in enumerate(w.layers):
            x, h = self._layer(i, layer, x, h, n)
        if not w.norm_before and w.final_norm is not None:
            h = w.final_norm(h)
        h = h * w.projection_scale if w.projection_scale != 1 else h
        weight, bias = self.projection
        logits = torch.mm(h, weight.t(), out=self.logits[: len(h)])  # in its place: so much new memory takes time
        return (logits if bias is None else logits.add_(bias)).numpy()

    def _layer(self, i: int, layer: Layer, x: Tensor, h: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The residual stream x behind a layer, and h, what the next one reads."""
        w, active = self.weights, self.table.active
        norms = following(w, i) if w.norm_before else (layer.self_norm, layer.cross_norm, layer.norm)
        read = torch.empty_like(h)
        qkv = F.linear(h, *layer.self_qkv).numpy().reshape(len(h), 3, w.self_heads.number, w.self_heads.d_k)
        seen = read.numpy().reshape(qkv.shape[0], *qkv.shape[2:])
        loops.look_back(qkv, self.past[i], self.table.ancestors, active, n, w.self_heads.scale, seen)
        x, h = self._written(x, read, layer.self_output, norms[0])

        q = F.linear(h, *layer.cross_query).numpy().reshape(seen.shape)
        loops.look_at_memory(q, self.memory[i], self.lengths, active, w.cross_heads.scale, seen)
        x, h = self._written(x, read, layer.cross_output, norms[1])

        inner = F.linear(h, *layer.inner)
        return self._written(x, inner.relu_() if w.activation is F.relu else w.activation(inner), layer.outer, norms[2])

    def _written(self, x: Tensor, read: Tensor, output: Affine, norm: Norm | None) -> tuple[Tensor, Tensor]:
        """What a sublayer writes goes into the residual stream, and a norm makes what the next one reads."""
        written = F.linear(read, *output)
        if norm is None:
            return (x := x.add_(written)), x
        h = torch.empty_like(x)
        loops.add_norm(x.numpy(), written.numpy(), norm.weight.numpy(), norm.bias.numpy(), norm.eps, h.numpy())
        return (x, h) if self.weights.norm_before else (h, h)


def following(w: DecoderWeights, i: int) -> tuple[Norm, Norm, Norm | None]:
    """The norms behind the three sublayers of a layer, where each stands before the next."""
    last = w.layers[i + 1].self_norm if i + 1 < len(w.layers) else w.final_norm
    return w.layers[i].cross_norm, w.layers[i].norm, last


class LoopEngine(PlainEngine):
    """Batches of like length, each by a search of this kind."""

    model: Incremental

    def _search(self, requests: list[Request], roles: Roles) -> list[list[Hypothesis]]:
        return LoopSearch(self.model, requests, roles).run()
