"""What transduce doctor advises, as settings that train takes; and the command line that has them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transduce.settings.entries import flat
from transduce.settings.presets import AUTO
from transduce.settings.sections import Overrides, Settings, listed

if TYPE_CHECKING:
    from transduce.data.count import Lengths
    from transduce.data.doctor import Diagnosis

BY_SETTING = {"empty": "data.drop_empty", "identical": "data.drop_identical", "duplicate": "data.drop_duplicates"}
STAY = 0.999  # share of the pairs of usual length that data.max_ratio must leave


def advised(diagnosis: Diagnosis, lengths: Lengths, asked: Settings, supported: Settings) -> dict[str, str]:
    """Settings to change: what takes a fault out that was found, and a vocabulary that the text supports."""
    now, advice = flat(asked), {}
    for fault, name in BY_SETTING.items():
        if len(diagnosis.faults[fault]) and not now[name]:
            advice[name] = "true"
    most = _max_ratio(diagnosis, lengths)
    if most is not None and (asked.data.max_ratio is None or most < asked.data.max_ratio):
        advice["data.max_ratio"] = str(most)
    if supported.text.vocabulary != asked.text.vocabulary:
        advice["text.vocabulary"] = str(supported.text.vocabulary)
    return advice


def _max_ratio(diagnosis: Diagnosis, lengths: Lengths) -> int | None:
    """The smallest whole number that leaves nearly all pairs of usual length, if it keeps out one that is unusual."""
    import numpy as np

    shorter, longer = np.sort(lengths.tokens, 1).T
    ratio = longer / np.maximum(shorter, 1)
    unusual = np.isin(lengths.lines, diagnosis.faults["length ratio"])
    if not unusual.any() or unusual.all():
        return None
    most = max(2, math.ceil(np.quantile(ratio[~unusual], STAY)))
    return most if (ratio[unusual] > most).any() else None


def train_line(given: Overrides, preset: str, advice: dict[str, str], valid: Sequence[str]) -> str:
    """The command that trains on the text with what is advised; `given`: the flags of doctor."""
    words = ["transduce", "train", "runs/mine"]
    data = given.get("data", {})
    for key in ("source", "target", "weight"):
        values = listed(data[key]) if isinstance(data.get(key), str) else data.get(key) or ()
        words += [word for value in values for word in (f"--{key}", str(value))]
    for key in ("columns", "languages"):
        words += [f"--{key}", *data[key]] if data.get(key) else []
    for flag, file in zip(("--valid-source", "--valid-target"), valid, strict=False):
        words += [flag, file]
    words += ["--preset", preset] if preset != AUTO else []
    others = {f"{section}.{key}": value for section, keys in given.items() for key, value in keys.items()}
    named = ("source", "target", "weight", "columns", "languages")
    others = {name: str(value) for name, value in others.items() if name not in {f"data.{key}" for key in named}}
    words += [word for name, value in {**others, **advice}.items() for word in (f"--{name}", value)]
    return shlex.join(words)
