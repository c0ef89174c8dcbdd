"""Good settings for a text, by trying: within a time, on validation text that training does not see.

Half of the trials are drawn freely, half near the best so far. A trial that the time cuts off counts for nothing.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from transduce.errors import DataError
from transduce.fasttext.encode import LabelledLine
from transduce.fasttext.fit import Source, network_for
from transduce.fasttext.measure import Measured, measured
from transduce.fasttext.network import Network
from transduce.fasttext.training import train
from transduce.report import Report
from transduce.settings.sections import VectorSettings

RANGES = {"epochs": (2, 100), "rate": (0.02, 3.0), "dimension": (16, 256)}  # drawn by their logarithm
NEAR = 0.6  # standard deviation of the logarithm, near the best
SPELLING = ((0, 3), (3, 6), (2, 5))  # longest 0, or shortest and longest n-gram of characters


class Trial(NamedTuple):
    settings: VectorSettings
    network: Network
    found: Measured


def autotune(first: VectorSettings, source: Source, valid: list[LabelledLine], minutes: float, report: Report) -> Trial:
    """The best trial in so many minutes; the first is as it was given."""
    until = time.monotonic() + 60 * minutes
    draw = np.random.default_rng(first.seed)
    best: Trial | None = None
    number = 0
    with report.progress("search", total=60 * minutes) as bar:
        while time.monotonic() < until or best is None:
            number += 1
            settings = first if number == 1 else _drawn(first if best is None else best.settings, draw)
            network = network_for(settings, source)
            total, signal = train(network, source.text, until=until if best else np.inf)
            if signal:
                break
            if best is not None and time.monotonic() >= until:
                break
            trial = Trial(settings, network, measured(network, valid))
            if best is None or trial.found.precision > best.found.precision:
                best = trial
                report.say(f"trial {number}: P@1 {trial.found.precision:.4f} with {shown(settings)}")
            done = 60 * minutes - max(0.0, until - time.monotonic())
            bar.update(done, trial=str(number), best=f"{best.found.precision:.4f}")
    if best is None:
        raise DataError("the search was stopped before its first trial was done; there is no model")
    report.say(f"{number:,} trials; the best has P@1 {best.found.precision:.4f} with {shown(best.settings)}")
    return best


def _drawn(best: VectorSettings, draw: np.random.Generator) -> VectorSettings:
    near = draw.random() < 0.5
    new: dict[str, float | int] = {}
    for name, (low, high) in RANGES.items():
        now = np.log(getattr(best, name))
        value = now + NEAR * draw.standard_normal() if near else draw.uniform(np.log(low), np.log(high))
        number = float(np.exp(np.clip(value, np.log(low), np.log(high))))
        new[name] = number if name == "rate" else round(number)
    if not near or draw.random() < 0.3:
        new["word_ngrams"] = int(draw.integers(1, 5))
        new["shortest"], new["longest"] = SPELLING[draw.integers(len(SPELLING))]
        if not new["shortest"]:
            new["shortest"], new["longest"] = 3, 0
    return replace(best, **new)  # type: ignore[arg-type]


def shown(s: VectorSettings) -> str:
    """The settings that are searched, as flags have them."""
    names = (*RANGES, "word_ngrams", *(("shortest", "longest") if s.longest else ()))
    return ", ".join(f"{name} {getattr(s, name):.3g}" for name in names)
