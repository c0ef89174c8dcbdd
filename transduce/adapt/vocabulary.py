"""Another vocabulary for a model that there is: tokens that both have keep their rows, a new one begins as the mean of
the old tokens that spell it, and what cannot be spelled begins at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import UNKNOWN
from transduce.models.weights import shapes
from transduce.text.tokenizers import Tokenizer, Tokenizers


class Origins(NamedTuple):
    """The old tokens that each new one is made of: itself, its parts, or none."""

    parts: list[list[int]]

    @staticmethod
    def of(new: Tokenizer, old: Tokenizer) -> Origins:
        known = {piece: i for i, piece in enumerate(old.pieces(range(old.size)))}
        pieces = new.pieces(range(new.size))
        spelled = old.encode([piece.replace("▁", " ").strip() for piece in pieces])
        return Origins(
            [
                [known[piece]] if piece in known else [i for i in ids if i != UNKNOWN]
                for piece, ids in zip(pieces, spelled, strict=True)
            ]
        )

    def table(self, old: Tensor) -> Tensor:
        """The rows of a table, or numbers of a bias."""
        table = torch.randn(len(self.parts), *old.shape[1:]) * old.std(0) + old.mean(0)
        for i, ids in enumerate(self.parts):
            if ids:
                table[i] = old[ids].mean(0)
        return table

    def describe(self) -> str:
        sizes = [len(ids) for ids in self.parts]
        kept, fresh = sizes.count(1), sizes.count(0)
        parts = len(sizes) - kept - fresh
        return f"{kept:,} tokens carried over, {parts:,} from the mean of their parts, {fresh:,} at random"


def carried_over(
    weights: Mapping[str, Tensor], model: Seq2Seq, old: Tokenizers, new: Tokenizers
) -> tuple[dict[str, Tensor], str]:
    """Weights for a model with a new vocabulary, and in words what became of its tokens. The new model may share what
    was apart, or keep apart what was shared."""
    source, target = model.embeddings["source"], model.embeddings["target"]
    embedded = weights.get(target, weights[source])
    tables = {target: embedded, "projection.weight": weights.get("projection.weight", embedded), **weights}
    origins = [Origins.of(new.source, old.source), Origins.of(new.target, old.target)]
    side = {source: 0, target: 1, "projection.weight": 1, "projection.bias": 1}
    found = {name: origins[side[name]].table(tables[name]) if name in side else weights[name] for name in shapes(model)}
    both = ["source", "target"] if origins[0] != origins[1] else ["both sides"]
    return found, "; ".join(f"{name}: {one.describe()}" for name, one in zip(both, origins, strict=False))
