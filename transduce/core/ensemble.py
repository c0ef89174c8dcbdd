"""Several models that write together: at each step the mean of their probabilities. They share their vocabularies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from transduce.core.rows import Rows
from transduce.core.seq2seq import AttentionMaps, Memory, Seq2Seq, State


class Memories(NamedTuple):
    """What each encoder made of the source."""

    each: list[Memory]

    def keep(self, sentences: Tensor) -> Memories:
        return Memories([memory.keep(sentences) for memory in self.each])


class States(NamedTuple):
    """What each decoder carries along."""

    each: list[State]

    def reorder(self, parents: Tensor) -> States:
        return States([state.reorder(parents) for state in self.each])

    def keep(self, sentences: Tensor) -> States:
        return States([state.keep(sentences) for state in self.each])


class Ensemble(Seq2Seq):
    """Answers the four verbs by asking all of its models; its logits are log-probabilities."""

    def __init__(self, models: Sequence[Seq2Seq]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.looks_at_source = all(model.looks_at_source for model in models)

    def forward(self, source: Rows, target_in: Rows, maps: AttentionMaps | None = None) -> Tensor:
        return mean_of([model(source, target_in) for model in self.each()])

    def states(self, source: Rows, target_in: Rows, maps: AttentionMaps | None = None) -> Tensor:
        raise AssertionError("an ensemble has no states of its own")

    def encode(self, source: Rows) -> Memory:
        return cast(Memory, Memories([model.encode(source) for model in self.each()]))

    def start(self, memory: Memory) -> States:
        memories = cast(Memories, memory).each
        return States([model.start(own) for model, own in zip(self.each(), memories, strict=True)])

    def step(
        self, tokens: Tensor, memory: Memory, state: State, looked: list[Tensor] | None = None
    ) -> tuple[Tensor, States]:
        seen: list[Tensor] | None = None if looked is None else []
        memories, before = cast(Memories, memory).each, cast(States, state).each
        answers = [
            model.step(tokens, own, carried, seen)
            for model, own, carried in zip(self.each(), memories, before, strict=True)
        ]
        if looked is not None and seen is not None:
            looked.append(torch.stack(seen).mean(0))
        return mean_of([logits for logits, _ in answers]), States([after for _, after in answers])

    def each(self) -> list[Seq2Seq]:
        """Its models."""
        return [cast(Seq2Seq, model) for model in self.models]


def mean_of(logits: list[Tensor]) -> Tensor:
    """log of the mean of the probabilities."""
    every = torch.stack([one.float().log_softmax(-1) for one in logits])
    return every.logsumexp(0) - math.log(len(logits))
