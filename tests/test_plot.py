"""Pictures by command: they are drawn, and bad numbers are refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import bundled_pairs

from transduce import cli
from transduce.commands import plot


@pytest.mark.parametrize("name", ["positions", "masks", "schedule", "smoothing", "saturation"])
def test_ideas_are_drawn(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plot", name]) == 0
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    assert cli.main(["plot", name, "-o", "x.SVG"]) == 0
    assert "<svg" in (tmp_path / "x.SVG").read_text()


def test_lengths_of_several_models(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Models of one name are told apart, and more than there are colours are all drawn."""
    folders = []
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "model").symlink_to(model_folder)
        folders.append(str(tmp_path / str(i) / "model"))
    pairs = bundled_pairs(24, seed=5)
    for end, side in (("de", 0), ("en", 1)):
        (tmp_path / f"t.{end}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    words = ["--source", str(tmp_path / "t.de"), "--reference", str(tmp_path / "t.en"), "-o", str(tmp_path / "l.png")]
    assert cli.main(["plot", "lengths", *folders, *words]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out] == ["words", *folders]
    assert (tmp_path / "l.png").stat().st_size > 5000


def test_groups_of_lengths_do_not_overlap() -> None:
    pairs = [(" ".join("w" * n), "") for n in (1, 2, 2, 3, 3, 3, 4, 9, 9, 12, 12, 15) for _ in range(3)]
    unit, groups = plot._by_length(pairs)
    assert unit == "words"
    assert sum(map(len, groups.values())) == len(pairs)
    ends = list(groups)
    assert all(one[1] < two[0] for one, two in zip(ends, ends[1:], strict=False))
    unit, groups = plot._by_length([("我想喝啤酒" * n, "") for n in range(1, 9)])
    assert unit == "characters"


def test_complaints(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, empty = str(model_folder), tmp_path / "empty"
    empty.write_text("")
    for words, message in (
        (["positions", "--length", "3"], "length=3 must be between 4 and 2000"),
        (["positions", "--length", "100000"], "length=100000 must be between 4 and 2000"),
        (["positions", "--d-model", "7"], "d_model=7 must be an even number between 2 and 4096"),
        (["schedule", "--steps", "1"], "steps=1 must be at least 2"),
        (["schedule", "--warmup", "0"], "warmup=0 must be at least 1"),
        (["smoothing", "--epsilon", "1"], "epsilon=1.0 must be at least 0 and below 1"),
        (["masks", "-o", "x.pgf"], "cannot draw x.pgf: end its name in .png, .svg or .pdf"),
        (["masks", "-o", "x"], "cannot draw x: end its name in .png, .svg or .pdf"),
        (["lengths"], "MODELS is missing (model folders); see: transduce plot lengths --help"),
        (["lengths", model, "--reference", "x"], "--reference is given without --source"),
        (["lengths", model, "--source", str(empty), "--reference", str(empty)], "there is nothing to translate"),
        (["curve", str(tmp_path / "nowhere")], "there is no folder"),
        (["attention", model, "ein bier", "--layer", "9"], "layer 9 is not there"),
    ):
        assert cli.main(["plot", *words]) == 2, words
        assert message in capsys.readouterr().err.replace("\n", " "), words
    (tmp_path / "folder.html").mkdir()
    for output, message in (
        (str(tmp_path / "folder.html"), "it is a folder; name a file"),
        (str(tmp_path / "page.txt"), "end its name in .html"),
    ):
        assert cli.main(["inspect", model, "ein bier", "-o", output]) == 2
        assert message in capsys.readouterr().err.replace("\n", " ")


def test_what_is_no_ordinary_file_stays(tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device or pipe is not replaced; a link is followed."""
    import os

    os.mkfifo(tmp_path / "pipe.html")
    assert cli.main(["inspect", str(model_folder), "ein bier", "-o", str(tmp_path / "pipe.html")]) == 2
    assert "it is not an ordinary file" in capsys.readouterr().err.replace("\n", " ")
    (tmp_path / "real.html").write_text("")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    assert cli.main(["inspect", str(model_folder), "ein bier", "-o", str(tmp_path / "link.html")]) == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").stat().st_size > 1000
