"""The gradients of a batch: plainly, or fast on a GPU. Both add to `.grad` and give the loss without waiting for it.

The fast way rests on one thing: packed batches all have one shape. So the whole of forward and backward is compiled
once, recorded once as a CUDA graph, and then played again with new numbers in the same places: the CPU starts one
thing a batch instead of a thousand.
"""

from __future__ import annotations

import importlib.util
from typing import Protocol

import torch
from torch import Tensor

from transduce.data.batches import Batch
from transduce.models.seq2seq import Seq2Seq
from transduce.training.loss import cross_entropy, projected_cross_entropy


class Gradients(Protocol):
    def add(self, batch: Batch, share: float) -> Tensor:
        """Add the gradient of `share` x the batch's loss to `.grad`; gives the loss, summed over tokens."""

    def clear(self) -> None:
        """Set them back to nothing."""


class PlainGradients:
    """PyTorch, a batch of any shape."""

    def __init__(self, model: Seq2Seq, label_smoothing: float) -> None:
        self.model = model
        self.label_smoothing = label_smoothing

    def add(self, batch: Batch, share: float) -> Tensor:
        logits = self.model(batch.source, batch.target_in)
        total = cross_entropy(logits, batch.target_out, self.label_smoothing).total
        (total * share).backward()
        return total.detach()

    def clear(self) -> None:
        self.model.zero_grad()


class FastGradients:
    """Compiled and recorded when the first batch comes; every batch must have its shape."""

    def __init__(self, model: Seq2Seq, label_smoothing: float) -> None:
        self.model = model
        self.label_smoothing = label_smoothing
        self._recorded: _Recorded | None = None

    def add(self, batch: Batch, share: float) -> Tensor:
        if self._recorded is None:
            self._recorded = _Recorded(self, batch)
        return self._recorded.play(batch, share)

    def clear(self) -> None:
        self.model.zero_grad(set_to_none=False)  # the graph adds to these very tensors

    def loss(self, batch: Batch, share: Tensor) -> tuple[Tensor, Tensor]:
        """The sum over tokens, and the share of it that is to be differentiated."""
        states = self.model.states(batch.source, batch.target_in)
        total = projected_cross_entropy(states, self.model.projection, batch.target_out, self.label_smoothing).total
        return total, total * share


class _Recorded:
    """The graph and the places where it reads and writes."""

    def __init__(self, of: FastGradients, batch: Batch) -> None:
        self.batch = Batch(*(_copy(part) for part in batch[:3]), batch.pairs, batch.count)
        self.share = torch.zeros((), device=batch.target_out.device)
        for weight in of.model.parameters():
            weight.grad = torch.zeros_like(weight)
        random = torch.cuda.get_rng_state()
        loss = torch.compile(of.loss, dynamic=False, fullgraph=True)

        def run() -> Tensor:
            total, shared = loss(self.batch, self.share)
            shared.backward()
            return total.detach()

        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):  # compiles, and lets libraries choose their ways before anything is recorded
                run()
        torch.cuda.current_stream().wait_stream(beside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.total = run()
        of.clear()  # the share was 0, but 0 x inf is not
        torch.cuda.set_rng_state(random)  # as if nothing had been tried

    def play(self, batch: Batch, share: float) -> Tensor:
        for mine, new in zip(self.batch[:3], batch[:3], strict=True):
            for place, part in zip(_tensors(mine), _tensors(new), strict=True):
                place.copy_(part, non_blocking=True)
        self.share.fill_(share)
        self.graph.replay()
        return self.total.clone()


def _tensors(part) -> list[Tensor]:  # noqa: ANN001
    return [part] if isinstance(part, Tensor) else list(part)


def _copy(part):  # noqa: ANN001, ANN202
    return part.clone() if isinstance(part, Tensor) else type(part)(*(x.clone() for x in part))


def can_be_fast(device: str) -> bool:
    """Compiling for a GPU needs Triton, which comes with PyTorch for CUDA."""
    return device == "cuda" and importlib.util.find_spec("triton") is not None
