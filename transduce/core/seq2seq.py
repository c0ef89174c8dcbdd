"""The contract: four verbs that every model answers, so that nobody asks which model it is.

logits        = model(source, target_in)            teacher forcing
memory        = model.encode(source)
state         = model.start(memory)                 before the first token, one hypothesis a sentence
logits, state = model.step(tokens, memory, state)   one token further: (R, B) -> (R, B, vocabulary)

Teacher forcing has two halves, so that a loss may take the second a slice at a time:
logits = model.projection(model.states(source, target_in)).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from transduce.core.precision import Linear
from transduce.core.rows import Rows


class Memory(NamedTuple):
    """What the encoder made of the source."""

    states: Tensor  # (R, S, D)
    segments: Tensor  # (R, S)
    last: Tensor | None = None  # (R, ...) what a recurrent decoder starts from

    def keep(self, sentences: Tensor) -> Memory:
        """Only these rows; the others are finished."""
        states, segments = self.states.index_select(0, sentences), self.segments.index_select(0, sentences)
        return Memory(states, segments, None if self.last is None else self.last.index_select(0, sentences))


class State(Protocol):
    """What a decoder carries from one step to the next, for B hypotheses of each of R sentences."""

    def reorder(self, parents: Tensor) -> State:
        """(R, B): which hypothesis of its sentence each new one continues. The first time, one becomes B."""

    def keep(self, sentences: Tensor) -> State:
        """Only these sentences; follows `Memory.keep`."""


def rows_of_parents(parents: Tensor, beams: int) -> Tensor:
    """parents (R, B) as rows of a tensor in which `beams` hypotheses a sentence lie below one another."""
    sentences = torch.arange(len(parents), device=parents.device)
    return (sentences.unsqueeze(1) * beams + parents).flatten()


def rows_of_sentences(sentences: Tensor, beams: int) -> Tensor:
    """All hypotheses of these sentences, likewise."""
    return (sentences.unsqueeze(1) * beams + torch.arange(beams, device=sentences.device)).flatten()


@dataclass
class AttentionMaps:
    """Attention weights, one tensor (R, H, T, S) a layer."""

    encoder: list[Tensor] = field(default_factory=list)
    decoder: list[Tensor] = field(default_factory=list)
    cross: list[Tensor] = field(default_factory=list)
    only_cross: bool = False  # the others are not asked for


class Seq2Seq(nn.Module, ABC):
    """A model that reads one sequence and writes another."""

    projection: Linear  # the one route from a decoder's state to the vocabulary
    embeddings: ClassVar[Mapping[str, str]]  # the weight that embeds the tokens of each side that is embedded
    looks_at_source: bool = True  # while it writes: by attention, whose weights can be asked for
    activation_dtype: torch.dtype | None = None  # of the residual stream while training; none: that of the weights

    def forward(self, source: Rows, target_in: Rows, maps: AttentionMaps | None = None) -> Tensor:
        """Logits (R, T, vocabulary) for what follows each target token; fills `maps` when given."""
        return self.projection(self.states(source, target_in, maps))

    @abstractmethod
    def states(self, source: Rows, target_in: Rows, maps: AttentionMaps | None = None) -> Tensor:
        """What `projection` reads: the decoder's state (R, T, D) at each target token."""

    @abstractmethod
    def encode(self, source: Rows) -> Memory:
        """Read the source."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """The state before the first token. All hypotheses of a sentence are the same there: it is that of one."""

    @abstractmethod
    def step(
        self, tokens: Tensor, memory: Memory, state: State, looked: list[Tensor] | None = None
    ) -> tuple[Tensor, State]:
        """Logits (R, B, vocabulary) after one more token (R, B) of each hypothesis.

        Given a list `looked`, the attention over the source (R, B, S) is appended to it: of the last layer, heads
        averaged."""

    def embedding_of(self, side: str) -> str | None:
        """The name of the weight that embeds the tokens of a side, or None. What both sides share has the source's."""
        names = {id(weight): name for name, weight in self.named_parameters()}
        return names[id(self.get_parameter(self.embeddings[side]))] if side in self.embeddings else None

    @torch.no_grad()
    def attention(self, source: Rows, target_in: Rows) -> AttentionMaps:
        """The weights of every layer and head, from the plain path."""
        maps = AttentionMaps()
        self(source, target_in, maps)
        return maps
