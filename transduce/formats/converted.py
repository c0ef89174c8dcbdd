"""What every reader of a foreign format gives."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from transduce.settings.sections import Settings


class Converted(NamedTuple):
    """All that a model folder needs."""

    settings: Settings
    weights: dict[str, Tensor]
    tokenizers: dict[str, bytes]
    notes: tuple[str, ...] = ()  # sentences on what is not taken over
