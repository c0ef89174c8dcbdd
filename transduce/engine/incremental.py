"""A Transformer that writes step by step into caches that have room ahead: the four verbs again, faster.

To go on with other beams copies no cache. Every hypothesis writes its keys and values at its own slot of the step; a
table of ancestors says through which slots its history runs. All beams of a sentence look at all its slots together
(they are queries of one matrix product) and the mask hides what is not their own history.

Letters: R sentences, B beams, T capacity, n steps so far, S slots of the source, H heads, K and V widths of a head.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.core.masks import AttentionMask
from transduce.core.precision import Affine
from transduce.core.rows import Rows
from transduce.core.seq2seq import Memory, State
from transduce.core.transformer import Transformer, WithEncoder
from transduce.engine.weights import DecoderWeights, Heads, Norm

GROWTH = 16  # steps beyond the source's length that caches have room for at first, and by which they grow


class Cache(NamedTuple):
    """Keys and values of a layer, every head by itself."""

    keys: Tensor  # (R, H, slots, K)
    values: Tensor  # (R, H, slots, V)

    def keep(self, sentences: Tensor, moved: Tensor, used: int) -> Cache:
        """Only these, in place: those whose place changes are copied, as far as they are filled."""
        for part in self:
            part[moved, :, :used] = part[sentences[moved], :, :used]
        return Cache(self.keys[: len(sentences)], self.values[: len(sentences)])

    def grow(self, slots: int) -> Cache:
        """The same with room for more, whose numbers are anything."""
        rows, heads, filled, _ = self.keys.shape
        keys, values = (part.new_empty(rows, heads, filled + slots, part.size(3)) for part in self)
        keys[:, :, :filled], values[:, :, :filled] = self
        return Cache(keys, values)

    def widen(self, beams: int) -> Cache:
        """What one hypothesis wrote, as the first of so many; the others wrote nothing yet."""
        rows, heads, slots, _ = self.keys.shape
        keys, values = (part.new_zeros(rows, heads, slots * beams, part.size(3)) for part in self)
        keys[:, :, ::beams], values[:, :, ::beams] = self
        return Cache(keys, values)


class IncrementalState(NamedTuple):
    """Caches of every layer, and who descends from whom."""

    past: list[Cache]  # slot n * B + b: what hypothesis b wrote at step n
    memory: list[Cache]
    hidden: Tensor  # (R, 1, 1, S) what is added to the score of a memory slot: nothing, or so much that it vanishes
    ancestors: Tensor  # (R, B, T) which slot of a step each hypothesis comes through
    length: int

    def reorder(self, parents: Tensor) -> IncrementalState:
        beams = parents.size(1)
        if beams == 1:
            return self
        widens = self.ancestors.size(1) == 1
        past = [cache.widen(beams) for cache in self.past] if widens else self.past
        rows = parents.unsqueeze(-1).expand(-1, -1, self.ancestors.size(2))
        return self._replace(past=past, ancestors=self.ancestors.gather(1, rows))

    def keep(self, sentences: Tensor) -> IncrementalState:
        moved = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        filled = self.length * self.ancestors.size(1)
        return IncrementalState(
            [cache.keep(sentences, moved, filled) for cache in self.past],
            [cache.keep(sentences, moved, cache.keys.size(2)) for cache in self.memory],
            self.hidden.index_select(0, sentences),
            self.ancestors.index_select(0, sentences),
            self.length,
        )


class Incremental(WithEncoder):
    """The decoder of a Transformer from weights that are laid out for it; its encoder is the model's own."""

    def __init__(self, model: Transformer, weights: DecoderWeights) -> None:
        super().__init__(model.source, list(model.encoder), model.encoder_norm)  # type: ignore[arg-type]
        self.projection, self.source_end = model.projection, model.source_end
        self.weights = weights
        self.columns: Tensor | None = None  # tokens of the vocabulary that are left; None: all

    def states(self, source: Rows, target_in: Rows, maps: object = None) -> Tensor:
        raise AssertionError("only ever steps")

    def within(self, columns: Tensor) -> Incremental:
        """The same model for a part of the vocabulary, whose tokens are called by their place in it."""
        short = copy.copy(self)
        weight, bias = self.weights.projection
        projection = Affine(weight[columns], None if bias is None else bias[columns])
        short.weights = self.weights._replace(projection=projection)
        short.columns = columns
        return short

    def encode(self, source: Rows, maps: object = None) -> Memory:
        source = self.seen(source)
        x = self.source(source.tokens, source.positions).to(self.weights.dtype)
        mask = AttentionMask.between(source.segments, source.segments)
        for layer in self.encoder:
            x = layer(x, mask)
        return Memory(self.encoder_norm(x), source.segments)

    def start(self, memory: Memory) -> IncrementalState:
        rows, heads = memory.states.size(0), self.weights.cross_heads
        caches = []
        for layer in self.weights.layers:
            packed = F.linear(memory.states, *layer.cross_keys_values)  # (R, S, H * (K + V))
            keys, values = packed.split([heads.number * heads.d_k, heads.number * heads.d_v], 2)
            caches.append(Cache(_by_head(keys, heads.number).contiguous(), _by_head(values, heads.number).contiguous()))
        hidden = torch.zeros(memory.segments.shape, dtype=self.weights.dtype, device=memory.segments.device)
        hidden.masked_fill_(memory.segments == 0, torch.finfo(hidden.dtype).min)
        ancestors = torch.zeros(rows, 1, 0, dtype=torch.long, device=hidden.device)
        return IncrementalState([], caches, hidden[:, None, None, :], ancestors, 0)

    def step(
        self, tokens: Tensor, memory: Memory, state: State, looked: list[Tensor] | None = None
    ) -> tuple[Tensor, IncrementalState]:
        assert isinstance(state, IncrementalState)
        state = self._with_room(state, tokens.size(1))
        hypotheses = (tokens if self.columns is None else self.columns[tokens]).reshape(-1)
        x = self.weights.embedding(hypotheses, torch.full_like(hypotheses, state.length)).to(self.weights.dtype)
        hidden = _not_mine(state)
        for i in range(len(self.weights.layers)):
            seen = looked if i == len(self.weights.layers) - 1 else None
            x = self._layer(i, x, state, hidden, tokens.size(1), seen)
        w = self.weights
        x = x if w.final_norm is None else w.final_norm(x)
        logits = F.linear(x * w.projection_scale if w.projection_scale != 1 else x, *w.projection)
        return logits.view(*tokens.shape, -1), state._replace(length=state.length + 1)

    def _layer(
        self, i: int, x: Tensor, state: IncrementalState, hidden: Tensor | None, beams: int, looked: list[Tensor] | None
    ) -> Tensor:
        """x (R * B, D) through self-attention, attention over the memory, and feed-forward."""
        w, layer = self.weights, self.weights.layers[i]
        h = self._enter(x, layer.self_norm)
        read = self._look_back(F.linear(h, *layer.self_qkv), state, i, hidden, beams)
        x = self._leave(x, F.linear(read, *layer.self_output), layer.self_norm)

        h = self._enter(x, layer.cross_norm)
        q = _by_head(
            F.linear(h, *layer.cross_query).view(-1, beams, w.cross_heads.number * w.cross_heads.d_k),
            w.cross_heads.number,
        )
        read = _attend(q, state.memory[i], w.cross_heads, state.hidden, looked)
        x = self._leave(x, F.linear(read, *layer.cross_output), layer.cross_norm)

        h = self._enter(x, layer.norm)
        h = F.linear(h, *layer.inner)
        h = h.relu_() if w.activation is F.relu else w.activation(h)
        return self._leave(x, F.linear(h, *layer.outer), layer.norm)

    def _look_back(self, qkv: Tensor, state: IncrementalState, i: int, hidden: Tensor | None, beams: int) -> Tensor:
        """Write keys and values of this step into its slots, then look at all of them."""
        heads, cache = self.weights.self_heads, state.past[i]
        widths = [heads.number * width for width in (heads.d_k, heads.d_k, heads.d_v)]
        q, k, v = (_by_head(part, heads.number) for part in qkv.view(-1, beams, sum(widths)).split(widths, 2))
        begin, end = state.length * beams, (state.length + 1) * beams
        cache.keys[:, :, begin:end] = k
        cache.values[:, :, begin:end] = v
        return _attend(q, Cache(cache.keys[:, :, :end], cache.values[:, :, :end]), heads, hidden)

    def _enter(self, x: Tensor, norm: Norm) -> Tensor:
        return norm(x) if self.weights.norm_before else x

    def _leave(self, x: Tensor, written: Tensor, norm: Norm) -> Tensor:
        x = written.add_(x)
        return x if self.weights.norm_before else norm(x)

    def _with_room(self, state: IncrementalState, beams: int) -> IncrementalState:
        """The same state with slots for one more step."""
        rows, heads, dtype = len(state.hidden), self.weights.self_heads, self.weights.dtype
        if state.length < state.ancestors.size(2):
            return state
        if not state.past:
            empty = torch.empty(rows, heads.number, 0, 1, dtype=dtype, device=state.hidden.device)
            past = [Cache(empty.expand(-1, -1, -1, heads.d_k), empty.expand(-1, -1, -1, heads.d_v))] * len(state.memory)
        else:
            past = state.past
        steps = GROWTH + (0 if state.length else state.hidden.size(-1))
        own = torch.arange(beams, device=state.hidden.device).view(1, -1, 1).expand(rows, -1, steps)
        return state._replace(
            past=[cache.grow(steps * beams) for cache in past], ancestors=torch.cat([state.ancestors, own], 2)
        )


def _by_head(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(2, (heads, -1)).transpose(1, 2)  # (R, T, H * K) -> (R, H, T, K)


def _attend(q: Tensor, cache: Cache, heads: Heads, hidden: Tensor | None, looked: list[Tensor] | None = None) -> Tensor:
    """softmax(q kᵀ · scale + hidden) v, heads side by side again: (R * B, H * V)."""
    if q.size(2) == 1 and looked is None:  # many small products: PyTorch's kernel makes one of them
        read = F.scaled_dot_product_attention(q, cache.keys, cache.values, attn_mask=hidden, scale=heads.scale)
        return read.transpose(1, 2).flatten(2).flatten(0, 1)
    scores = (q * heads.scale) @ cache.keys.transpose(2, 3)  # (R, H, B, slots)
    weights = (scores if hidden is None else scores.add_(hidden)).softmax(-1)
    if looked is not None:
        looked.append(weights.mean(1).float())
    return (weights @ cache.values).transpose(1, 2).flatten(2).flatten(0, 1)


def _not_mine(state: IncrementalState) -> Tensor | None:
    """(R, 1, B, (n + 1) * B) what is added to the score of a slot of the past; None: with one beam all are its own."""
    rows, beams, _ = state.ancestors.shape
    if beams == 1:
        return None
    slots = torch.arange(beams, device=state.ancestors.device)
    state.ancestors[:, :, state.length] = slots  # of this step its own
    mine = state.ancestors[:, :, : state.length + 1].unsqueeze(-1) == slots  # (R, B, n + 1, B)
    hidden = torch.zeros(mine.shape, dtype=state.hidden.dtype, device=mine.device)
    return hidden.masked_fill_(~mine, torch.finfo(hidden.dtype).min).view(rows, 1, beams, -1)
