"""transduce completion: what a shell asks when Tab is pressed, answered by a script that needs no Python to run."""

from __future__ import annotations

import shlex
import typing
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from cyclopts import App, Parameter

from transduce.commands import settings_of
from transduce.settings.entries import options_of
from transduce.settings.presets import PRESETS
from transduce.settings.recipes import RECIPES

# Names that help tells of, by the word before them; a type says the others.
NAMES = {"--preset": tuple(PRESETS), "presets": tuple(PRESETS), "bench": tuple(RECIPES)}
NAMES |= {"--device": ("auto", "cpu", "cuda", "mps"), "--weights": ("best", "last", "averaged", "averaged_best")}
NAMES |= {"--engine": ("auto", "plain", "ctranslate2")}
NAMES |= {"--precision": ("auto", "float32", "bfloat16", "float16", "int16", "int8", "int8_float32")}


class Word(NamedTuple):
    """A flag, or a command, as a shell shows it."""

    text: str
    help: str = ""
    takes_value: bool = False
    choices: tuple[str, ...] = ()  # of its value; none: a file name is a good guess


def completion(
    shell: Literal["bash", "zsh", "fish"], *, app: Annotated[App | None, Parameter(parse=False)] = None
) -> Iterator[str]:
    """Print a script by which a shell completes commands, flags, settings and file names.

    Example: transduce completion bash

    To install it, bash: put  source <(transduce completion bash)  into ~/.bashrc
    zsh: put  source <(transduce completion zsh)  into ~/.zshrc, behind compinit
    fish: transduce completion fish > ~/.config/fish/completions/transduce.fish

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    assert app is not None  # handed in by cli.py, which knows the commands
    yield f"# Completion of transduce for {shell}, made by: transduce completion {shell}"
    yield from {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](_commands(app), _flags(app))


def _commands(app: App) -> dict[str, list[Word]]:
    """The commands that can follow nothing, and those that can follow `plot`."""
    found: dict[str, list[Word]] = {"": []}
    for name in app:
        if not name.startswith("-"):
            found[""].append(Word(name, _first_sentence(app[name].help)))
            inner = [Word(one, _first_sentence(app[name][one].help)) for one in app[name] if not one.startswith("-")]
            found |= {name: inner} if inner else {}
    return found


def _flags(app: App) -> dict[str, list[Word]]:
    """The flags of each command; the first entry stands for its first word, where that is one of a few."""
    commands = _commands(app)
    paths = [word.text for word in commands.pop("") if word.text not in commands]
    paths += [f"{outer} {word.text}" for outer, words in commands.items() for word in words]
    return {path: list(_flags_of(app, path)) for path in paths}


def _flags_of(app: App, path: str) -> Iterator[Word]:
    command = app
    for word in path.split():
        command = command[word]
    arguments = [a for a in command.assemble_argument_collection(parse_docstring=True) if a.parse]
    first = next((a for a in arguments if a.index == 0), None)
    yield Word(word, choices=NAMES.get(word, _choices(first.hint) if first else ()))
    for argument in (a for a in arguments if a.index is None):
        for name in (name for name in argument.names if not name.startswith("--empty-")):  # which nobody wants
            choices = NAMES.get(name, _choices(argument.hint))
            yield Word(name, _first_sentence(argument.parameter.help), argument.hint is not bool, choices)
    for entry in settings_of(command.default_command):
        choices = ("true", "false") if entry.type is bool else _choices(entry.type)
        yield Word(f"--{entry.name}", _first_sentence(entry.help), True, choices)
    yield from (Word("--help", "Show what the command takes."), Word("--debug", "Show where an error came from."))


def _choices(kind: object) -> tuple[str, ...]:
    return tuple(str(one) for option in options_of(kind) for one in typing.get_args(option) if isinstance(one, str))


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split()).partition(". ")[0].rstrip(".")


def _bash(commands: dict[str, list[Word]], flags: dict[str, list[Word]]) -> Iterator[str]:
    yield "_transduce() {"
    yield '  local now="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '  local command="${COMP_WORDS[1]}" names='
    yield '  [[ $before == "=" ]] && before="${COMP_WORDS[COMP_CWORD-2]}"'
    yield '  [[ $now == "=" ]] && now='
    outer = " | ".join(name for name in commands if name)
    yield f'  case "$command" in {outer}) ((COMP_CWORD > 2)) && command+=" ${{COMP_WORDS[2]}}" ;; esac'
    yield '  if ((COMP_CWORD == 1)); then command=""; fi'
    yield '  case "$command $before" in'
    for path, words in flags.items():
        for word in words:
            if word.choices:
                yield f'    "{path} {word.text}") [[ $now == -* ]] || names="{" ".join(word.choices)}" ;;'
    yield "  esac"
    yield '  case "$command" in'
    for path, inner in commands.items():
        yield f'    "{path}") names="{" ".join(word.text for word in inner)}" ;;'
    for path, words in flags.items():
        yield f'    "{path}") [[ $now == -* ]] && names="{" ".join(word.text for word in words[1:])}" ;;'
    yield from ("  esac", '  COMPREPLY=($(compgen -W "$names" -- "$now"))', "}")
    yield "complete -o bashdefault -o default -F _transduce transduce"  # without an answer: file names


def _zsh(commands: dict[str, list[Word]], flags: dict[str, list[Word]]) -> Iterator[str]:
    yield "_transduce() {"
    yield '  local now="$words[CURRENT]" before="$words[CURRENT-1]" command="$words[2]"'
    yield "  local -a names"
    outer = " | ".join(name for name in commands if name)
    yield f'  case "$command" in {outer}) ((CURRENT > 3)) && command+=" $words[3]" ;; esac'
    yield '  if ((CURRENT == 2)); then command=""; fi'
    yield '  case "$command" in'
    for path, inner in commands.items():
        yield f'    "{path}") names=({" ".join(map(_described, inner))}); _describe command names; return ;;'
    for path, words in flags.items():
        yield f'    "{path}") [[ $now == -* ]] && names=({" ".join(map(_described, words[1:]))}) ;;'
    yield "  esac"
    yield "  if (($#names)); then _describe -o flag names; return; fi"
    yield '  case "$command $before" in'
    for path, words in flags.items():
        for word in words:
            if word.choices:
                yield f'    "{path} {word.text}") compadd -- {" ".join(word.choices)} ;;'
    yield from ("    *) _files ;;", "  esac", "}")
    yield "compdef _transduce transduce"


def _described(word: Word) -> str:
    """name:help, with the colons of the help kept apart from the one between."""
    return shlex.quote(f"{word.text}:{word.help.replace(':', chr(92) + ':')}")


def _fish(commands: dict[str, list[Word]], flags: dict[str, list[Word]]) -> Iterator[str]:
    yield "function __transduce_at --description 'whether these words are the command so far'"
    yield "    set -l words (commandline -opc)[2..-1]"
    yield '    test "$words[1..$argv[1]]" = "$argv[2..-1]"'
    yield "end"
    for path, inner in commands.items():
        size = len(path.split()) + 1
        at = f"test (count (commandline -opc)) = {size}" + (f"; and __transduce_at {size - 1} {path}" if path else "")
        yield f"complete -c transduce -f -n '{at}'"
        for word in inner:
            yield f"complete -c transduce -n '{at}' -a {word.text} -d {_fish_quoted(word.help)}"
    for path, words in flags.items():
        at = f"__transduce_at {len(path.split())} {path}"
        for word in words:
            kind = "-l" if word.text.startswith("--") else "-s" if word.text.startswith("-") else ""
            value = f" -x -a '{' '.join(word.choices)}'" if word.choices else " -r -F" if word.takes_value else ""
            if kind:
                shown = f"{kind} {word.text.lstrip('-')}{value} -d {_fish_quoted(word.help)}"
                yield f"complete -c transduce -n '{at}' {shown}"
            elif word.choices:
                first = f"test (count (commandline -opc)) = {len(path.split()) + 1}; and {at}"
                yield f"complete -c transduce -n '{first}' -f -a '{' '.join(word.choices)}'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
