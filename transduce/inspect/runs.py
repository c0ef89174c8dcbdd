"""Runs side by side, from their folders alone: so also of a run on another machine whose folder can be seen here."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce import config
from transduce.config import TrainingSettings
from transduce.errors import DataError, UserError
from transduce.inspect.plots import COLOURS, figure, save
from transduce.training.metrics import read

BARS = "▁▂▃▄▅▆▇█"
QUIET = 120.0  # seconds without a line after which a run may count as stopped
PREPARING = 600.0  # seconds without a change of the folder, before the first line


@dataclass(frozen=True)
class Run:
    """How a run stands."""

    folder: Path
    train: list[dict[str, Any]]  # records of metrics.jsonl
    valid: list[dict[str, Any]]
    averaged: list[dict[str, Any]]
    measure: str  # bleu or accuracy
    limits: TrainingSettings | None
    state: str  # preparing, running, finished or stopped

    @property
    def step(self) -> int:
        return max((record["step"] for record in [*self.train, *self.valid]), default=0)

    @property
    def seconds(self) -> float:
        return max((record["seconds"] for record in [*self.train, *self.valid]), default=0.0)

    @property
    def best(self) -> float | None:
        scores = (record.get(self.measure) for record in [*self.valid, *self.averaged])
        return max((score for score in scores if score is not None), default=None)

    @property
    def is_under_way(self) -> bool:
        return self.state in ("preparing", "running")

    def share_done(self, record: dict[str, Any]) -> float:
        """At that line, of the limit that is nearest."""
        t = self.limits
        if t is None:
            return 0.0
        begins = {r["epoch"]: r["step"] for r in reversed(self.train) if r.get("epoch")}  # the first line of each epoch
        steps_an_epoch = begins[max(begins)] / max(begins) if begins else 0
        shares = [
            record["step"] / t.steps if t.steps else 0.0,
            record["step"] / steps_an_epoch / t.epochs if t.epochs and steps_an_epoch else 0.0,
            record["seconds"] / (60 * t.minutes) if t.minutes else 0.0,
        ]
        return min(1.0, max(shares))

    @property
    def left(self) -> float | None:
        """Seconds until its limit, by the pace of its last stretch."""
        if self.state != "running" or len(self.train) < 2:
            return None
        first, last = self.train[max(0, len(self.train) - 20)], self.train[-1]
        done, now = self.share_done(last) - self.share_done(first), self.share_done(last)
        return (last["seconds"] - first["seconds"]) * (1 - now) / done if done > 0 else None

    def last(self, key: str) -> float | None:
        """The newest number of that name."""
        return next((r[key] for r in reversed(self.train) if r.get(key) is not None), None)


def look(folder: Path) -> Run:
    """A run as its folder shows it now."""
    path = folder / "metrics.jsonl"
    if not path.exists() and not (folder / "config.yaml").exists():
        raise DataError(f"{folder} has no metrics.jsonl: it is not the folder of a run, or nothing was trained yet")
    records = read(path) if path.exists() else []
    try:
        limits = config.compose(config.read(folder / "config.yaml")).training
    except UserError:
        limits = None  # of another version, or not written yet
    train = [record for record in records if record["kind"] == "train"]
    valid = [record for record in records if record["kind"] == "valid"]
    averaged = [record for record in records if record["kind"].startswith("averaged")]
    measure = "accuracy" if any("accuracy" in record for record in valid) else "bleu"
    return Run(folder, train, valid, averaged, measure, limits, _state(folder, records))


def _state(folder: Path, records: list[dict[str, Any]]) -> str:
    """By its last words, and by how long ago they were said: runs speak at their own pace."""
    if any(record["kind"] == "finished" for record in records):
        return "finished"
    if not records:
        newest = max(path.stat().st_mtime for path in (folder, folder / "data") if path.exists())
        return "preparing" if time.time() - newest < PREPARING else "stopped"
    times = [record["seconds"] for record in records[-20:]]
    pause = max((b - a for a, b in itertools.pairwise(times)), default=0.0)
    silent = time.time() - (folder / "metrics.jsonl").stat().st_mtime
    return "running" if silent < max(QUIET, 3 * pause) else "stopped"


def find(folder: Path) -> list[Run]:
    """Every run in a folder, at any depth, by name."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    found = [look(path.parent) for path in sorted(folder.rglob("metrics.jsonl"))]
    if not found:
        raise DataError(f"{folder} holds no run: no metrics.jsonl in it or below it")
    return found


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
            f"{run.step:,}",
            f"{run.limits.steps:,}" if run.limits and run.limits.steps else "-",
            _number(run.last("loss"), 3),
            _number(valid, 3),
            f"{_number(run.best, 1)}{'' if run.measure == 'bleu' else ' %'}",
            _number(run.last("tokens_per_second"), 0),
            f"{run.seconds / 60:.1f}",
        )
        yield f"{name:{width}}" + "".join(f"{cell:>12}" for cell in cells)


def details(run: Run) -> Iterator[str]:
    """What a person wants to see of a run that is under way."""
    share = run.share_done({"step": run.step, "seconds": run.seconds})
    bar = "█" * int(30 * share) + "░" * (30 - int(30 * share))
    left = ""
    if run.left is not None:
        end = time.strftime("%a %H:%M", time.localtime(time.time() + run.left))
        left = f", about {run.left / 60:.1f} minutes left, until {end}"
    yield f"{run.folder}  {run.state}"
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
        told = "the best" if record["kind"] == "averaged_best" else "the last"
        yield f"  average of {told}: {run.measure} {_number(record.get(run.measure), 1)}, loss {record['loss']:.3f}"
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


def overlay(runs: Sequence[Run], output: Path) -> Path:
    """Their curves in one picture: validation loss and score against steps."""
    made = figure(11, 4.5, f"{len(runs)} runs")
    left, right = made.subplots(1, 2)
    for i, run in enumerate(runs):
        colour, style = COLOURS[i % len(COLOURS)], ("o-", "s--", "^:", "D-.")[i // len(COLOURS) % 4]
        steps = [record["step"] for record in run.valid]
        left.plot(steps, [record["loss"] for record in run.valid], style, color=colour, label=run.folder.name)
        scored = [record for record in run.valid if record.get(run.measure) is not None]
        right.plot([r["step"] for r in scored], [r[run.measure] for r in scored], style, color=colour)
    left.set(xlabel="step", ylabel="validation loss (nats a token)")
    names = {"accuracy (%)" if run.measure == "accuracy" else "BLEU" for run in runs}
    right.set(xlabel="step", ylabel=" or ".join(sorted(names)), ylim=(0, None))
    for axis in (left, right):
        axis.grid(alpha=0.3)
    if any(run.valid for run in runs):
        made.legend(loc="outside right upper", frameon=False)
    return save(made, output)
