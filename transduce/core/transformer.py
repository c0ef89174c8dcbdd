"""The Transformer, from the whole down to the embeddings; its layers are in core/layers.py."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.attention import MultiHeadAttention
from transduce.core.cache import KeysValues
from transduce.core.dropout import Dropout
from transduce.core.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from transduce.core.masks import AttentionMask
from transduce.core.positions import LearnedPositions, SinusoidPositions
from transduce.core.precision import LayerNorm, Linear
from transduce.core.rows import Rows
from transduce.core.seq2seq import AttentionMaps, Memory, Seq2Seq, State, rows_of_parents, rows_of_sentences
from transduce.core.special import END
from transduce.settings.sections import ModelSettings


class Embedding(nn.Module):
    """Token vector (times a scale) plus position, a norm if asked for, dropout on the sum (sections 3.4, 3.5).

    `token_dropout` takes whole tokens away in training and leaves their places: a sentence with gaps.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: nn.Module,
        scale: float,
        norm: nn.Module,
        dropout: float,
        token_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.scale = scale
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.token_dropout = token_dropout

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.tokens(tokens) * self.scale
        if self.training and self.token_dropout:
            x = x * (torch.rand(tokens.shape, device=x.device) >= self.token_dropout).unsqueeze(-1)
        return self.dropout(self.norm(x + self.positions(positions)))


class TransformerState(NamedTuple):
    """Keys and values a layer: of the target so far (a row a hypothesis), of the memory (a row a sentence)."""

    past: list[KeysValues | None]
    memory: list[KeysValues]
    length: int = 0
    beams: int = 1

    def reorder(self, parents: Tensor) -> TransformerState:
        rows = rows_of_parents(parents, self.beams)
        past = [kv.select(rows) if kv else None for kv in self.past]
        return self._replace(past=past, beams=parents.size(1))

    def keep(self, sentences: Tensor) -> TransformerState:
        rows = rows_of_sentences(sentences, self.beams)
        memory = [kv.select(sentences) for kv in self.memory]
        return self._replace(past=[kv.select(rows) if kv else None for kv in self.past], memory=memory)


class WithEncoder(Seq2Seq):
    """What reads its source by the encoder stack (the left half of figure 1)."""

    source_end: bool = True  # whether the end of a source is read as a token

    def __init__(self, source: Embedding, encoder: list[EncoderLayer], encoder_norm: nn.Module) -> None:
        super().__init__()
        self.source = source
        self.encoder = nn.ModuleList(encoder)
        self.encoder_norm = encoder_norm

    def encode(self, source: Rows, maps: AttentionMaps | None = None) -> Memory:
        source = self.seen(source)
        x = self._embed(self.source, source)
        mask = AttentionMask.between(source.segments, source.segments)
        for layer in self.encoder:
            x = layer(x, mask, maps.encoder if maps and not maps.only_cross else None)
        return Memory(self.encoder_norm(x), source.segments)

    def seen(self, source: Rows) -> Rows:
        """What is looked at: all of it, or all but the END that closes a sentence; the older mBART has one within."""
        if self.source_end:
            return source
        segments = source.segments
        closes = F.pad(segments[:, 1:], (0, 1)) != segments
        return source._replace(segments=segments * ~((source.tokens == END) & closes))

    def _embed(self, embedding: nn.Module, rows: Rows) -> Tensor:
        """Into the residual stream, which training may run in a lower precision."""
        x = embedding(rows.tokens, rows.positions)
        return x.to(self.activation_dtype) if self.training and self.activation_dtype else x


class Transformer(WithEncoder):
    """Encoder and decoder stacks between two embeddings and one projection (figure 1)."""

    embeddings: ClassVar = {"source": "source.tokens.weight", "target": "target.tokens.weight"}

    def __init__(
        self,
        source: Embedding,
        target: Embedding,
        encoder: list[EncoderLayer],
        decoder: list[DecoderLayer],
        encoder_norm: nn.Module,
        decoder_norm: nn.Module,
        projection: Linear,
        projection_scale: float,
    ) -> None:
        super().__init__(source, encoder, encoder_norm)
        self.target = target
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = decoder_norm
        self.projection = projection
        self.projection_scale = projection_scale

    def states(self, source: Rows, target_in: Rows, maps: AttentionMaps | None = None) -> Tensor:
        memory = self.encode(source, maps)
        x = self._embed(self.target, target_in)
        mask = AttentionMask.between(target_in.segments, target_in.segments, causal=True)
        memory_mask = AttentionMask.between(target_in.segments, memory.segments)
        cross_maps = maps.cross if maps else None
        self_maps = maps.decoder if maps and not maps.only_cross else None
        for layer, keys_values in zip(self.decoder, self._memory_keys_values(memory), strict=True):
            x, _ = layer(x, keys_values, mask, memory_mask, self_maps=self_maps, cross_maps=cross_maps)
        return self._leave(x)

    def start(self, memory: Memory) -> TransformerState:
        return TransformerState([None] * len(self.decoder), self._memory_keys_values(memory))

    def step(
        self, tokens: Tensor, memory: Memory, state: State, looked: list[Tensor] | None = None
    ) -> tuple[Tensor, TransformerState]:
        assert isinstance(state, TransformerState)
        hypotheses = tokens.reshape(-1, 1)  # (R * B, 1)
        x = self.target(hypotheses, torch.full_like(hypotheses, state.length))
        memory_mask = AttentionMask((memory.segments != 0)[:, None, None, :])
        past: list[KeysValues | None] = []
        maps: list[Tensor] | None = None if looked is None else []
        for layer, seen, keys_values in zip(self.decoder, state.past, state.memory, strict=True):
            x, seen = layer(x, keys_values, None, memory_mask, seen, cross_maps=maps)
            past.append(seen)
        if looked is not None and maps is not None:
            looked.append(maps[-1].mean(1))  # (R, H, B, S) -> (R, B, S)
        logits = self.projection(self._leave(x)).view(*tokens.shape, -1)
        return logits, state._replace(past=past, length=state.length + 1)

    def _memory_keys_values(self, memory: Memory) -> list[KeysValues]:
        """What each decoder layer looks at in the memory; it does not change from step to step."""
        return [cast(DecoderLayer, layer).cross_attention.keys_values(memory.states) for layer in self.decoder]

    def _leave(self, x: Tensor) -> Tensor:
        """Out of the residual stream, ready for the vocabulary."""
        return self.decoder_norm(x) * self.projection_scale


def attention(m: ModelSettings) -> MultiHeadAttention:
    d_k, d_v = m.d_k or m.d_model // m.heads, m.d_v or m.d_model // m.heads
    return MultiHeadAttention(
        m.d_model, m.heads, d_k, d_v, m.attention_bias, m.attention_dropout, m.score, m.score_rank
    )


def feed_forward(m: ModelSettings) -> FeedForward:
    return FeedForward(m.d_model, m.d_ff, m.activation, m.feed_forward_dropout)


def residual(m: ModelSettings) -> Residual:
    dropout = m.dropout if m.residual_dropout is None else m.residual_dropout
    return Residual(m.d_model, dropout, m.eps, norm_before=m.norm == "before")


def encoder_layer(m: ModelSettings) -> EncoderLayer:
    return EncoderLayer(attention(m), residual(m), feed_forward(m), residual(m))


def decoder_layer(m: ModelSettings) -> DecoderLayer:
    return DecoderLayer(attention(m), residual(m), attention(m), residual(m), feed_forward(m), residual(m))


def final_norm(m: ModelSettings) -> nn.Module:
    """At the end of a stack."""
    wanted = m.norm == "before" if m.final_norm is None else m.final_norm
    return LayerNorm(m.d_model, m.eps) if wanted else nn.Identity()


def embedding(m: ModelSettings, tokens: nn.Embedding) -> Embedding:
    size = (m.max_positions, m.d_model)
    return Embedding(
        tokens,
        positions=LearnedPositions(*size) if m.positions == "learned" else SinusoidPositions(*size, m.positions),
        scale=math.sqrt(m.d_model) if m.scale == "embedding" else 1.0,
        norm=LayerNorm(m.d_model, m.eps) if m.embedding_norm else nn.Identity(),
        dropout=m.dropout if m.embedding_dropout is None else m.embedding_dropout,
        token_dropout=m.token_dropout,
    )


def initialise(model: nn.Module) -> None:
    """Xavier for every matrix, zero for every bias."""
    for name, weight in model.named_parameters():
        if weight.dim() == 2:  # the scores' weights, three-dimensional, are a matrix a head and are Xavier already
            nn.init.xavier_uniform_(weight)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.shrink_queries()


def build(m: ModelSettings, source_vocabulary: int, target_vocabulary: int) -> Transformer:
    """A freshly initialised Transformer. Settings become numbers here and in the functions above, nowhere else."""
    target_tokens = nn.Embedding(target_vocabulary, m.d_model)
    source_tokens = target_tokens if m.tie_source else nn.Embedding(source_vocabulary, m.d_model)
    projection = Linear(m.d_model, target_vocabulary, bias=m.output_bias)
    if m.tie_output:
        projection.weight = target_tokens.weight
    decoder = [decoder_layer(m) for _ in range(m.decoder_layers or m.layers)]
    model = Transformer(
        source=embedding(m, source_tokens),
        target=embedding(m, target_tokens),
        encoder=[encoder_layer(m) for _ in range(m.layers)],
        decoder=decoder,
        encoder_norm=final_norm(m),
        decoder_norm=final_norm(m),
        projection=projection,
        projection_scale=m.d_model**-0.5 if m.scale == "projection" else 1.0,
    )
    model.source_end = m.source_end
    initialise(model)
    return model


def describe(m: ModelSettings) -> str:
    """The model in words."""
    return f"{m.kind}, {m.layers} layers of width {m.d_model}, {m.heads} heads, {m.score} score"
