"""Settings from a preset, a YAML file and flags, in rising strength. An unknown key, a wrong type and an impossible
combination are refused before any work starts."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from transduce.errors import SettingsError, did_you_mean
from transduce.settings.checks import check
from transduce.settings.entries import convert, entries, flat, shortened
from transduce.settings.sections import Overrides, Settings


def compose(*layers: Overrides, base: Settings | None = None) -> Settings:
    """Settings from layers of `{section: {key: value}}`, later layers stronger, checked as a whole."""
    known = {entry.name: entry for entry in entries()}
    values = {name: entry.default for name, entry in known.items()} if base is None else flat(base)
    for layer in layers:
        for name, value in _names(layer):
            if name not in known:
                raise SettingsError(f"unknown setting {shortened(name)}{did_you_mean(name[:100], known)}")
            values[name] = convert(known[name], value)
    sections: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    hints = typing.get_type_hints(Settings)
    settings = Settings(**{section: hints[section](**keys) for section, keys in sections.items()})
    check(settings)
    return settings


def by_the_clock(*given: Overrides) -> Overrides:
    """What a time asks for, where no schedule is given: one that ends with it, whatever the step is then."""
    wanted = {name for layer in given for name, _ in _names(layer)}
    if "training.minutes" not in wanted or "optimizer.schedule" in wanted:
        return {}
    return {"optimizer": {"schedule": "wsd"}, "training": {"steps": None}}


def _names(layer: Overrides) -> Iterator[tuple[str, Any]]:
    sections = [f.name for f in dataclasses.fields(Settings)]
    for section, keys in layer.items():
        if isinstance(keys, Mapping):
            yield from ((f"{section}.{key}", value) for key, value in keys.items())
        elif section in sections and keys in (None, ""):
            continue  # a section of a file with nothing in it
        elif section in sections:
            raise SettingsError(
                f"{section} is a section: write {section}.key with one of its keys, not {section}={shortened(keys)}"
            )
        else:
            yield str(section), keys
