"""The gradients of a batch, by PyTorch as it stands; the fast twin for a GPU is fast/recorded.py. Both add to
`flat.weights.grad` and do not wait for the loss."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from transduce.core.flat import FlatWeights
from transduce.core.loss import cross_entropy, from_teacher
from transduce.core.seq2seq import AttentionMaps, Seq2Seq
from transduce.data.batches import Batch
from transduce.training.guided import Guide


class Gradients(Protocol):
    def add(self, batch: Batch, share: float) -> Tensor:
        """Add the gradient of `share` x the batch's loss; gives the loss, summed over tokens."""

    def clear(self) -> None:
        """After an update: back to nothing."""


class Teacher(NamedTuple):
    """A model whose probabilities are learned, and the share of the loss that they make up."""

    model: Seq2Seq
    share: float


class PlainGradients:
    """PyTorch, a batch of any shape."""

    def __init__(
        self,
        model: Seq2Seq,
        label_smoothing: float,
        flat: FlatWeights,
        teacher: Teacher | None = None,
        guide: Guide | None = None,
    ) -> None:
        self.model, self.teacher, self.guide = model, teacher, guide
        self.is_guided = True  # as long as there is a guide
        self.label_smoothing = label_smoothing
        self.flat = flat
        flat.weights.grad = torch.zeros_like(flat.weights)
        views = flat.by_name(flat.weights.grad)
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                weight.grad = views[name]

    def clear(self) -> None:
        self.flat.gradient.zero_()

    def add(self, batch: Batch, share: float) -> Tensor:
        guide = self.guide if self.is_guided else None
        maps = None if guide is None else AttentionMaps(only_cross=True)
        logits = self.model(batch.source, batch.target_in, maps)
        total = cross_entropy(logits, batch.target_out, self.label_smoothing).total
        if self.teacher is not None:
            with torch.no_grad():
                known = self.teacher.model(batch.source, batch.target_in)
            taught = from_teacher(logits, known, batch.target_out)
            total = (1 - self.teacher.share) * total + self.teacher.share * taught
        learned = total
        if guide is not None and maps is not None:
            learned = total + guide.weight * guide.loss(maps.cross[-1][:, 0], batch)
        (learned * share).backward()
        return total.detach()
