"""Weights of others by their names: each is taken once, and what does not fit is told all at once."""

from __future__ import annotations

import re
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
        self._taken: set[int] = set()  # where tensors lie that were taken: CTranslate2 keeps equal ones once
        self._complaints: dict[str, list[str]] = {"missing": [], "of another shape": [], "unexpected": []}

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def names(self) -> Collection[str]:
        return self._left.keys()

    def are_equal(self, a: str, b: str) -> bool:
        """Whether two weights are one; so where one of them, or both, are not there."""
        return not (a in self and b in self) or torch.equal(self._left[a], self._left[b])

    def peek(self, name: str) -> Tensor | None:
        """A weight that may not be there, without taking it."""
        return self._left.get(name)

    def rows(self, name: str) -> int:
        """So many rows a matrix has, for whoever has no other way to know."""
        return self._side(name, 0)

    def columns(self, name: str) -> int:
        return self._side(name, 1)

    def _side(self, name: str, which: int) -> int:
        found = self._left.get(name)
        if found is None or found.dim() != 2:
            raise ModelError(f"{self.origin} has no matrix {name}, without which nothing can be said of it")
        return found.size(which)

    def scalar(self, name: str, usual: float) -> float:
        """A number that a file may keep among its weights."""
        found = self._left.get(name)
        return usual if found is None or found.numel() != 1 else found.float().item()

    def count(self, pattern: str, first: int = 0) -> int:
        """How many numbers from the first on are in names of this pattern."""
        found = {int(match[1]) - first for name in self._left if (match := re.match(pattern, name))}
        return next(i for i in range(len(found) + 1) if i not in found)

    def take_or_zeros(self, name: str, *shape: int) -> Tensor:
        """A weight that need not be there."""
        return self.take(name, *shape) if name in self else torch.zeros(shape)

    def take(self, name: str, *shape: int) -> Tensor:
        """A weight as float32; of another shape, or missing, it is noted, and the work goes on with zeros."""
        found = self._left.pop(name, None)
        if found is None:
            self._complaints["missing"].append(name)
        elif tuple(found.shape) != shape:
            self._complaints["of another shape"].append(f"{name} {tuple(found.shape)}, not {shape}")
        else:
            place = found.data_ptr()
            found = found.clone() if place in self._taken else found
            self._taken.add(place)
            return found.float()
        return torch.zeros(()).expand(shape)  # which takes no memory, whatever a config says

    def linear(self, ours: str, theirs: str, *shape: int) -> dict[str, Tensor]:
        """Weight and bias of a linear layer, or of a norm, by our name."""
        return {
            f"{ours}.weight": self.take(f"{theirs}.weight", *shape),
            f"{ours}.bias": self.take(f"{theirs}.bias", shape[0]),
        }

    def drop(self, names: Collection[str]) -> None:
        """What is there and not needed: copies, and tables that are computed here."""
        for name in names:
            self._left.pop(name, None)

    def finish(self, ignored: str | None = None) -> None:
        """Every weight must have been used, but for those of a pattern."""
        self._complaints["unexpected"] = sorted(n for n in self._left if not ignored or not re.fullmatch(ignored, n))
        told = []
        for kind, names in self._complaints.items():
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                told.append(f"{kind}: {', '.join(name[:100] for name in names[:SHOWN])}{more}")
        if told:
            raise ModelError(f"the weights of {self.origin} do not fit its config; {'; '.join(told)}")
