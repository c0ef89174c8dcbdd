"""Keys and values that are computed once and looked at many times."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class KeysValues(NamedTuple):
    """What attention looks at: the keys score, the values are summed."""

    keys: Tensor  # (R, H, T, K)
    values: Tensor  # (R, H, T, V)

    def append(self, new: KeysValues) -> KeysValues:
        return KeysValues(torch.cat([self.keys, new.keys], 2), torch.cat([self.values, new.values], 2))

    def select(self, rows: Tensor) -> KeysValues:
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))
