"""A loaded model with everything that can be done with it: translate, score, look inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from transduce.decoding.batches import Engine
from transduce.decoding.translator import Translator
from transduce.engine.auto import make_engine
from transduce.inspect.trace import trace
from transduce.models.load import load
from transduce.nn.device import prepare_device
from transduce.settings.compose import compose

if TYPE_CHECKING:
    from transduce.inspect.trace import Trace


class Model(Translator):
    """A translator that comes from a folder and can also say why."""

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", weights: str | None = None, **search: object) -> Self:
        """From a model folder; `search` changes its search settings: load("runs/demo", beam=1)."""
        device = prepare_device(device)
        model, tokenizers, settings = load(path, device, weights)
        given = {key: value for key, value in search.items() if value is not None}
        return cls(model, tokenizers, compose({"search": given}, base=settings), device, folder=Path(path))

    def make_engine(self) -> Engine:
        return make_engine(self.model, self.search, self.device, self.folder)

    def trace(self, text: str, target: str | None = None) -> Trace:
        """Every attention weight for `text` and its translation (or `target`, if given), as named arrays."""
        return trace(self, text, target)
