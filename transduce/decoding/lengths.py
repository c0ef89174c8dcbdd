"""How long a source may be and how long its translation may become: the one place that knows."""

from __future__ import annotations

from typing import NamedTuple

from transduce.settings.sections import Settings


class Lengths(NamedTuple):
    """In tokens. END takes a place of its own on both sides."""

    positions: int  # that the model has
    extra: int  # that a translation may have beyond its source

    @staticmethod
    def of(settings: Settings) -> Lengths:
        return Lengths(settings.model.max_positions, settings.search.extra)

    @property
    def longest(self) -> int:
        """Most tokens of a source or a target, END not counted."""
        return self.positions - 1

    def limit(self, source: int) -> int:
        """Most tokens of a translation, END counted, for a source of so many tokens."""
        return min(source + self.extra + 1, self.positions)
