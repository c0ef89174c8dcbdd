"""How gradients become updates: Adam (PyTorch's), Schedule-Free AdamW and Muon, over weights that lie end to end.

The updater sets three numbers in `param_groups` before every update: `lr`, the learning rate; `number`, the update's
number from 1; `share`, lr² as a share of the sum of all lr² so far, with which Schedule-Free averages.

An optimizer of ours makes all it remembers in `__init__`, in `self.state[flat.weights]`: tensors of floats, of the
shape of the weights or one number, zero where no weight lies. Checkpoints and resuming then need no more. Its `step`
changes nothing where `bad` is 1, which it finds out where the weights are: to look would wait for the GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from transduce.core.flat import FlatWeights
from transduce.settings.sections import OptimizerSettings


def make_optimizer(flat: FlatWeights, o: OptimizerSettings) -> torch.optim.Optimizer:
    """The optimizer that the settings name."""
    if o.name == "schedule_free":
        return ScheduleFree(flat, o)
    if o.name == "muon":
        return Muon(flat, o)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[o.name]  # section 5.3 of "Attention Is All You Need"
    fused = flat.weights.device.type in ("cpu", "cuda")
    return kind([flat.weights], 0.0, (o.beta1, o.beta2), o.eps, o.weight_decay, fused=fused)


class ScheduleFree(torch.optim.Optimizer):
    """Schedule-Free AdamW (Defazio et al., 2024): a running average of the weights takes the place of a decaying rate.

    Three sequences: z takes the steps; x, the average of the z, is what is used in the end; gradients are taken at
    y = β₁ x + (1 - β₁) z, which is what the model holds while it trains. x is not stored: it follows from y and z.
    """

    def __init__(self, flat: FlatWeights, o: OptimizerSettings) -> None:
        super().__init__([flat.weights], {"lr": 0.0, "number": 0, "share": 1.0})
        self.o, self.flat, self.y = o, flat, flat.weights
        self.state[self.y] = {"z": self.y.detach().clone(), "square": torch.zeros_like(self.y)}

    @torch.no_grad()
    def step(self, bad: Tensor) -> None:  # type: ignore[override]
        rate, number, share = (self.param_groups[0][key] for key in ("lr", "number", "share"))
        y, o = self.y, self.o
        g, good = _if_good(self.flat.gradient, bad)
        z, square = self.state[y]["z"], self.state[y]["square"]
        square.lerp_(g * g, (1 - o.beta2) * good)
        direction = g / (square / (1 - o.beta2**number)).sqrt_().add_(o.eps)
        if o.weight_decay:
            direction.addcmul_(y, good, value=o.weight_decay)
        y.lerp_(z, share * good)
        y.add_(direction, alpha=rate * (o.beta1 * (1 - share) - 1))
        z.add_(direction, alpha=-rate)

    @torch.no_grad()
    def average(self) -> None:
        """Put x in the place of y."""
        self.y.lerp_(self.state[self.y]["z"], 1 - 1 / self.o.beta1)


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al., 2024) for the matrices inside the layers, Adam for everything else.

    The momentum of a matrix is replaced by the nearest matrix whose singular values are all about 1, so that every
    direction is learned at the same pace. Its size is then set to that of Adam's updates (0.2 √(longer side), Liu et
    al., 2025), so that Adam's learning rates serve.
    """

    def __init__(self, flat: FlatWeights, o: OptimizerSettings) -> None:
        super().__init__([flat.weights], {"lr": 0.0, "number": 0, "share": 1.0})
        self.o, self.flat = o, flat
        self.state[flat.weights] = {name: torch.zeros_like(flat.weights) for name in ("momentum", "square")}
        layers = ("encoder.", "decoder.")  # not the tables of tokens and positions, nor the projection
        inner = [place for place in flat.places if len(place.shape) == 2 and place.name.startswith(layers)]
        by_shape = sorted(inner, key=lambda place: place.shape)
        self.stacks = [list(places) for _, places in itertools.groupby(by_shape, lambda place: place.shape)]

    @torch.no_grad()
    def step(self, bad: Tensor) -> None:  # type: ignore[override]
        rate, number = (self.param_groups[0][key] for key in ("lr", "number"))
        w, o = self.flat.weights, self.o
        g, good = _if_good(self.flat.gradient, bad)
        momentum, square = self.state[w]["momentum"], self.state[w]["square"]
        momentum.lerp_(g, (1 - o.beta1) * good)
        square.lerp_(g * g, (1 - o.beta2) * good)
        step = momentum / (square / (1 - o.beta2**number)).sqrt_().add_(o.eps) / (1 - o.beta1**number)
        for places in self.stacks:
            ahead = torch.stack([torch.lerp(p.of(g), p.of(momentum), o.beta1) for p in places])  # as Nesterov
            turned = orthogonal(ahead) * (0.2 * max(places[0].shape) ** 0.5)
            torch._foreach_copy_([p.of(step) for p in places], list(turned))
        if o.weight_decay:
            w.mul_(1 - rate * o.weight_decay * good)
        w.addcmul_(step, good, value=-rate)


def _if_good(gradient: Tensor, bad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient, and 1; zeros, and 0, where it is bad."""
    return torch.where(bad > 0, 0.0, gradient), 1 - bad


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Each matrix of a stack (n, rows, columns) with its singular values brought to between about 0.7 and 1.2.

    Newton-Schulz: an odd polynomial of X acts on its singular values alone; this one pulls them towards 1.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrices.size(1) > matrices.size(2)
    X = matrices.bfloat16() if matrices.is_cuda else matrices
    X = X.mT if tall else X
    X = X / (X.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        X = a * X + (b * A + c * (A @ A)) @ X
    return X.mT if tall else X


def step(optimizer: torch.optim.Optimizer, bad: Tensor) -> None:
    """One update; none at all where `bad` is 1. PyTorch's fused optimizers find that out on the GPU, and ours."""
    if isinstance(optimizer, ScheduleFree | Muon):
        optimizer.step(bad)
    elif optimizer.defaults.get("fused"):
        optimizer.found_inf = bad  # type: ignore[attr-defined]
        optimizer.step()
    elif not bad:
        optimizer.step()


@contextmanager
def final_weights(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Within, the model holds the weights that are meant to be used, where those differ from the ones that train."""
    if not isinstance(optimizer, ScheduleFree):
        yield
        return
    with optimizer.flat.restored():
        optimizer.average()
        yield
