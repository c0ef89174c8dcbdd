"""A loaded model with everything that can be done with it: translate, score, look inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, overload

from transduce.adapt.lora import put_adapter, with_adapter
from transduce.arguments import check_folder, check_languages, check_pairs, check_text, check_texts, shown
from transduce.core.ensemble import Ensemble
from transduce.decoding.batches import Engine
from transduce.decoding.shortlist import Shortlist
from transduce.decoding.translator import SCORED, Translator
from transduce.decoding.trust import read_trust
from transduce.decoding.wishes import Wishes
from transduce.engine.auto import make_engine
from transduce.errors import ArgumentError, ModelError, did_you_mean
from transduce.inspect.trace import trace
from transduce.models.device import prepare_device
from transduce.models.kinds import kind_of
from transduce.models.load import load, speaking
from transduce.settings.compose import compose
from transduce.text.glossary import Glossary

if TYPE_CHECKING:
    from transduce.core.seq2seq import Seq2Seq
    from transduce.decoding.results import TargetScore, Translation
    from transduce.inspect.trace import Trace
    from transduce.report import Progress
    from transduce.text.languages import Languages
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
        languages: Languages = (None, None),
        adapter: str | Path | None = None,
        **search: object,
    ) -> Self:
        """From a model folder; `search` changes its search settings: load("runs/demo", beam=1).

        `together`: folders of other models with the same vocabulary, with which it writes as an ensemble.
        `languages`: source and target, such as ("de", "en"), where a model knows many. `adapter`: a file of adapters
        (LoRA) that were trained on this model."""
        check_folder(path, "folder")
        check_text(device, "device")
        if weights is not None:
            check_text(weights, "weights")
        device = prepare_device(device)
        model, tokenizers, settings = speaking(load(path, device, weights), path, check_languages(languages))
        if adapter is not None:
            check_folder(adapter, "adapter")
            put_adapter(model, Path(adapter))
        if together:
            model = Ensemble([model, *(_like(tokenizers, other, device) for other in together)])
        given = {key: value for key, value in search.items() if value is not None}
        trust = None if together or adapter else read_trust(Path(path), tokenizers.source.size)
        return cls(model, tokenizers, compose({"search": given}, base=settings), device, trust=trust)

    def with_adapter(self, path: str | Path) -> Self:
        """The same model with adapters (LoRA), for one request and another: many of them share what they do not
        change. A model that has adapters already is another, for which none were made."""
        check_folder(path, "adapter")
        return type(self)(with_adapter(self.model, Path(path)), self.tokenizers, self.settings, self.device)

    def __repr__(self) -> str:
        weights = sum(weight.numel() for weight in self.model.parameters())
        sizes = sorted({self.tokenizers.source.size, self.tokenizers.target.size})
        tokens = " and ".join(f"{size:,}" for size in sizes)
        what = kind_of(self.settings.model).describe(self.settings.model)
        return f"<transduce model: {what}; {weights:,} weights, {tokens} tokens, {self.engine.name}>"

    def make_engine(self) -> Engine:
        return make_engine(self.model, self.search, self.device)

    @overload
    def translate(self, text: str, n_best: int = 1, **wishes: object) -> Translation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Iterable[str], n_best: int = 1, **wishes: object) -> list[Translation]: ...
    def translate(
        self, text: str | Iterable[str], n_best: int = 1, **wishes: object
    ) -> Translation | list[Translation]:
        """The translation of a text, or of each in a list, the best `n_best` of each.

        Wishes: `glossary` (words that must be translated so: {"haus": "house|home"}, or a Glossary),
        `keep` (a regular expression: what it matches is taken over unchanged), `forbidden` (words that must not be
        written), `alternatives` (so many other tokens at each place), `alignment` (True: which words come from which),
        `shortlist` (a Shortlist).
        """
        known = [field.name for field in dataclasses.fields(Wishes)]
        for name in wishes:
            if name not in known:
                there = ", ".join(known)
                if name in {field.name for field in dataclasses.fields(self.search)}:
                    raise ArgumentError(
                        f"{name} is a setting of the search: model.with_search({name}=...).translate(...)"
                    )
                raise ArgumentError(f"translate has no {name}{did_you_mean(name, known)}; there are: {there}")
        if isinstance(text, str):
            return super().translate(text, n_best, **wishes)
        return super().translate(check_texts(text, "text"), n_best, **wishes)

    def warm_up(self) -> None:
        """For a service: compile now what searches on this CPU need (ten to twenty seconds, once on a machine), so that
        no sentence waits for it, and none is searched by the slower way."""
        self.engine.warm_up()

    def stream(
        self,
        lines: Iterable[str],
        wishes: Wishes | None = None,
        chunk: int | None = None,
        progress: Progress | None = None,
        prefixes: Iterable[str] = (),
    ) -> Iterator[Translation]:
        """One translation for each line, in order, as they are ready; see Translator.stream."""
        none = isinstance(prefixes, Sequence) and not prefixes
        prefixes = () if none else check_texts(prefixes, "prefixes")
        return super().stream(check_texts(lines, "lines"), _checked(wishes), chunk, progress, prefixes)

    def score(self, pairs: Iterable[tuple[str, str]], chunk: int = SCORED) -> Iterator[TargetScore]:
        """The log-probability of each target given its source, in order."""
        return super().score(check_pairs(pairs, "pairs"), chunk)

    def trace(self, text: str, target: str | None = None) -> Trace:
        """Every attention weight for `text` and its translation (or `target`, if given), as named arrays."""
        check_text(text, "text")
        if target is not None:
            check_text(target, "target")
        return trace(self, text, target)


def _checked(wishes: Wishes | None) -> Wishes | None:
    """The same; what is of a wrong type is refused by its name."""
    if wishes is None:
        return None
    if isinstance(wishes.glossary, dict):
        written = {
            s: "|".join(check_texts(f, "glossary")) if isinstance(f, list | tuple) else f
            for s, f in wishes.glossary.items()
        }
        words = dict(check_pairs(written.items(), "glossary"))
        wishes = dataclasses.replace(wishes, glossary=Glossary.of(words))
    wanted = {"n_best": int, "glossary": Glossary, "keep": str, "alternatives": int, "shortlist": Shortlist}
    for name, kind in wanted.items():
        value = getattr(wishes, name)
        if not isinstance(value, kind) and (value is not None or kind is int):
            what = {int: "a whole number", str: "str", Glossary: "a dict or a Glossary"}.get(kind, f"a {kind.__name__}")
            raise ArgumentError(f"{name} must be {what}, not {shown(value)}")
    if wishes.alternatives < 0:
        raise ArgumentError(f"alternatives={wishes.alternatives} must be 0 or more")
    return dataclasses.replace(wishes, forbidden=tuple(check_texts(wishes.forbidden, "forbidden")))


def _like(tokenizers: Tokenizers, path: str | Path, device: str) -> Seq2Seq:
    """Another model, if it reads and writes the same tokens."""
    model, others, _ = load(path, device)
    if others.files() != tokenizers.files():
        raise ModelError(f"{path} has another vocabulary; models that write together must share one")
    return model
