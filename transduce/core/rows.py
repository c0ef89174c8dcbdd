"""A batch is rows of tokens; a row holds one sentence or several."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Rows(NamedTuple):
    """Token ids with the sentence each belongs to. One sentence a row is the ordinary padded batch."""

    tokens: Tensor  # (R, T) ids
    segments: Tensor  # (R, T) sentences of a row numbered from 1; 0 marks an empty slot
    positions: Tensor  # (R, T) place in the sentence, from 0

    def to(self, device: str) -> Rows:
        return Rows(*(part.to(device, non_blocking=True) for part in self))
