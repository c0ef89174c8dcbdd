"""Wrong usage is answered in plain words: docs/usage.md says how, and every line of it is tried here."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path

import cyclopts
import pytest
from conftest import bundled_pairs
from test_cli import refused

import transduce
from transduce import cli, usage
from transduce.arguments import check_text
from transduce.commands import settings_of
from transduce.errors import ArgumentError, UserError
from transduce.report import Report

PAGE = (Path(__file__).parent.parent / "docs" / "usage.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^\| `transduce (.+?)` \| `(.+)` \|$", PAGE, re.MULTILINE)


CALLED = re.findall(r"^\| `((?:transduce\.|model\.|list).+?)` \| `(.+)` \|$", PAGE, re.MULTILINE)


def test_there_are_many() -> None:
    assert len(TYPED) >= 30
    assert len(CALLED) >= 30


@pytest.mark.parametrize(("words", "answer"), TYPED)
def test_what_is_typed_wrong_is_answered_as_the_page_says(
    words: str, answer: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(capfd, *shlex.split(words)) == answer
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("call", "answer"), CALLED)
def test_what_is_called_wrong_is_answered_as_the_page_says(
    call: str, answer: str, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(model_folder)
    names = {"transduce": transduce}
    if call.startswith(("model", "list(model")):
        names["model"] = transduce.load("runs/demo")
    with pytest.raises(UserError) as raised:
        eval(call, names)
    assert f"{raised.type.__name__}: {raised.value}" == answer
    assert isinstance(raised.value, TypeError) == answer.startswith("ArgumentError")
    assert not list((tmp_path / "runs").glob("x/*"))


def test_a_long_value_is_shortened_in_a_message() -> None:
    with pytest.raises(ArgumentError, match=r"text must be str, not \[0, 1, 2, .*\.\.\. \(list\)$"):
        check_text(list(range(1000)), "text")


def test_training_from_files_is_training_from_pairs(tmp_path: Path) -> None:
    """Two ways agree: the same text in two files and in memory gives the same weights."""
    pairs = bundled_pairs(60)
    for end, side in (("de", 0), ("en", 1)):
        (tmp_path / f"a.{end}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    quick = {
        "preset": "tiny",
        "report": Report(),
        "model": {"layers": 1, "d_model": 32, "d_ff": 48, "heads": 2},
        "text": {"vocabulary": 200},
        "training": {"steps": 3, "device": "cpu"},
    }
    one = transduce.train(tmp_path / "one", pairs, **quick)
    two = transduce.train(tmp_path / "two", source=tmp_path / "a.de", target=str(tmp_path / "a.en"), **quick)
    for (name, weight), other in zip(one.model.named_parameters(), two.model.parameters(), strict=True):
        assert weight.equal(other), name
    twice = {"source": [tmp_path / "a.de", str(tmp_path / "a.de")], "target": [tmp_path / "a.en"] * 2}
    four = transduce.train(tmp_path / "four", **twice, **quick)
    assert list(four.settings.data.source or ()) == [str(tmp_path / "a.de")] * 2
    with pytest.raises(ArgumentError, match=r"target\[1\] must be the name of a file"):
        transduce.train(tmp_path / "five", source="a.de", target=["a.en", 7], **quick)  # type: ignore[list-item]
    files = {"valid_source": str(tmp_path / "a.de"), "valid_target": str(tmp_path / "a.en")}
    three = transduce.train(tmp_path / "three", source=tmp_path / "a.de", target=tmp_path / "a.en", data=files, **quick)
    assert three.settings.data.valid_source == files["valid_source"]
    assert three.translate("ich schlafe").status in ("ok", "length", "empty")


def test_no_words_are_a_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: transduce COMMAND")


@pytest.mark.parametrize("name", [function.__name__ for function in cli.COMMANDS])
def test_nothing_unlike_is_suggested(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A flag of letters that no flag has, to each command; and commands that are none."""
    assert "did you mean" not in refused(capfd, name, "--qqq")
    assert "did you mean" not in refused(capfd, name[::-1] if name[::-1] != name else "qqq")


@pytest.mark.parametrize(("called", "here"), [("export", "convert"), ("predict", "translate"), ("finetune", "train")])
def test_what_other_tools_call_a_command(called: str, here: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert f"there is no command {called}, did you mean {here}" in refused(capfd, called)


@pytest.mark.parametrize("name", ["a.tsv", "a.tmx", "a.csv", "a.tsv.gz"])
def test_pairs_and_tables_are_not_translated_as_text(
    name: str, model_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"a\tb\n") if name.endswith(".gz") else b"a\tb\n")
    told = refused(capfd, "translate", str(model_folder), str(tmp_path / name))
    assert "is no text with a sentence a line" in told


def test_names_that_are_alike() -> None:
    known = ["train", "translate", "bench", "evaluate"]
    assert usage.alike("trian", known) == ["train"]
    assert usage.alike("TRAIN", known) == ["train"]
    assert usage.alike("eval", known) == ["evaluate"]
    assert usage.alike("tra", known) == ["train", "translate"]
    assert usage.alike("tr", known) == usage.alike("foo", known) == []


def test_settings_that_a_command_takes() -> None:
    assert "model.layers" in {entry.name for entry in settings_of(cli.train)}
    assert {entry.name.partition(".")[0] for entry in settings_of(cli.translate)} == {"search"}
    assert settings_of(cli.presets) == settings_of(None) == []


def test_errors_that_our_commands_cannot_cause() -> None:
    """Cyclopts has more kinds than our commands meet: those are answered in its words, with our page."""
    both = cyclopts.exceptions.MixedArgumentError()
    assert usage.explain(both).startswith("one argument is given both with its flag and without; choose one way; see: ")
    other = cyclopts.ValidationError(msg="Too large.\nMore.", command_chain=("plot", "masks"))
    assert usage.explain(other) == "Too large; see: transduce plot masks --help"
