"""The kinds of model that settings can name. Whoever needs a model asks here and then uses the four verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from transduce.core import classifier, recurrent, transformer
from transduce.core.seq2seq import Seq2Seq
from transduce.settings.sections import ModelSettings


class Kind(NamedTuple):
    """What is known of a kind before one is built."""

    build: Callable[[ModelSettings, int, int], Seq2Seq]  # settings, source and target vocabulary
    describe: Callable[[ModelSettings], str]  # in words
    packs: bool = True  # whether several sentences may share a row


KINDS = {
    "transformer": Kind(transformer.build, transformer.describe),
    "rnn": Kind(recurrent.build, recurrent.describe, packs=False),
    "classifier": Kind(classifier.build, transformer.describe),
}


def kind_of(m: ModelSettings) -> Kind:
    """The kind that settings name."""
    return KINDS[m.kind]


def new_model(m: ModelSettings, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """A model with random weights."""
    return kind_of(m).build(m, source_vocabulary, target_vocabulary)


def unfilled_model(m: ModelSettings, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """A model whose weights are still to be read from a file: to draw a hundred million random numbers first would take
    seconds."""
    with _NothingDrawn():
        return new_model(m, source_vocabulary, target_vocabulary)


class _NothingDrawn(TorchFunctionMode):
    """Where weights would get random numbers, they keep what happens to lie in their memory."""

    DRAWS = ("uniform_", "normal_", "kaiming_uniform_")  # what torch.nn.init draws with

    def __torch_function__(self, function: Any, _: Any, given: tuple = (), named: dict | None = None) -> Any:
        named = named or {}
        if getattr(function, "__name__", "") in self.DRAWS:
            return given[0] if given else named["tensor"]
        return function(*given, **named)


def shapes_of(m: ModelSettings, source_vocabulary: int, target_vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shape of every weight, found without making any: settings from elsewhere may ask for terabytes."""
    with torch.device("meta"):
        model = new_model(m, source_vocabulary, target_vocabulary)
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}
