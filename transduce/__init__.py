"""Sequence transduction you can read, train, look into and ship.

import transduce
model = transduce.load("runs/demo")
print(model.translate("ich möchte ein bier trinken").text)
model.trace("ich möchte ein bier trinken").save("attention.html")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

__version__ = "0.1.0"

if TYPE_CHECKING:
    from transduce.model import Model
    from transduce.report import Report


def load(folder: str | Path, device: str = "auto", weights: str | None = None, **search: Any) -> Model:
    """The model in a folder, ready to use. `search` changes its search settings: load(..., beam=1)."""
    from transduce.model import Model

    return Model.load(folder, device, weights, **search)


def train(
    run: str | Path,
    pairs: Sequence[tuple[str, str]],
    valid_pairs: Sequence[tuple[str, str]] | None = None,
    preset: str = "auto",
    task: Literal["translate", "classify"] = "translate",
    report: Report | None = None,
    **settings: dict[str, Any],
) -> Model:
    """Train on pairs in memory and give back the model: train("runs/x", pairs, model={"layers": 3}).

    With task="classify" the second of each pair is the label of the first.
    """
    from transduce.data.corpus import ListCorpus
    from transduce.inspect.curve import curve_at_the_end
    from transduce.terminal import Terminal
    from transduce.training.recipe import settings_of
    from transduce.training.resolve import resolve
    from transduce.training.setup import fit

    run, report = Path(run), report or Terminal()
    wanted = resolve(run, preset, None, settings, task)
    validation = None if valid_pairs is None else ListCorpus(valid_pairs)
    with curve_at_the_end(run, report):
        fit(run, ListCorpus(pairs), validation, wanted, report)
    return load(run, settings_of(wanted).training.device)
