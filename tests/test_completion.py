"""Tab in real shells: commands, flags, settings, their values, and else file names."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from transduce import cli

# What is typed, and what must be offered.
TABS = {
    "transduce tra": {"train", "translate"},
    "transduce plot le": {"lengths"},
    "transduce train runs/x --sou": {"--source"},
    "transduce train runs/x --model.d_": {"--model.d_model", "--model.d_ff", "--model.d_k", "--model.d_v"},
    "transduce translate runs/x --search.be": {"--search.beam"},
    "transduce train runs/x --task ": {"translate", "classify"},
    "transduce train runs/x --preset paper": {"paper-base", "paper-big"},
    "transduce train demo --valid-t": {"--valid-target"},  # a run that is called like a command
    "transduce completion ": {"bash", "zsh", "fish"},
    "transduce score runs/x --search": set(),
}


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Path:
    """The script of the shell that a test is named for; tests of shells that are not here are left out."""
    shell = request.node.name.split("_")[1].partition("[")[0]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert cli.main(["completion", shell]) == 0
    path = tmp_path / f"script.{shell}"
    path.write_text(capsys.readouterr().out)
    checked = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    for name in ("text.de", "text.en"):
        (tmp_path / name).touch()
    return path


def said(*command: str, cwd: Path) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout.splitlines()


@pytest.mark.parametrize("typed", TABS)
def test_bash_offers(typed: str, script: Path) -> None:
    program = """
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _transduce; printf "%s\\n" "${COMPREPLY[@]}"
    """
    assert {*said("bash", "-c", program, "-", str(script), *typed.split(" "), cwd=script.parent)} - {""} == TABS[typed]


def test_bash_knows_the_equals_sign_and_falls_back_on_files(script: Path) -> None:
    words = ["transduce", "train", "x", "--task", "=", "cl"]  # as bash cuts --task=cl
    program = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=5; _transduce; echo "${COMPREPLY[@]}"'
    assert said("bash", "-c", program, "-", str(script), *words, cwd=script.parent) == ["classify"]
    registered = said("bash", "-c", f"source {script}; complete -p transduce", cwd=script.parent)
    assert registered == ["complete -o bashdefault -o default -F _transduce transduce"]


@pytest.mark.parametrize("typed", [*TABS, "transduce train x --source text."])
def test_fish_offers(typed: str, script: Path) -> None:
    offered = said("fish", "-c", f"source {script}; complete -C '{typed}'", cwd=script.parent)
    expected = TABS.get(typed, {"text.de", "text.en"})
    assert {line.partition("\t")[0] for line in offered} == expected


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("transduce tra", [b"train ", b"translate "]),
        ("transduce train x --model.d_", [b"--model.d_ff ", b"--model.d_model "]),
        ("transduce train x --task ", [b"classify ", b"translate"]),
        ("transduce train x --source text.", [b"text.de", b"text.en"]),
    ],
)
def test_zsh_offers(typed: str, offered: list[bytes], script: Path) -> None:
    """Its completion works at a prompt only: so a terminal is made, and Tab is pressed twice."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(script.parent)
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        begin = f"PS1=; autoload -U compinit && compinit -u -d {script}.dump; source {script}; echo rea''dy\n"
        os.write(terminal, begin.encode())
        assert b"ready\r\n" in _read(terminal, [b"ready\r\n"])
        os.write(terminal, f"{typed}\t\t".encode())
        shown = _read(terminal, offered)
        assert [mark for mark in offered if mark not in shown] == [], shown
    finally:
        os.write(terminal, b"\x15exit\n")
        os.waitpid(process, 0)
        os.close(terminal)


def _read(terminal: int, marks: list[bytes]) -> bytes:
    """What a shell says until all of these are there, or it has been silent for half a minute."""
    seen = b""
    while not all(mark in seen for mark in marks) and select.select([terminal], [], [], 30)[0]:
        seen += os.read(terminal, 4096)
    return seen


def test_every_command_and_flag_is_in_the_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = []
    for shell in ("bash", "zsh", "fish"):
        assert cli.main(["completion", shell]) == 0
        scripts.append(capsys.readouterr().out)
    for function in cli.COMMANDS:
        for script in scripts:
            assert f'"{function.__name__}")' in script or f"__transduce_at 1 {function.__name__}'" in script
