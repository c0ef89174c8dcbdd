"""The example for many machines, with the real Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import transduce
from transduce.bundled.corpus import bundled

EXAMPLE = Path(__file__).parent.parent / "examples" / "many_machines.py"


def test_two_actors_translate_a_file_in_order(model_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    lines = [pair.source for pair in bundled(0, 40, 20).test] + ["", "ich"]
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, str(EXAMPLE), str(model_folder), "source", "target", "--actors", "2", "--chunk", "5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(lines)} lines, 2 actors" in done.stdout
    expected = [found.text for found in transduce.load(model_folder).translate(lines)]
    assert (tmp_path / "target").read_text().splitlines() == expected
    assert not (tmp_path / "target.part").exists()
