"""How gradients become updates: Adam (PyTorch's), Schedule-Free AdamW and Muon.

The trainer sets three numbers in `param_groups` before every update: `lr`, the learning rate; `number`, the update's
number from 1; `share`, lr² as a share of the sum of all lr² so far, with which Schedule-Free averages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from transduce.config import OptimizerSettings


def make_optimizer(model: nn.Module, o: OptimizerSettings, device: str) -> torch.optim.Optimizer:
    """The optimizer that the settings name."""
    weights = list(model.parameters())
    if o.name == "schedule_free":
        return ScheduleFree(weights, o.beta1, o.beta2, o.eps, o.weight_decay)
    if o.name == "muon":
        tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        tables |= {id(w) for name, w in model.named_parameters() if name.startswith("projection.")}
        matrices = [w for w in weights if w.dim() == 2 and id(w) not in tables]
        return Muon(weights, matrices, o.beta1, o.beta2, o.eps, o.weight_decay)
    kind = torch.optim.AdamW if o.name == "adamw" else torch.optim.Adam  # section 5.3 of the paper
    fused = device in ("cpu", "cuda")  # one kernel for all weights
    return kind(weights, 0.0, (o.beta1, o.beta2), o.eps, o.weight_decay, fused=fused)


class ScheduleFree(torch.optim.Optimizer):
    """Schedule-Free AdamW (Defazio et al., 2024): a running average of the weights takes the place of a decaying rate.

    Three sequences: z takes the steps; x, the average of the z, is what is used in the end; gradients are taken at
    y = β₁ x + (1 - β₁) z, which is what the model holds while it trains. x is not stored: it follows from y and z.
    """

    def __init__(self, weights: list[nn.Parameter], beta1: float, beta2: float, eps: float, decay: float) -> None:
        super().__init__(weights, {"lr": 0.0, "number": 0, "share": 1.0})
        self.beta1, self.beta2, self.eps, self.decay = beta1, beta2, eps, decay
        for w in weights:
            self.state[w] = {"z": w.detach().clone(), "square": torch.zeros_like(w)}

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        rate, number, share = group["lr"], group["number"], group["share"]
        weights = [w for w in group["params"] if w.grad is not None]
        y, g = [w.data for w in weights], [w.grad for w in weights]
        z, square = [self.state[w]["z"] for w in weights], [self.state[w]["square"] for w in weights]
        torch._foreach_mul_(square, self.beta2)
        torch._foreach_addcmul_(square, g, g, 1 - self.beta2)
        root = torch._foreach_div(square, 1 - self.beta2**number)
        torch._foreach_sqrt_(root)
        torch._foreach_add_(root, self.eps)
        direction = torch._foreach_div(g, root)
        if self.decay:
            torch._foreach_add_(direction, y, alpha=self.decay)
        torch._foreach_lerp_(y, z, share)
        torch._foreach_add_(y, direction, alpha=rate * (self.beta1 * (1 - share) - 1))
        torch._foreach_add_(z, direction, alpha=-rate)

    @torch.no_grad()
    def average(self) -> None:
        """Put x in the place of y."""
        for w in self.param_groups[0]["params"]:
            w.lerp_(self.state[w]["z"], 1 - 1 / self.beta1)


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al., 2024) for the matrices inside the layers, Adam for everything else.

    The momentum of a matrix is replaced by the nearest matrix whose singular values are all about 1, so that every
    direction is learned at the same pace. Its size is then set to that of Adam's updates (0.2 √(longer side), Liu et
    al., 2025), so that Adam's learning rates serve.
    """

    def __init__(
        self, weights: list[nn.Parameter], matrices: list[nn.Parameter], beta1: float, beta2: float, eps: float,
        decay: float,
    ) -> None:  # fmt: skip
        super().__init__(weights, {"lr": 0.0, "number": 0, "share": 1.0})
        self.beta1, self.beta2, self.eps, self.decay = beta1, beta2, eps, decay
        chosen = {id(w) for w in matrices}
        self.others = [w for w in weights if id(w) not in chosen]
        self.by_shape: dict[torch.Size, list[nn.Parameter]] = {}
        for w in matrices:
            self.by_shape.setdefault(w.shape, []).append(w)
            self.state[w] = {"momentum": torch.zeros_like(w)}
        for w in self.others:
            self.state[w] = {"momentum": torch.zeros_like(w), "square": torch.zeros_like(w)}

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        rate, number = group["lr"], group["number"]
        if self.decay:
            torch._foreach_mul_([w.data for w in group["params"]], 1 - rate * self.decay)
        self._adam(rate, number)
        for shape, weights in self.by_shape.items():
            momentum, g = [self.state[w]["momentum"] for w in weights], [_gradient(w) for w in weights]
            torch._foreach_lerp_(momentum, g, 0.05)
            ahead = torch.stack(torch._foreach_lerp(g, momentum, 0.95))  # Nesterov: one step further
            turned = orthogonal(ahead) * (0.2 * max(shape) ** 0.5)
            torch._foreach_add_([w.data for w in weights], list(turned.to(g[0].dtype)), alpha=-rate)

    def _adam(self, rate: float, number: int) -> None:
        g = [_gradient(w) for w in self.others]
        momentum = [self.state[w]["momentum"] for w in self.others]
        square = [self.state[w]["square"] for w in self.others]
        torch._foreach_lerp_(momentum, g, 1 - self.beta1)
        torch._foreach_mul_(square, self.beta2)
        torch._foreach_addcmul_(square, g, g, 1 - self.beta2)
        root = torch._foreach_div(square, 1 - self.beta2**number)
        torch._foreach_sqrt_(root)
        torch._foreach_add_(root, self.eps)
        step = torch._foreach_div(momentum, root)
        torch._foreach_add_([w.data for w in self.others], step, alpha=-rate / (1 - self.beta1**number))


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


def _gradient(w: nn.Parameter) -> Tensor:
    return w.grad if w.grad is not None else torch.zeros_like(w)


@contextmanager
def final_weights(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Within, the model holds the weights that are meant to be used, where those differ from the ones that train."""
    if not isinstance(optimizer, ScheduleFree):
        yield
        return
    training = [w.detach().clone() for w in optimizer.param_groups[0]["params"]]
    optimizer.average()
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(optimizer.param_groups[0]["params"], training)
