"""Keys and values that are computed once and looked at many times."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class KeysValues(NamedTuple):
    """What attention looks at: keys score, values are summed. They lie side by side, as one product made them."""

    packed: Tensor  # (R, T, H*K + H*V)
    width: int  # H*K

    def split(self) -> tuple[Tensor, Tensor]:
        """Keys (R, T, H*K) and values (R, T, H*V)."""
        keys, values = self.packed.split([self.width, self.packed.size(2) - self.width], 2)
        return keys, values

    def append(self, new: KeysValues) -> KeysValues:
        return self._replace(packed=torch.cat([self.packed, new.packed], 1))

    def select(self, rows: Tensor) -> KeysValues:
        return self._replace(packed=self.packed.index_select(0, rows))
