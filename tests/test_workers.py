"""Several processes that translate together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transduce.commands import workers
from transduce.commands.workers import Workers
from transduce.errors import SettingsError
from transduce.model import Model


@pytest.fixture
def lines() -> list[str]:
    return ["ich möchte ein bier", "", "wo ist der bahnhof ?", "das haus ist alt", "guten tag"] * 5


def test_they_give_what_one_gives_in_order(model_folder: Path, lines: list[str]) -> None:
    crew = Workers(2, model_folder, "cpu", beam=2)
    try:
        together = list(crew.stream(iter(lines), chunk=3))
        again = list(crew.stream(iter(lines), chunk=7, prefixes=["the"] * len(lines)))
    finally:
        crew.close()
    alone = Model.load(model_folder, "cpu", beam=2)
    assert [(t.text, t.status) for t in together] == [(t.text, t.status) for t in alone.stream(lines)]
    begun = alone.stream(lines, prefixes=["the"] * len(lines))
    assert [t.text for t in again] == [t.text for t in begun]


def test_the_end_of_one_is_told(model_folder: Path, lines: list[str]) -> None:
    crew = Workers(1, model_folder, "cpu")
    found = crew.stream(iter(lines), chunk=2)
    next(found)
    for process in crew._pool._processes.values():
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(SettingsError, match="fewer --workers"):
        list(found)


@pytest.mark.parametrize("count", [1, 2])
def test_a_terminated_command_keeps_what_it_has(
    model_folder: Path, tmp_path: Path, lines: list[str], count: int
) -> None:
    """With workers as without: a sentence, whole lines, and no process that lives on."""
    (tmp_path / "in").write_text("\n".join(lines * 4000))
    words = ["translate", model_folder, "in", "-o", "out", "--beam", "1", "--workers", str(count), "--device", "cpu"]
    command = [sys.executable, "-m", "transduce", *map(str, words)]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not any(part.stat().st_size for part in tmp_path.glob("*.part")):
        time.sleep(0.05)
        assert process.poll() is None
    process.terminate()
    _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    told = [line for line in told.splitlines() if not line.startswith("translate: lines")]  # how far it is
    assert told == [
        "transduce: interrupted; the same command with --resume goes on behind the last whole block of lines, if one "
        "was done"
    ]
    with pytest.raises(ProcessLookupError):  # nobody is left, a moment later
        while True:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
    (part,) = tmp_path.glob("*.part")
    assert part.read_text().endswith("\n")


def test_why_a_worker_cannot_begin_is_told(tmp_path: Path, lines: list[str]) -> None:
    crew = Workers(1, tmp_path / "nothing", "cpu")
    try:
        with pytest.raises(SettingsError, match="nothing"):
            list(crew.stream(iter(lines)))
    finally:
        crew.close()


@pytest.mark.parametrize("number", [0, -1, 65])
def test_a_wrong_number_is_refused(number: int) -> None:
    with pytest.raises(SettingsError, match="must be between 1 and 64"):
        workers.check_workers(number)
