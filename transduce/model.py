"""A loaded model with everything that can be done with it: translate, score, look inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from transduce.decoding.batches import Engine
from transduce.decoding.translator import Translator
from transduce.decoding.trust import read_trust
from transduce.engine.auto import make_engine
from transduce.errors import ModelError
from transduce.inspect.trace import trace
from transduce.models.ensemble import Ensemble
from transduce.models.kinds import kind_of
from transduce.models.load import load
from transduce.nn.device import prepare_device
from transduce.settings.compose import compose

if TYPE_CHECKING:
    from transduce.inspect.trace import Trace
    from transduce.models.seq2seq import Seq2Seq
    from transduce.text.tokenizers import Tokenizers


class Model(Translator):
    """A translator that comes from a folder and can also say why."""

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "auto",
        weights: str | None = None,
        together: Sequence[str | Path] = (),
        **search: object,
    ) -> Self:
        """From a model folder; `search` changes its search settings: load("runs/demo", beam=1).

        `together`: folders of other models with the same vocabulary, with which it writes as an ensemble."""
        device = prepare_device(device)
        model, tokenizers, settings = load(path, device, weights)
        if together:
            model = Ensemble([model, *(_like(tokenizers, other, device) for other in together)])
        given = {key: value for key, value in search.items() if value is not None}
        trust = None if together else read_trust(Path(path), tokenizers.source.size)
        return cls(model, tokenizers, compose({"search": given}, base=settings), device, trust=trust)

    def __repr__(self) -> str:
        weights = sum(weight.numel() for weight in self.model.parameters())
        sizes = sorted({self.tokenizers.source.size, self.tokenizers.target.size})
        tokens = " and ".join(f"{size:,}" for size in sizes)
        what = kind_of(self.settings.model).describe(self.settings.model)
        return f"<transduce model: {what}; {weights:,} weights, {tokens} tokens, {self.engine.name}>"

    def make_engine(self) -> Engine:
        return make_engine(self.model, self.search, self.device)

    def trace(self, text: str, target: str | None = None) -> Trace:
        """Every attention weight for `text` and its translation (or `target`, if given), as named arrays."""
        return trace(self, text, target)


def _like(tokenizers: Tokenizers, path: str | Path, device: str) -> Seq2Seq:
    """Another model, if it reads and writes the same tokens."""
    model, others, _ = load(path, device)
    if others.files() != tokenizers.files():
        raise ModelError(f"{path} has another vocabulary; models that write together must share one")
    return model
