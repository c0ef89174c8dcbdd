"""One function a command, which reads as the whole story of that command; its parameters are the command's flags.

Nothing here prints or exits: results are returned (text as an iterator of lines), talk goes to the `report`. Rooms
that need torch or numpy are imported inside the functions, so that `transduce --help` does not wait for them.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from transduce.errors import SettingsError
from transduce.report import Report
from transduce.settings.entries import Entry, entries
from transduce.settings.sections import Overrides

Hidden = Annotated[Report, Parameter(parse=False)]  # handed in by cli.py, not a flag
Flags = Annotated[Overrides | None, Parameter(parse=False)]  # --section.key flags, which cli.py takes out beforehand
SearchFlags = Annotated[Flags, "search"]  # of them, those of one section: what a trained model takes
Output = Annotated[Path | None, Parameter(alias="-o")]


def note_unfinished(model: Path, report: Report) -> None:
    """Tell how far a run is whose training has not ended: what it knows is not final."""
    from transduce.files import metrics
    from transduce.files.run_folder import RunFolder, step_of

    run = RunFolder(model)
    records = metrics.read(run.metrics) if run.metrics.exists() else []
    if run.has_started and not any(record["kind"] == "finished" for record in records):
        step = step_of(run.checkpoints()[-1])
        report.say(f"{model} is not trained to its end (step {step:,}): what it knows is not final")


def settings_of(command: Callable[..., Any] | None) -> list[Entry]:
    """The settings that a command takes as flags."""
    kind = None if command is None else typing.get_type_hints(command, include_extras=True).get("settings")
    begin = "" if kind == Flags else "search." if kind == SearchFlags else None
    return [] if begin is None else [entry for entry in entries() if entry.name.startswith(begin)]


def search_settings(flags: Overrides | None, **short: object) -> dict[str, Any]:
    """The --search.key flags of a command that uses a model, its short forms (--beam) among them."""
    for section, keys in (flags or {}).items():
        if section != "search":
            name = f"{section}.{next(iter(keys))}"
            raise SettingsError(
                f"--{name} is a setting of training; a trained model takes --search.key flags and those of --help"
            )
    given = {key: value for key, value in short.items() if value is not None}
    return {**(flags or {}).get("search", {}), **given}
