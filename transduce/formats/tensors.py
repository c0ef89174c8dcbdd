"""Weights of others by their names: each is taken once, and what does not fit is told all at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor

from transduce.errors import ModelError

SHOWN = 8  # names in a complaint


class Tensors:
    """What a file holds, and what was asked of it."""

    def __init__(self, held: Mapping[str, Tensor], origin: Path) -> None:
        self._left, self.origin = dict(held), origin
        self._complaints: dict[str, list[str]] = {"missing": [], "of another shape": [], "unexpected": []}

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def are_equal(self, a: str, b: str) -> bool:
        """Whether two weights are one; so where one of them, or both, are not there."""
        return not (a in self and b in self) or torch.equal(self._left[a], self._left[b])

    def take(self, name: str, *shape: int) -> Tensor:
        """A weight as float32; of another shape, or missing, it is noted, and the work goes on with zeros."""
        found = self._left.pop(name, None)
        if found is None:
            self._complaints["missing"].append(name)
        elif tuple(found.shape) != shape:
            self._complaints["of another shape"].append(f"{name} {tuple(found.shape)}, not {shape}")
        else:
            return found.float()
        return torch.zeros(()).expand(shape)  # which takes no memory, whatever a config says

    def drop(self, names: Collection[str]) -> None:
        """What is there and not needed: copies, and tables that are computed here."""
        for name in names:
            self._left.pop(name, None)

    def finish(self) -> None:
        """Every weight must have been used, and be a number."""
        self._complaints["unexpected"] = sorted(self._left)
        told = []
        for kind, names in self._complaints.items():
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                told.append(f"{kind}: {', '.join(name[:100] for name in names[:SHOWN])}{more}")
        if told:
            raise ModelError(f"the weights of {self.origin} do not fit its config; {'; '.join(told)}")
