"""Attention masks: who may look at whom. A mask is boolean and has one meaning: True = may look."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def segment_mask(queries: Tensor, keys: Tensor) -> Tensor:
    """From segment ids (R, T) and (R, S) to a mask (R, 1, T, S), the 1 standing for all heads: the same sentence.

    This is the padding mask and, when several sentences share a row, what keeps them apart.
    """
    return ((queries.unsqueeze(2) == keys.unsqueeze(1)) & (keys != 0).unsqueeze(1)).unsqueeze(1)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """The decoder's (T, T): a token sees itself and those before it, none that come later."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class Segments(NamedTuple):
    """The rule behind a mask, for kernels that never store the mask itself."""

    queries: Tensor  # (R, T) segment ids
    keys: Tensor  # (R, S)
    causal: bool


class AttentionMask(NamedTuple):
    """Who may look at whom; where it follows from segments, those too."""

    allowed: Tensor  # boolean, broadcast to (R, H, T, S)
    segments: Segments | None = None

    @staticmethod
    def between(queries: Tensor, keys: Tensor, causal: bool = False) -> AttentionMask:
        """From segment ids (R, T) and (R, S): the same sentence, and if causal nothing later."""
        allowed = segment_mask(queries, keys)
        allowed = allowed & causal_mask(queries.size(1), queries.device) if causal else allowed
        return AttentionMask(allowed, Segments(queries, keys, causal))
