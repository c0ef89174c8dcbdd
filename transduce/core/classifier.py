"""Classification: an encoder, its states averaged, a linear layer over the labels.

It answers the same four verbs as a translator, because a label is a target of one token: BEGIN is followed by the
label, the label by END. So training, search (the n best labels), scoring and inspection work unchanged.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from transduce.core.layers import EncoderLayer
from transduce.core.masks import segment_mask
from transduce.core.precision import Linear
from transduce.core.rows import Rows
from transduce.core.seq2seq import AttentionMaps, Memory, State
from transduce.core.special import END
from transduce.core.transformer import Embedding, WithEncoder, embedding, encoder_layer, final_norm, initialise
from transduce.settings.sections import ModelSettings


class ClassifierState(NamedTuple):
    """Whether the label has been written."""

    written: bool

    def reorder(self, parents: Tensor) -> ClassifierState:
        return self

    def keep(self, sentences: Tensor) -> ClassifierState:
        return self


class Classifier(WithEncoder):
    """The left half of figure 1, pooled."""

    looks_at_source = False
    embeddings: ClassVar = {"source": "source.tokens.weight"}

    def __init__(
        self, source: Embedding, encoder: list[EncoderLayer], encoder_norm: nn.Module, projection: Linear
    ) -> None:
        super().__init__(source, encoder, encoder_norm)
        self.projection = projection
        self.end = nn.Parameter(torch.zeros(projection.in_features))  # stands where END is to be written

    def states(self, source: Rows, target_in: Rows, maps: AttentionMaps | None = None) -> Tensor:
        memory = self.encode(source, maps)
        pooled = mean_of(memory, target_in.segments)
        return torch.where((target_in.positions == 0).unsqueeze(-1), pooled, self.end.to(pooled.dtype))

    def start(self, memory: Memory) -> ClassifierState:
        return ClassifierState(written=False)

    def step(
        self, tokens: Tensor, memory: Memory, state: State, looked: list[Tensor] | None = None
    ) -> tuple[Tensor, ClassifierState]:
        assert isinstance(state, ClassifierState)
        pooled = mean_of(memory, torch.ones_like(tokens[:, :1]))
        logits = self.projection(pooled).repeat(1, tokens.size(1), 1)
        if state.written:
            logits = torch.full_like(logits, float("-inf"))
        logits[..., END] = 0.0 if state.written else float("-inf")  # one label, then the end: whatever training thinks
        return logits, ClassifierState(written=True)


def mean_of(memory: Memory, segments: Tensor) -> Tensor:
    """For each slot (R, T) the mean of the encoder's states of the same sentence."""
    share = segment_mask(segments, memory.segments).squeeze(1).to(memory.states.dtype)  # (R, T, S)
    return share @ memory.states / share.sum(-1, keepdim=True).clamp(min=1)


def build(m: ModelSettings, source_vocabulary: int, labels: int) -> Classifier:
    """A freshly initialised one."""
    model = Classifier(
        source=embedding(m, nn.Embedding(source_vocabulary, m.d_model)),
        encoder=[encoder_layer(m) for _ in range(m.layers)],
        encoder_norm=final_norm(m),
        projection=Linear(m.d_model, labels, bias=m.output_bias),
    )
    initialise(model)
    return model
