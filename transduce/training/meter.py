"""Running sums between two lines of metrics.jsonl; on a GPU they stay there until somebody asks."""

from __future__ import annotations

import time

import torch
from torch import Tensor


class LossMeter:
    """The mean loss a token, and the speed, since the last line."""

    def __init__(self) -> None:
        self._total: Tensor | float = 0.0
        self._counted: Tensor | float = 0
        self.reset()

    def add(self, total: Tensor, tokens: int, bad: Tensor) -> None:
        """One more update: its loss, summed over `tokens`; a skipped one counts for nothing."""
        self._total = self._total + torch.where(bad > 0, 0.0, total)
        self._counted = self._counted + tokens * (1 - bad)
        self._tokens += tokens

    def reset(self, total: float = 0.0, tokens: int = 0) -> None:
        """Begin the next line; or go on with what was summed for it before."""
        self._total, self._counted = total, tokens
        self._tokens, self._since = 0, time.monotonic()

    @property
    def sums(self) -> tuple[float, int]:
        """Loss and tokens so far; waits until a GPU has computed them."""
        return float(self._total), int(self._counted)

    @property
    def loss(self) -> float | None:
        """A token; None where every update was skipped."""
        total, tokens = self.sums
        return total / tokens if tokens else None

    @property
    def speed(self) -> float:
        """Target tokens a second."""
        return self._tokens / max(time.monotonic() - self._since, 1e-9)
