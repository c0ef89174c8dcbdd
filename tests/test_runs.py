"""Runs seen from their folders."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from transduce import cli
from transduce.commands.watch import watch
from transduce.errors import DataError, SettingsError
from transduce.files import lock
from transduce.files.lock import is_locked, locked
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
    assert "100.0%" in "\n".join(runs.details(runs.read_run(model_folder)))
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


def test_of_a_finished_run_the_score_is_that_of_its_model(tmp_path: Path) -> None:
    """A lucky validation before the decay may have been higher."""
    folder = under_way(tmp_path / "one")
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write(
            json.dumps({"kind": "finished", "step": 40, "seconds": 30.0, "chosen": "best", "bleu": 41.0}) + "\n"
        )
    assert runs.read_run(folder).best == 41.0


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


def test_a_lock_tells_whether_a_run_is_alive(tmp_path: Path) -> None:
    folder = under_way(tmp_path / "one")
    (folder / "training").mkdir()
    long_ago = time.time() - 3600
    assert is_locked(folder) is None  # nobody has left the name of a machine
    with locked(folder):
        os.utime(folder / "metrics.jsonl", (long_ago, long_ago))
        assert is_locked(folder) is True
        assert runs.read_run(folder).state == "running"  # however silent it is
        assert runs.find(tmp_path)[0].state == "running"
    os.utime(folder / "metrics.jsonl")
    assert is_locked(folder) is False
    assert runs.read_run(folder).state == "stopped"  # however lately it spoke
    assert next(runs.details(runs.read_run(folder))) == f"{folder}  stopped at step 40"
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "finished", "step": 40, "seconds": 24, "reason": "all", "chosen": "last"}\n')
    assert runs.read_run(folder).state == "finished"
    with locked(folder):
        assert runs.read_run(folder).state == "running"  # more steps were asked for
    (tmp_path / "new" / "training").mkdir(parents=True)
    (tmp_path / "new" / "config.yaml").write_text("training:\n  steps: 5\n")
    with locked(tmp_path / "new"):
        assert runs.read_run(tmp_path / "new").state == "preparing"
    assert runs.read_run(tmp_path / "new").state == "stopped"


def test_another_machine_and_one_without_locks_go_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = under_way(tmp_path / "one")
    (folder / "training").mkdir()
    with locked(folder):
        pass
    (folder / "training" / "machine").write_text("another\n")
    assert is_locked(folder) is None
    assert runs.read_run(folder).state == "running"
    assert is_locked(tmp_path / "nowhere") is None
    with locked(folder):
        monkeypatch.setattr(lock, "BOOT", tmp_path / "no proc")
        assert is_locked(folder) is True
    with locked(folder):
        pass
    assert (folder / "training" / "machine").read_text().strip() == platform.node()
    assert is_locked(folder) is False

    def no_locks(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    with locked(folder):
        assert is_locked(folder) is None
    monkeypatch.setattr(lock, "fcntl", None)
    with locked(folder):
        assert is_locked(folder) is None


def test_looking_never_keeps_a_training_from_its_start(tmp_path: Path) -> None:
    """Somebody holds the lock of looking for a moment; and many look without a pause."""
    folder = under_way(tmp_path / "one")
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    threading.Timer(2 * lock.PAUSE, os.close, [descriptor]).start()
    with locked(folder):
        assert is_locked(folder) is True
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            is_locked(folder)

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(20):
            with locked(folder):
                pass
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    (tmp_path / "run" / "training").symlink_to(tmp_path / "elsewhere")
    with locked(tmp_path / "run"):
        pass
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_run_that_fails_before_it_begins_leaves_no_folder(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_a_lock_is_on_the_folder_that_is_there(tmp_path: Path) -> None:
    """One fails and removes its empty folder while another waits for it."""
    folder, is_held, may_go = tmp_path / "run", threading.Event(), threading.Event()

    def second() -> None:
        with locked(folder):
            is_held.set()
            may_go.wait(10)

    waiting = threading.Thread(target=second)
    with locked(folder):
        waiting.start()
        time.sleep(2 * lock.PAUSE)
    assert is_held.wait(10)
    assert is_locked(folder) is True
    may_go.set()
    waiting.join()
    assert not folder.exists()


def test_one_run_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    under_way(tmp_path / "one")
    under_way(tmp_path / "two")
    (tmp_path / "two" / "metrics.jsonl").rename(tmp_path / "elsewhere")
    (tmp_path / "two" / "metrics.jsonl").symlink_to(tmp_path / "elsewhere")
    found = runs.find(tmp_path)
    assert [run.state for run in found] == ["stopped", "unreadable"] or [r.state for r in found][1] == "unreadable"
    assert any("unreadable" in line for line in runs.table(found))


def test_a_run_that_writes_no_numbers_is_shown_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("__label__a one two\n__label__b three four\n" * 50)
    words = ["train", str(tmp_path / "runs" / "fast"), "--task", "classify", "--preset", "fasttext"]
    words += ["--source", str(tmp_path / "a.txt"), "--vectors.dimension", "10", "--vectors.buckets", "100"]
    assert cli.main(words) == 0
    capsys.readouterr()
    assert cli.main(["runs", str(tmp_path / "runs")]) == 0
    assert "finished" in capsys.readouterr().out
    assert cli.main(["watch", str(tmp_path / "runs" / "fast")]) == 0
    assert capsys.readouterr().out.strip().endswith("finished")


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
