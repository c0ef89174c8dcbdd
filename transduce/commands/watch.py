"""transduce runs and watch: how runs stand, from their folders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from transduce.commands import Hidden, Output
from transduce.errors import SettingsError
from transduce.files.output import check_output
from transduce.report import SILENT


def runs(
    folder: Path = Path("runs"), *, output: Output = None, force: bool = False, report: Hidden = SILENT
) -> Iterator[str]:
    """Compare the runs in a folder: a table, and on request their curves in one picture.

    Example: transduce runs runs -o curves.png

    Parameters
    ----------
    folder
        Folder with runs, at any depth.
    output
        PNG, SVG or PDF file for the curves.
    force
        Replace the output if it is there already.
    """
    from transduce.inspect import runs as view

    check_output(output, force=force)
    there = view.find(folder)
    yield from view.table(there, folder)
    if output is not None:
        from transduce.inspect.plots import curves_of

        report.say(f"wrote {curves_of(there, output)}")


def watch(run: list[Path], *, every: float = 2.0, once: bool = False, report: Hidden = SILENT) -> Iterator[str]:
    """Show one or several runs live: progress, losses, scores, speed, time left. Ctrl-C ends it, not the runs.

    Example: transduce watch runs/mine

    It reads the folder only, so that a run on another machine can be watched too. Whether a run is alive is told by its
    lock; on another machine by how long it has been silent. Where output is no terminal, or with --once, it shows how
    things stand and ends; else it ends when no run is running.

    Parameters
    ----------
    run
        Run folders.
    every
        Seconds between looks.
    once
        Look once and end.
    """
    from transduce.inspect import runs as view

    if every <= 0:
        raise SettingsError(f"--every {every:g} must be above 0 seconds")
    if not run:
        raise SettingsError("name at least one run folder to watch")
    with report.screen() as screen:
        while True:
            watched = [view.read_run(folder) for folder in run]
            lines = [line for one in watched for line in (*view.details(one), "")][:-1]
            if screen is None or once or not any(one.is_under_way for one in watched):
                break
            screen(lines)
            time.sleep(every)
    yield from lines
