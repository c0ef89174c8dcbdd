"""Wrong usage is answered in plain words: docs/usage.md says how, and every line of it is tried here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import cyclopts
import pytest
from test_cli import refused

from transduce import cli, usage
from transduce.commands import settings_of

PAGE = (Path(__file__).parent.parent / "docs" / "usage.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^\| `transduce (.+?)` \| `(.+)` \|$", PAGE, re.MULTILINE)


def test_there_are_many() -> None:
    assert len(TYPED) >= 30


@pytest.mark.parametrize(("words", "answer"), TYPED)
def test_what_is_typed_wrong_is_answered_as_the_page_says(
    words: str, answer: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(capfd, *shlex.split(words)) == answer
    assert list(tmp_path.iterdir()) == []


def test_no_words_are_a_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: transduce COMMAND")


@pytest.mark.parametrize("name", [function.__name__ for function in cli.COMMANDS])
def test_nothing_unlike_is_suggested(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A flag of letters that no flag has, to each command; and commands that are none."""
    assert "did you mean" not in refused(capfd, name, "--qqq")
    assert "did you mean" not in refused(capfd, name[::-1] if name[::-1] != name else "qqq")


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
