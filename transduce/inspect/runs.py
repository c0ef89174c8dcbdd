"""Runs side by side, from their folders alone: so also of a run on another machine whose folder can be seen here."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import DataError, UserError
from transduce.files import metrics
from transduce.files.lock import is_locked
from transduce.files.metrics import Record
from transduce.files.run_folder import MACHINE, METRICS, RunFolder
from transduce.settings import config_file
from transduce.training.limits import Limits

BARS = "▁▂▃▄▅▆▇█"
QUIET = 120.0  # seconds without a line after which a run may count as stopped
PREPARING = 600.0  # seconds without a change of the folder, before the first line


@dataclass(frozen=True)
class Run:
    """How a run stands."""

    folder: Path
    train: list[Record]  # of metrics.jsonl
    valid: list[Record]
    averaged: list[Record]
    measure: str  # bleu or accuracy
    limits: Limits | None
    state: str  # preparing, running, finished or stopped
    score: float | None = None  # of the weights that became the model, where it is finished

    @property
    def step(self) -> int:
        return max((record["step"] for record in [*self.train, *self.valid]), default=0)

    @property
    def seconds(self) -> float:
        return max((record["seconds"] for record in [*self.train, *self.valid]), default=0.0)

    @property
    def best(self) -> float | None:
        """The score of the model; of a run that is under way, the highest so far, which need not be that of the best
        weights."""
        if self.score is not None:
            return self.score
        scores = (record.get(self.measure) for record in [*self.valid, *self.averaged])
        return max((score for score in scores if score is not None), default=None)

    @property
    def is_under_way(self) -> bool:
        return self.state in ("preparing", "running")

    def share_done(self, record: Record) -> float:
        """At that line, of the limit that is nearest."""
        if self.limits is None:
            return 0.0
        begins = {r["epoch"]: r["step"] for r in reversed(self.train) if r.get("epoch")}  # the first line of each epoch
        steps_an_epoch = begins[max(begins)] / max(begins) if begins else 0
        epochs = record["step"] / steps_an_epoch if steps_an_epoch else 0.0
        return self.limits.share_done(record["step"], epochs, record["seconds"])

    @property
    def seconds_left(self) -> float | None:
        """Seconds until its limit, by the pace of its last stretch."""
        if self.state != "running" or len(self.train) < 2:
            return None
        first, last = self.train[max(0, len(self.train) - 20)], self.train[-1]
        done, now = self.share_done(last) - self.share_done(first), self.share_done(last)
        return (last["seconds"] - first["seconds"]) * (1 - now) / done if done > 0 else None

    def last(self, key: str) -> float | None:
        """The newest number of that name."""
        return next((r[key] for r in reversed(self.train) if r.get(key) is not None), None)


def read_run(folder: Path) -> Run:
    """A run as its folder shows it now."""
    run = RunFolder(folder)
    if not run.metrics.exists() and not run.config.exists():
        raise DataError(f"{folder} has no metrics.jsonl: it is not the folder of a run, or nothing was trained yet")
    records = metrics.read(run.metrics) if run.metrics.exists() else []
    try:
        limits = Limits.of(config_file.read_whole(run.config).training)
    except UserError:
        limits = None  # of another version, or not written yet
    train = [record for record in records if record["kind"] == "train"]
    valid = [record for record in records if record["kind"] == "valid"]
    averaged = [record for record in records if record["kind"].startswith("averaged")]
    measure, state = metrics.measure_of(valid), _state(run, records)
    ends = [record.get(measure) for record in records if record["kind"] == "finished"] if state == "finished" else []
    return Run(folder, train, valid, averaged, measure, limits, state, ends[-1] if ends else None)


def _state(run: RunFolder, records: list[Record]) -> str:
    """By its lock. Where that cannot tell, by how long ago it spoke last: runs speak at their own pace."""
    is_alive = is_locked(run.path)
    if is_alive:
        return "running" if records else "preparing"
    if any(record["kind"] == "finished" for record in records) or _is_done_unwritten(run, records):
        return "finished"
    if is_alive is False:
        return "stopped"
    if not records:
        newest = max(path.stat().st_mtime for path in (run.path, run.data) if path.exists())
        return "preparing" if time.time() - newest < PREPARING else "stopped"
    times = [record["seconds"] for record in records[-20:]]
    pause = max((b - a for a, b in itertools.pairwise(times)), default=0.0)
    silent = time.time() - run.metrics.stat().st_mtime
    return "running" if silent < max(QUIET, 3 * pause) else "stopped"


def _is_done_unwritten(run: RunFolder, records: list[Record]) -> bool:
    """A fastText run writes no numbers on its way, and removes its checkpoints when it is done."""
    return not records and run.model.exists() and not run.has_started


def find(folder: Path) -> list[Run]:
    """Every run in a folder, at any depth, by name."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    found = {path.parent for path in folder.rglob(METRICS)}
    found |= {path.parent.parent for path in folder.rglob(MACHINE)}  # of fastText, or just begun
    if not found:
        raise DataError(f"{folder} holds no run: no metrics.jsonl in it or below it")
    return [_read_or_name(path) for path in sorted(found)]


def _read_or_name(folder: Path) -> Run:
    """One that cannot be read does not hide the others."""
    try:
        return read_run(folder)
    except (UserError, OSError):
        return Run(folder, [], [], [], "bleu", None, "unreadable", None)


def table(runs: Sequence[Run], root: Path | None = None) -> Iterator[str]:
    """A line for each."""
    names = [str(run.folder.relative_to(root)) if root and run.folder != root else run.folder.name for run in runs]
    width = max(len("run"), *(len(name) for name in names))
    heads = ("state", "step", "of", "loss", "valid loss", "best", "tokens/s", "minutes")
    yield f"{'run':{width}}" + "".join(f"{head:>12}" for head in heads)
    for name, run in zip(names, runs, strict=True):
        valid = min((record["loss"] for record in run.valid), default=None)
        cells = (
            run.state,
            f"{run.step:,}" if run.step else "-",
            f"{run.limits.steps:,}" if run.step and run.limits and run.limits.steps else "-",
            _number(run.last("loss"), 3),
            _number(valid, 3),
            f"{_number(run.best, 1)}{'' if run.measure == 'bleu' else ' %'}",
            _number(run.last("tokens_per_second"), 0),
            f"{run.seconds / 60:.1f}",
        )
        yield f"{name:{width}}" + "".join(f"{cell:>12}" for cell in cells)


def details(run: Run) -> Iterator[str]:
    """What a person wants to see of a run that is under way."""
    share = 1.0 if run.state == "finished" else run.share_done({"step": run.step, "seconds": run.seconds})
    bar = "█" * int(30 * share) + "░" * (30 - int(30 * share))
    left = ""
    if run.seconds_left is not None:
        end = time.strftime("%a %H:%M", time.localtime(time.time() + run.seconds_left))
        left = f", about {run.seconds_left / 60:.1f} minutes left, until {end}"
    yield f"{run.folder}  {run.state}" + (f" at step {run.step:,}" if run.state == "stopped" else "")
    if not run.train and not run.valid:
        return
    limit = f" of {run.limits.steps:,}" if run.limits and run.limits.steps else ""
    yield f"  {bar} {share:6.1%}  step {run.step:,}{limit}, {run.seconds / 60:.1f} minutes{left}"
    yield f"  loss      {_number(run.last('loss'), 3):>9}  {sparkline([r['loss'] for r in run.train])}"
    scores = [r[run.measure] for r in run.valid if r.get(run.measure) is not None]
    if run.valid:
        yield f"  valid     {_number(run.valid[-1]['loss'], 3):>9}  {sparkline([r['loss'] for r in run.valid])}"
    if scores:
        yield f"  {run.measure:9} {_number(scores[-1], 1):>9}  {sparkline(scores)}  best {_number(run.best, 1)}"
    for record in run.averaged:
        which = "the best" if record["kind"] == "averaged_best" else "the last"
        yield f"  average of {which}: {run.measure} {_number(record.get(run.measure), 1)}, loss {record['loss']:.3f}"
    yield (
        f"  {_number(run.last('tokens_per_second'), 0)} tokens/s, gradient {_number(run.last('gradient'), 2)}, "
        f"rate {run.last('rate') or 0:.1e}, memory {_number((run.last('memory') or 0) / 1e9, 2)} GB, "
        f"{run.last('empty') or 0:.1%} of slots empty"
    )
    if skipped := run.last("skipped"):
        yield f"  {skipped:,.0f} batches were skipped: their loss or gradient was no number"


def sparkline(values: Sequence[float], width: int = 48) -> str:
    """The course of some numbers in one line of text."""
    if not values:
        return ""
    size = max(1, -(-len(values) // width))
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, high = min(means), max(means)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in means)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
