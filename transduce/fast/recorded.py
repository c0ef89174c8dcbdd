"""Gradients of batches that all have one shape: compiled once, recorded once as a CUDA graph, then played again with
new numbers in the same places. The CPU starts one thing a batch instead of a thousand. Plain twin:
training/gradients.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from transduce.core.flat import FlatWeights
from transduce.core.rows import Rows
from transduce.data.batches import Batch
from transduce.errors import UserError
from transduce.fast import kernels
from transduce.fast.projected_loss import projected_cross_entropy
from transduce.fast.working_copy import WorkingCopy


def can_record(device: str) -> bool:
    """Compiling for a GPU needs Triton, which comes with PyTorch for CUDA."""
    return device == "cuda" and kernels.HAS_TRITON


class RecordedGradients:
    """Compiled and recorded when the first batch comes; every batch must have its shape.

    The gradients lie where activations lay before, until the next batch. Where batches are summed (`accumulate` above
    1) they are kept apart.
    """

    def __init__(self, working: WorkingCopy, flat: FlatWeights, label_smoothing: float, accumulate: int) -> None:
        self.working = working
        self.flat = flat
        self.label_smoothing = label_smoothing
        self.accumulate = accumulate
        self._graph: torch.cuda.CUDAGraph | None = None

    def add(self, batch: Batch, share: float) -> Tensor:
        numbers = [*batch.source, *batch.target_in, batch.target_out]
        if self._graph is None:
            self.working.renew_frozen()
            self._graph = self._try_to_record(numbers)
        for place, new in zip(self._places, numbers, strict=True):
            place.copy_(new, non_blocking=True)
        self._share.fill_(share)
        self._graph.replay()
        weights = self.flat.weights
        if weights.grad is not None:
            assert weights.grad is not self._fresh  # several batches need accumulate above 1
            weights.grad.add_(self._fresh)
        else:
            weights.grad = self._fresh.clone() if self.accumulate > 1 else self._fresh
        return self._total.clone()

    def clear(self) -> None:
        self.flat.weights.grad = None

    def _try_to_record(self, numbers: list[Tensor]) -> torch.cuda.CUDAGraph:
        try:
            return self._record(numbers)
        except torch.OutOfMemoryError as error:
            raise UserError(
                "a batch does not fit into the GPU's memory; raise batch.split: the same updates in less memory"
            ) from error
        except Exception as error:  # compilers and drivers complain in many ways
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f"the fast path does not work on this machine ({type(error).__name__}: {reason}); "
                f"go on with --training.fast false"
            ) from error

    def _record(self, numbers: list[Tensor]) -> torch.cuda.CUDAGraph:
        """Run it a few times as rehearsal, then once for the record; leave no trace in the random state."""
        self._places = [x.clone() for x in numbers]
        self._share = torch.zeros((), device=numbers[0].device)
        random = torch.cuda.get_rng_state()
        # deterministic: no choice that changes the last bits is left to a race between variants
        loss = torch.compile(self._loss, dynamic=False, fullgraph=True, options={"deterministic": True})
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):  # compiles, and lets libraries choose their ways before anything is recorded
                self._run(loss)
        torch.cuda.current_stream().wait_stream(beside)
        torch.cuda.empty_cache()  # what the rehearsal took
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._total, self._fresh = self._run(loss)
        torch.cuda.set_rng_state(random)
        return graph

    def _loss(self, source: Rows, target_in: Rows, target_out: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """The sum over tokens, and the share of it that is to be differentiated."""
        states = self.working.model.states(source, target_in)
        total = projected_cross_entropy(states, self.working.model.projection, target_out, self.label_smoothing)
        return total, total * share

    def _run(self, loss: Callable[..., tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The loss, and all gradients in one tensor, made last."""
        places = self._places
        self.working.renew(self.flat)
        total, shared = loss(Rows(*places[0:3]), Rows(*places[3:6]), places[6], self._share)
        weights = {name: w for name, w in self.working.model.named_parameters() if w.requires_grad}
        gradients = dict(zip(weights, torch.autograd.grad(shared, list(weights.values())), strict=True))
        fresh = torch.empty_like(self.flat.weights)
        for begin, end in self.flat.gaps():
            fresh[begin:end].zero_()
        views = self.flat.by_name(fresh)
        for dtype in {gradient.dtype for gradient in gradients.values()}:  # those of one precision in one go
            names = [name for name, gradient in gradients.items() if gradient.dtype == dtype]
            torch._foreach_copy_([views[name] for name in names], [gradients[name] for name in names])
        return total.detach(), fresh
