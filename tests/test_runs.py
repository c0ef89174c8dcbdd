"""Runs seen from their folders."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from transduce import cli
from transduce.commands.watch import watch
from transduce.errors import DataError, SettingsError
from transduce.inspect import runs
from transduce.report import Report


def under_way(folder: Path, steps: int = 40, limit: int = 100) -> Path:
    """The folder of a run that has come so far."""
    folder.mkdir(parents=True)
    lines = []
    for step in range(10, steps + 1, 10):
        lines.append({"kind": "train", "step": step, "seconds": step * 0.6, "loss": 5 - step / 20, "rate": 1e-3})
        lines[-1] |= {"gradient": 0.5, "tokens_per_second": 1234, "memory": 2_000_000_000, "empty": 0.043, "skipped": 2}
    lines.append({"kind": "valid", "step": steps, "seconds": steps * 0.6, "loss": 1.5, "bleu": 42.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.yaml").write_text(f"training:\n  steps: {limit}\n")
    return folder


def test_a_run_under_way(tmp_path: Path) -> None:
    run = runs.read_run(under_way(tmp_path / "one"))
    assert run.limits is not None
    assert (run.state, run.step, run.limits.steps, run.best) == ("running", 40, 100, 42.0)
    assert run.seconds_left == pytest.approx(60 * 0.6)
    shown = "\n".join(runs.details(run))
    assert "40.0%  step 40 of 100, 0.4 minutes, about 0.6 minutes left" in shown
    assert ", until " in shown
    assert "1,234 tokens/s, gradient 0.50, rate 1.0e-03, memory 2.00 GB, 4.3% of slots empty" in shown
    assert "2 batches were skipped" in shown
    long_ago = time.time() - 3600
    os.utime(tmp_path / "one" / "metrics.jsonl", (long_ago, long_ago))
    assert runs.read_run(tmp_path / "one").state == "stopped"


def test_a_finished_run_and_the_table(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runs.read_run(model_folder).state == "finished"
    (tmp_path / "runs" / "deep").mkdir(parents=True)
    (tmp_path / "runs" / "trained").symlink_to(model_folder)
    under_way(tmp_path / "runs" / "deep" / "one")
    (tmp_path / "runs" / "trained2").mkdir()
    for name in ("metrics.jsonl", "config.yaml"):
        (tmp_path / "runs" / "trained2" / name).write_bytes((model_folder / name).read_bytes())
    assert cli.main(["runs", str(tmp_path / "runs"), "-o", str(tmp_path / "curves.png")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:3] == ["run", "state", "step"]
    assert [line.split()[0] for line in out[1:]][:1] == ["deep/one"]
    assert (tmp_path / "curves.png").stat().st_size > 5000


def test_other_limits_and_a_run_that_begins(tmp_path: Path) -> None:
    folder = under_way(tmp_path / "one")
    (folder / "config.yaml").write_text("training:\n  steps: null\n  minutes: 1\n")
    assert "40.0%  step 40, 0.4 minutes, about 0.6 minutes left" in "\n".join(runs.details(runs.read_run(folder)))
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "averaged", "step": 40, "seconds": 24, "loss": 1.4, "bleu": 43.5}\n')
        stream.write('{"kind": "finished", "step": 40, "seconds": 24, "reason": "all", "chosen": "averaged"}\n')
    run = runs.read_run(folder)
    assert (run.state, run.best) == ("finished", 43.5)
    assert "average of the last: bleu 43.5, loss 1.400" in "\n".join(runs.details(run))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "config.yaml").write_text("training:\n  steps: 5\n")
    assert runs.read_run(tmp_path / "two").state == "preparing"
    assert list(runs.details(runs.read_run(tmp_path / "two"))) == [f"{tmp_path / 'two'}  preparing"]


def test_a_slow_run_is_not_taken_for_a_stopped_one(tmp_path: Path) -> None:
    folder = under_way(tmp_path / "one")
    lines = (folder / "metrics.jsonl").read_text().replace('"seconds": 24.0', '"seconds": 400.0')
    (folder / "metrics.jsonl").write_text(lines)
    a_while_ago = time.time() - 600
    os.utime(folder / "metrics.jsonl", (a_while_ago, a_while_ago))
    assert runs.read_run(folder).state == "running"


def test_watching_ends_with_the_run(tmp_path: Path) -> None:
    folder = under_way(tmp_path / "one")
    frames: list[list[str]] = []

    class Screen(Report):
        @contextmanager
        def screen(self) -> Iterator:
            yield show

    def show(lines: list[str]) -> None:
        frames.append(lines)
        long_ago = time.time() - 3600
        os.utime(folder / "metrics.jsonl", (long_ago, long_ago))  # it stops while we look

    last = list(watch([folder, folder], every=0.01, report=Screen()))
    assert len(frames) == 1
    assert "running" in frames[0][0]
    assert "stopped" in last[0]
    assert sum(line.startswith(str(folder)) for line in last) == 2
    assert list(watch([folder], once=True)) == last[: len(list(watch([folder])))]


def test_sparklines() -> None:
    assert runs.sparkline([0, 1, 2, 7]) == "▁▂▃█"
    assert runs.sparkline([3, 3]) == "▁▁"
    assert runs.sparkline([]) == ""
    assert len(runs.sparkline(list(range(1000)), width=40)) <= 40


def test_complaints(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no metrics.jsonl: it is not the folder of a run"):
        runs.read_run(tmp_path)
    with pytest.raises(DataError, match=r"holds no run: no metrics.jsonl in it or below it"):
        runs.find(tmp_path)
    with pytest.raises(DataError, match=r"there is no folder"):
        runs.find(tmp_path / "nowhere")
    with pytest.raises(SettingsError, match=r"--every 0 must be above 0 seconds"):
        list(watch([tmp_path], every=0))
    with pytest.raises(SettingsError, match=r"name at least one run folder to watch"):
        list(watch([]))
