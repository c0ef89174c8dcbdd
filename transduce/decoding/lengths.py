"""How long a source may be and how long its translation may become: the one place that knows."""

from __future__ import annotations

import math
from typing import NamedTuple

from transduce.settings.sections import SearchSettings, Settings


class Lengths(NamedTuple):
    """In tokens. END takes a place of its own on both sides."""

    positions: int  # that the model has
    search: SearchSettings

    @staticmethod
    def of(settings: Settings) -> Lengths:
        begin = settings.text.target_language is not None  # whose mark takes a place
        return Lengths(settings.model.max_positions - begin, settings.search)

    @property
    def longest(self) -> int:
        """Most tokens of a source or a target, END not counted."""
        return self.positions - 1

    def limit(self, source: int) -> int:
        """Most tokens of a translation, END counted, for a source of so many tokens. A forced END is not written by the
        model, so that one token less is."""
        s = self.search
        most = source + s.extra
        if s.max_ratio is not None:
            most = min(most, math.ceil(source * s.max_ratio))
        return max(1, min(most + 1, s.max_length or self.positions, self.positions) - s.forced_end)

    def least(self, source: int) -> int:
        """Fewest tokens of a translation, END not counted."""
        wanted = max(self.search.min_length, math.ceil(source * self.search.min_ratio))
        return min(wanted, self.limit(source) - (not self.search.forced_end))
