"""Who may look at whom. A mask is boolean and has one meaning: True = may look."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def same_sentence(queries: Tensor, keys: Tensor) -> Tensor:
    """From segment ids (R, T) and (R, S) to a mask (R, 1, T, S), the 1 standing for all heads.

    This is the padding mask and, when several sentences share a row, what keeps them apart.
    """
    return ((queries.unsqueeze(2) == keys.unsqueeze(1)) & (keys != 0).unsqueeze(1)).unsqueeze(1)


def not_later(length: int, device: torch.device | None = None) -> Tensor:
    """The decoder's causal mask (T, T): a token sees itself and those before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class Segments(NamedTuple):
    """The same rule before it becomes a mask, for a kernel that never stores the mask."""

    queries: Tensor  # (R, T) segment ids
    keys: Tensor  # (R, S)
    causal: bool


class MayLook(NamedTuple):
    """Who may look at whom: as a mask, and where it follows from segments, those too."""

    mask: Tensor  # boolean, broadcast to (R, H, T, S)
    segments: Segments | None = None
