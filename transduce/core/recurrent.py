"""Sequence to sequence with recurrent networks: GRU or LSTM, without attention and with it.

Without: the encoder's last state u starts the decoder, and is all that the decoder knows of the source.

With: before each word the decoder looks at every encoder state h_i,

    c_t = Σ softmax(s(h_i, h_{t-1})) h_i
    h_t = cell([y_{t-1}; c_t], h_{t-1})

where h_{t-1} is its own last state and s one of the scores of core/scores.py. Letters: R rows, T and S slots, D width,
N layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transduce.core.attention import attend
from transduce.core.dropout import Dropout
from transduce.core.precision import Linear
from transduce.core.rows import Rows
from transduce.core.scores import ScoreFunction, make_score
from transduce.core.seq2seq import AttentionMaps, Memory, Seq2Seq, State, rows_of_parents, rows_of_sentences
from transduce.settings.sections import ModelSettings

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}


class RecurrentState(NamedTuple):
    """The decoder's state, a column a hypothesis."""

    hidden: Tensor  # (parts, N, R * B, D); parts: h of a GRU, h and c of an LSTM
    beams: int = 1

    def reorder(self, parents: Tensor) -> RecurrentState:
        rows = rows_of_parents(parents, self.beams)
        return RecurrentState(self.hidden.index_select(2, rows), parents.size(1))

    def keep(self, sentences: Tensor) -> RecurrentState:
        return self._replace(hidden=self.hidden.index_select(2, rows_of_sentences(sentences, self.beams)))


class Recurrent(Seq2Seq):
    """Encoder and decoder of N recurrent layers each."""

    embeddings: ClassVar = {"source": "source.weight", "target": "target.weight"}

    def __init__(
        self,
        source: nn.Embedding,
        target: nn.Embedding,
        scale: float,
        encoder: nn.RNNBase,
        decoder: nn.RNNBase,
        score: ScoreFunction | None,
        dropout: float,
        projection: Linear,
    ) -> None:
        super().__init__()
        self.source = source
        self.target = target
        self.scale = scale
        self.dropout = Dropout(dropout)
        self.encoder = encoder
        self.decoder = decoder
        self.score = score
        self.looks_at_source = score is not None
        self.projection = projection

    def encode(self, source: Rows, maps: AttentionMaps | None = None) -> Memory:
        """All states (R, S, D), both directions side by side, and the last ones: u of every layer."""
        lengths = (source.segments != 0).sum(1).clamp(min=1).cpu()
        x = self.dropout(self.source(source.tokens) * self.scale)
        states, last = self.encoder(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=source.tokens.size(1))
        last = torch.stack(last if isinstance(last, tuple) else [last])  # (parts, N * directions, R, D / directions)
        u = last.unflatten(1, (self.decoder.num_layers, -1)).transpose(2, 3).flatten(3)  # (parts, N, R, D)
        return Memory(padded, source.segments, u.permute(2, 0, 1, 3))

    def start(self, memory: Memory) -> RecurrentState:
        assert memory.last is not None
        return RecurrentState(memory.last.permute(1, 2, 0, 3).contiguous())

    def step(
        self, tokens: Tensor, memory: Memory, state: State, looked: list[Tensor] | None = None
    ) -> tuple[Tensor, RecurrentState]:
        assert isinstance(state, RecurrentState)
        y = self.target(tokens.reshape(-1, 1)) * self.scale  # (R * B, 1, D)
        h, state = self._advance(y, memory, state, looked)
        return self.projection(h).view(*tokens.shape, -1), state

    def states(self, source: Rows, target_in: Rows, maps: AttentionMaps | None = None) -> Tensor:
        memory = self.encode(source)
        y = self.dropout(self.target(target_in.tokens) * self.scale)
        state = self.start(memory)
        if self.score is None:
            return self.dropout(self._run(y, state)[0])  # no step waits for the one before: all in one call
        hidden: list[Tensor] = []
        weights: list[Tensor] | None = [] if maps is not None else None
        for t in range(y.size(1)):
            h, state = self._advance(y[:, t : t + 1], memory, state, weights)
            hidden.append(h)
        if maps is not None and weights is not None:
            maps.cross.append(torch.cat(weights, 1).unsqueeze(1))  # (R, 1, T, S): one head
        return self.dropout(torch.cat(hidden, 1))

    def _advance(
        self, y: Tensor, memory: Memory, state: RecurrentState, weights: list[Tensor] | None
    ) -> tuple[Tensor, RecurrentState]:
        """One word further: look, then let the cell read word and context."""
        if self.score is not None:
            rows = memory.states.size(0)
            q = state.hidden[0, -1].unflatten(0, (rows, -1))  # (R, hypotheses of a sentence, D): they look together
            allowed = (memory.segments != 0).unsqueeze(1)
            c, seen = attend(q, memory.states, memory.states, allowed, score=self.score)
            if weights is not None:
                weights.append(seen)
            y = torch.cat([y, c.flatten(0, 1).unsqueeze(1)], -1)
        return self._run(y, state)

    def _run(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        before = tuple(state.hidden) if len(state.hidden) > 1 else state.hidden[0]
        h, after = self.decoder(x, before)
        return h, state._replace(hidden=torch.stack(after if isinstance(after, tuple) else [after]))


def build(m: ModelSettings, source_vocabulary: int, target_vocabulary: int) -> Recurrent:
    """A freshly initialised one: matrices of embeddings and output by Xavier, the cells as PyTorch has them."""
    target = nn.Embedding(target_vocabulary, m.d_model)
    source = target if m.tie_source else nn.Embedding(source_vocabulary, m.d_model)
    projection = Linear(m.d_model, target_vocabulary, bias=m.output_bias)
    if m.tie_output:
        projection.weight = target.weight
    for weight in (source.weight, target.weight, projection.weight):
        nn.init.xavier_uniform_(weight)
    score = make_score(m.score, m.d_model, m.d_model, rank=m.score_rank) if m.attention else None
    encoder, decoder = cells(m)
    return Recurrent(
        source=source,
        target=target,
        scale=math.sqrt(m.d_model) if m.scale == "embedding" else 1.0,
        encoder=encoder,
        decoder=decoder,
        score=score,
        dropout=m.dropout,
        projection=projection,
    )


def cells(m: ModelSettings) -> tuple[nn.RNNBase, nn.RNNBase]:
    """Encoder and decoder; with attention the decoder reads c_t beside the word."""
    cell, directions = CELLS[m.cell], 2 if m.bidirectional else 1
    more = {"batch_first": True, "dropout": m.dropout if m.layers > 1 else 0.0}
    encoder = cell(m.d_model, m.d_model // directions, m.layers, bidirectional=m.bidirectional, **more)
    return encoder, cell(2 * m.d_model if m.attention else m.d_model, m.d_model, m.layers, **more)


def describe(m: ModelSettings) -> str:
    """The model in words."""
    looks = f"{m.score} attention" if m.attention else "no attention"
    return f"{m.cell.upper()}, {m.layers} layers of width {m.d_model}, {looks}"
