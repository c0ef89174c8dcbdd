"""A working copy of a model for training on a GPU: the same weights, those of its products cast to another dtype.

All casts lie end to end, so that after an update one copy renews them all. Embeddings, norms and the projection onto
the vocabulary, which sum over many tokens, read the weights themselves.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.core.flat import FlatWeights
from transduce.core.precision import Linear
from transduce.core.seq2seq import Seq2Seq


class WorkingCopy(NamedTuple):
    """A model that shares its weights with another, or reads casts of them."""

    model: Seq2Seq
    casts: Tensor | None  # of the first so many numbers of the flat weights; None: nothing is cast
    frozen: list[tuple[Tensor, Tensor]]  # casts of what does not learn, each with the weight that it is of

    def renew(self, flat: FlatWeights) -> None:
        """After an update: the casts follow the weights."""
        if self.casts is not None:
            self.casts.copy_(flat.weights.detach()[: self.casts.numel()])

    def renew_frozen(self) -> None:
        """Before training begins: a run that goes on has read its weights since the copy was made."""
        for cast, weight in self.frozen:
            cast.copy_(weight)


def working_copy(model: Seq2Seq, flat: FlatWeights) -> WorkingCopy:
    """A copy of the model whose weights are views of the same numbers."""
    working = copy.deepcopy(model).train()  # whatever mode the model was handed over in
    for weight, original in zip(working.parameters(), model.parameters(), strict=True):
        weight.data = original.data
    dtype = model.activation_dtype
    if dtype is None:
        return WorkingCopy(working, None, [])
    products = {
        f"{name}.{part}": weight
        for name, module in working.named_modules()
        if type(module) is Linear and module is not working.projection  # one with an adapter sums before it casts
        for part, weight in module.named_parameters()
    }
    end = max((place.end for place in flat.places if place.name in products), default=0)
    casts = torch.zeros(end, dtype=dtype, device=flat.weights.device)
    views, frozen = flat.by_name(casts), []
    for name, weight in products.items():
        if name not in views:
            frozen.append((weight.data.to(dtype), weight.data))
        weight.data = views[name] if name in views else frozen[-1][0]
    return WorkingCopy(working, casts, frozen)
