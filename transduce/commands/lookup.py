"""transduce presets, settings and corpus: what there is to begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from transduce.commands import Hidden
from transduce.errors import DataError
from transduce.report import SILENT
from transduce.settings.compose import compose
from transduce.settings.entries import entries, flat, written
from transduce.settings.presets import PRESETS, find


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
    defaults, values = flat(compose()), flat(compose(preset.settings))
    for key, value in values.items():
        yield f"{' ' if value == defaults[key] else '*'} {key:30}{written(value)}"


def settings() -> Iterator[str]:
    """List every setting with its default and what it means.

    Example: transduce settings | grep dropout
    """
    for entry in entries():
        choices = f" ({', '.join(entry.choices)})" if entry.choices else ""
        yield f"--{entry.name:30}{written(entry.default):12}{entry.help}{choices}"
    yield "Defaults hold before a preset; without one, train uses tiny for the bundled corpus and auto for other text."


def corpus(
    folder: Path,
    *,
    train: int | None = None,
    seed: int | None = None,
    style: Literal["plain", "headlines"] = "plain",
    force: bool = False,
    report: Hidden = SILENT,
) -> None:
    """Write the bundled German-English corpus as text files.

    Example: transduce corpus data/bundled

    Parameters
    ----------
    folder
        Where train.de, train.en, dev.de, dev.en, test.de and test.en go.
    train
        Training pairs, 40,000 if not given, 300 headlines; dev and test stay the same.
    seed
        Another seed makes another corpus.
    style
        headlines: English without articles, a small second kind of text to carry a model over to.
    force
        Replace files of these names that are there already.
    """
    from transduce.bundled.corpus import bundled, headlines
    from transduce.files.atomic import write_files

    given = {key: value for key, value in (("train", train), ("seed", seed)) if value is not None}
    made = (headlines if style == "headlines" else bundled)(**given)
    files = {}
    for name, sentences in (("train", made.train), ("dev", made.dev), ("test", made.test)):
        files[folder / f"{name}.de"] = "".join(f"{sentence.source}\n" for sentence in sentences).encode()
        files[folder / f"{name}.en"] = "".join(f"{sentence.target}\n" for sentence in sentences).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write the corpus to {folder}: {error.strerror}") from error
    others = [path.name for path, text in files.items() if path.exists() and not _holds(path, text)]
    if others and not force:
        raise DataError(
            f"{folder} has other files named {', '.join(others)}; choose another folder, or replace them with --force"
        )
    write_files(files)
    counts = f"{len(made.train):,} training, {len(made.dev):,} dev and {len(made.test):,} test pairs"
    report.say(f"wrote {counts} to {folder}")


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file has this very content."""
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
