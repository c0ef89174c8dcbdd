"""The sum of gradients over all processes, begun while backward is still at work.

Weights are put into buckets in the order in which backward reaches them, the last layer first. As soon as all
gradients of a bucket are there, they are sent off and backward goes on with the layers before. A recorded graph gives
all gradients at once: they are then summed in one call.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transduce.core.flat import FlatWeights
from transduce.training.distributed import Processes, death_noticed

BUCKET = 4_000_000  # bytes of a bucket, about: enough to be worth a message, and several to a model


class GradientSum:
    """Sums `flat.gradient` over processes. Between `begin` and `finish` the last backward of an update runs."""

    def __init__(self, model: nn.Module, flat: FlatWeights, processes: Processes, overlap: bool) -> None:
        self.flat, self.processes = flat, processes
        self.buckets = _buckets(model) if overlap and processes.count > 1 else []
        self.missing: list[int] | None = None  # gradients of each bucket that have not arrived; None: before `begin`
        self.sent: list[tuple[Tensor, Any]] = []  # sums under way, a bucket each
        for number, bucket in enumerate(self.buckets):
            for weight in bucket:
                weight.register_post_accumulate_grad_hook(lambda _, number=number: self._arrived(number))

    def begin(self) -> None:
        """From now on every gradient that arrives is complete."""
        assert not self.sent
        self.missing = [len(bucket) for bucket in self.buckets]

    def forget(self) -> None:
        """What has arrived since `begin`: the update is tried again."""
        assert not self.sent
        self.missing = None

    def _arrived(self, number: int) -> None:
        if self.missing is None:
            return  # a part of the batch, with others to come
        self.missing[number] -= 1
        while len(self.sent) < len(self.buckets) and not self.missing[len(self.sent)]:
            self._send()

    def _send(self) -> None:
        """Begin to sum the next bucket: always in the same order, on which all processes must agree."""
        together = torch.cat([_gradient(weight).flatten() for weight in self.buckets[len(self.sent)]])
        with death_noticed():
            self.sent.append((together, dist.all_reduce(together, async_op=True)))

    def finish(self, total: Tensor) -> None:
        """Wait until every gradient is the sum over all processes; `total`, the loss, too."""
        if not self.buckets:
            self.processes.sum(self.flat.gradient)
        while len(self.sent) < len(self.buckets):  # of weights without a gradient, or without a part in this batch
            self._send()
        for bucket, (together, work) in zip(self.buckets, self.sent, strict=True):
            with death_noticed():
                work.wait()
            gradients = [_gradient(weight) for weight in bucket]
            parts = together.split([gradient.numel() for gradient in gradients])
            torch._foreach_copy_(gradients, [part.view_as(g) for part, g in zip(parts, gradients, strict=True)])
        self.missing, self.sent = None, []
        self.processes.sum(total)


def _buckets(model: nn.Module) -> list[list[nn.Parameter]]:
    """All weights, the last first, in groups of about BUCKET bytes."""
    buckets: list[list[nn.Parameter]] = [[]]
    for weight in reversed([weight for weight in model.parameters() if weight.requires_grad]):
        if buckets[-1] and sum(other.nbytes for other in buckets[-1]) + weight.nbytes > BUCKET:
            buckets.append([])
        buckets[-1].append(weight)
    return buckets


def _gradient(weight: nn.Parameter) -> Tensor:
    assert weight.grad is not None
    return weight.grad
