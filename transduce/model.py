"""A loaded model with everything that can be done with it: translate, score, look inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transduce.decoding.translator import Translator
from transduce.inspect.trace import trace

if TYPE_CHECKING:
    from transduce.inspect.trace import Trace


class Model(Translator):
    """A translator that can also say why."""

    def trace(self, text: str, target: str | None = None) -> Trace:
        """Every attention weight for `text` and its translation (or `target`, if given), as named arrays."""
        return trace(self, text, target)
