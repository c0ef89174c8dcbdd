"""Some of many, in their order: drawn, and always the same ones.

Not the first, as a text may be sorted; nor every second, as lines may alternate between speakers, or between languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def drawn(many: Sequence[T], most: int) -> Sequence[T]:
    """All of them, where there are no more."""
    if len(many) <= most:
        return many
    return [many[i] for i in sorted(Random(1).sample(range(len(many)), most))]
