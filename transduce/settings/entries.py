"""Every setting as help and messages show it, and a value from YAML or from a flag's text as its type."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transduce.errors import SettingsError, did_you_mean
from transduce.settings.sections import Settings

LARGEST = 2**31  # of whole numbers, so that a slip of the finger is not taken for a size
WHOLE = re.compile(r"[+-]?\d+(_\d+)*|[+-]?\d+e\d+", re.IGNORECASE | re.ASCII)  # 4000, 4_000, 4e3; not 4.0


@dataclass(frozen=True)
class Entry:
    """One setting as help and messages show it."""

    name: str
    type: Any
    default: Any
    help: str
    limits: Mapping[str, float]

    def is_within(self, value: Any) -> bool:
        """Whether a number respects the limits; what is no number does."""
        if isinstance(value, tuple):
            return all(map(self.is_within, value))
        if not isinstance(value, int | float):
            return True
        holds = {"at least": operator.ge, "above": operator.gt, "below": operator.lt, "at most": operator.le}
        return all(holds[words](value, limit) for words, limit in self.limits.items())

    @property
    def choices(self) -> tuple[str, ...]:
        """What a setting of few values can be."""
        return typing.get_args(self.type) if typing.get_origin(self.type) is Literal else ()


def entries() -> Iterator[Entry]:
    """Every setting there is, in order."""
    for section in dataclasses.fields(Settings):
        cls: Any = section.default_factory
        hints = typing.get_type_hints(cls)
        for f in dataclasses.fields(cls):
            yield Entry(f"{section.name}.{f.name}", hints[f.name], f.default, f.metadata["help"], f.metadata["limits"])


def flat(settings: Settings) -> dict[str, Any]:
    """`{"model.layers": 6, ...}`."""
    return {f"{s}.{k}": v for s, keys in dataclasses.asdict(settings).items() for k, v in keys.items()}


def convert(entry: Entry, value: Any) -> Any:
    """`value`, from YAML or from a flag's text, as the entry's type."""
    options = options_of(entry.type)
    if isinstance(value, str) and value.lower() in ("none", "null", "~", "") and type(None) in options:
        return None
    for option in options:
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if option is bool and str(value).lower() in ("true", "yes", "on", "false", "no", "off"):
            return str(value).lower() in ("true", "yes", "on")
        if option is type(None) and value is None:
            return None
        if option is str and isinstance(value, str | Path):
            return str(value)
        if option in (int, float) and (number := _number(value, option)) is not None:
            return number
        if typing.get_origin(option) is tuple and (several := _several(value, option)) is not None:
            return several[0] if len(several) == 1 and str in options else several
    raise SettingsError(_mismatch(entry, options, value))


def _number(value: Any, kind: type) -> float | None:
    """A finite number; a whole one only where it is written as one."""
    text = str(value)
    if isinstance(value, bool) or len(text) > 100 or (kind is int and not WHOLE.fullmatch(text)):
        return None
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return None
    if kind is int:
        return int(number) if abs(number) < LARGEST else None
    return number if math.isfinite(number) else None


def _several(value: Any, kind: Any) -> tuple[Any, ...] | None:
    """The values of a list, or of a flag's text with commas between them."""
    values = value.split(",") if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values:
        return None
    item = typing.get_args(kind)[0]
    if item is str:
        return tuple(map(str, values)) if all(isinstance(one, str | int | Path) for one in values) else None
    numbers = tuple(_number(one, item) for one in values)
    return None if None in numbers else numbers


def _mismatch(entry: Entry, options: tuple[Any, ...], value: Any) -> str:
    shown = shortened(value)
    if len(options) == 1 and entry.choices:
        hint = did_you_mean(str(value), entry.choices)
        return f"{entry.name}={shown} must be one of {', '.join(entry.choices)}{hint}"
    return f"{entry.name}={shown} must be {' or '.join(describe_type(option) for option in options)}"


def written(value: Any) -> str:
    """A value as a flag has it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def shortened(value: Any) -> str:
    """A value in a message, however long it is."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text):,} characters)"


def options_of(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)


def describe_type(kind: Any) -> str:
    """A type in the words of a message."""
    if typing.get_origin(kind) is tuple:
        return f"a list of {'texts' if typing.get_args(kind)[0] is str else 'whole numbers'}"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "none"}
    return words.get(kind) or " | ".join(typing.get_args(kind))
