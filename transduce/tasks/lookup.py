"""transduce presets, settings and corpus: what there is to begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from transduce import config
from transduce.errors import DataError
from transduce.models.presets import PRESETS, find
from transduce.report import SILENT
from transduce.tasks import Hidden


def presets(name: str | None = None) -> Iterator[str]:
    """List the presets, or show every setting of one.

    Example: transduce presets small

    Parameters
    ----------
    name
        Preset to show in full; the settings it changes are marked with *.
    """
    if name is None:
        yield from (f"{key:17}{preset.summary}" for key, preset in PRESETS.items())
        return
    preset = find(name)
    yield preset.summary
    yield from preset.remarks
    yield "* differs from the paper's base model, the defaults of: transduce settings"
    defaults, values = config.flat(config.compose()), config.flat(config.compose(preset.settings))
    for key, value in values.items():
        yield f"{' ' if value == defaults[key] else '*'} {key:30}{_shown(value)}"


def settings() -> Iterator[str]:
    """List every setting with its default and what it means.

    Example: transduce settings | grep dropout
    """
    for entry in config.entries():
        choices = f" ({', '.join(entry.choices)})" if entry.choices else ""
        yield f"--{entry.name:30}{_shown(entry.default):12}{entry.help}{choices}"
    yield "Defaults hold before a preset; without one, train uses tiny for the bundled corpus and small for other text."


def _shown(value: object) -> str:
    """As it is written on the command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def corpus(folder: Path, *, train: int = 40_000, seed: int = 1, report: Hidden = SILENT) -> None:
    """Write the bundled German-English corpus as text files.

    Example: transduce corpus data/bundled

    Parameters
    ----------
    folder
        Where train.de, train.en, dev.de, dev.en, test.de and test.en go.
    train
        Training pairs; dev and test stay the same.
    seed
        Another seed makes another corpus.
    """
    from transduce.text.bundled import bundled

    made = bundled(train=train, seed=seed)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, pairs in (("train", made.train), ("dev", made.dev), ("test", made.test)):
            (folder / f"{name}.de").write_text("".join(f"{pair.source}\n" for pair in pairs), encoding="utf-8")
            (folder / f"{name}.en").write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write the corpus to {folder}: {error.strerror}") from error
    counts = f"{len(made.train):,} training, {len(made.dev):,} dev and {len(made.test):,} test pairs"
    report.say(f"wrote {counts} to {folder}")
