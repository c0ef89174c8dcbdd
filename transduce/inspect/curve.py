"""The learning curve that a run leaves behind, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import UserError
from transduce.files.run_folder import RunFolder
from transduce.inspect.plots import can_draw, learning_curve
from transduce.report import Report
from transduce.training.distributed import AnotherDied


@contextmanager
def curve_at_the_end(run: Path, report: Report) -> Iterator[None]:
    """Within, a run is trained; afterwards its curve is drawn, unless torchrun is about to end this process, or the run
    was refused before anything was measured."""
    metrics = RunFolder(run).metrics
    before = metrics.stat().st_size if metrics.exists() else 0
    try:
        yield
    except AnotherDied:
        raise
    except BaseException:
        if metrics.exists() and metrics.stat().st_size > before:
            _draw(run, report)
        raise
    _draw(run, report)


def _draw(run: Path, report: Report) -> None:
    folder = RunFolder(run)
    if os.environ.get("RANK", "0") != "0" or not folder.metrics.exists():
        return
    if not can_draw():
        report.say("no learning curve: pictures need matplotlib, pip install 'transduce[plots]'")
        return
    try:
        report.say(f"learning curve: {learning_curve(run, folder.curve)}")
    except UserError as error:
        report.warn(str(error))  # a picture is not worth a run
