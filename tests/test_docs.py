"""The documents are true: quoted lines exist, commands and settings exist, Python examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from transduce import cli
from transduce.settings.compose import compose
from transduce.settings.entries import entries
from transduce.settings.presets import PRESETS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(path for folder in ("book", "measured") for path in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
QUOTED = re.findall(r"^\|.*\| `(.+)` \| `([\w/]+\.py)` \|$", (ROOT / "docs/transformer.md").read_text(), re.MULTILINE)


def squeezed(text: str) -> str:
    """Without white space, and without the trailing commas that come with line breaks."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", text))


def test_there_are_quotations() -> None:
    assert len(QUOTED) > 40


@pytest.mark.parametrize(("line", "file"), QUOTED)
def test_a_quoted_line_is_in_its_file(line: str, file: str) -> None:
    assert squeezed(line) in squeezed((ROOT / "transduce" / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def commands(document: Path) -> list[str]:
    """Lines that call transduce, continued lines joined, pipes and comments left out."""
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^\s*(?:\$ )?(?:echo .*\| )?(?:\.venv/bin/)?(transduce (?!\[).+)$", text, re.MULTILINE)
    return [re.split(r"\s(?:#|<|\|)", line)[0] for line in found if "[" not in line and "MODEL" not in line]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_parse(document: Path) -> None:
    for line in commands(document):
        words, settings = cli.split_settings(shlex.split(line)[1:])
        command, _, _ = cli.make_app().parse_args(words, exit_on_error=False, print_error=False)
        assert command in (*cli.COMMANDS, *cli.VECTORS.values(), *cli.PLOTS.values()), line
        compose({"training": {"start": "x"}} if "--from" in words else {}, settings)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_settings_that_are_named_exist(document: Path) -> None:
    known = {entry.name for entry in entries()}
    sections = {name.split(".")[0] for name in known}
    for name in re.findall(r"`(?:--)?(\w+\.\w+)[ `]", document.read_text(encoding="utf-8")):
        if name.split(".")[0] in sections and not name.endswith(
            (".translate", ".stream", ".score", ".attention", ".safetensors", ".py")
        ):
            assert name in known or name in ("text.model", "model.bin", "section.key"), name


def test_the_two_readmes_are_in_step() -> None:
    english, chinese = commands(ROOT / "README.md"), commands(ROOT / "README.zh.md")
    assert len(english) > 8
    assert [shlex.split(line) for line in english] == [shlex.split(line) for line in chinese]
    headings = [len(re.findall(r"^## ", path.read_text(), re.MULTILINE)) for path in DOCUMENTS[:2]]
    assert headings[0] == headings[1]


def test_every_preset_is_described() -> None:
    text = (ROOT / "docs/training.md").read_text()
    assert all(f"| `{name}` |" in text for name in PRESETS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_examples_run(
    document: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a quickly trained model in the place of the demo's."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/demo").symlink_to(model_folder)
    (tmp_path / "words.vec").write_text("2 2\ntea 1 0\ncoffee 0.9 0.1\n")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks or "import transduce" not in document.read_text(encoding="utf-8")  # none in a form that is not run
    for block in blocks:
        exec(compile(block.replace("beam=4", "beam=3"), document.name, "exec"), {})  # noqa: S102
