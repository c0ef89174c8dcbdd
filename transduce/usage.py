"""What is wrong with a command line, in one plain sentence that names the right page of help."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable
from typing import Any

import cyclopts
from cyclopts.exceptions import ArgumentOrderError, MixedArgumentError

from transduce.commands import settings_of
from transduce.settings.entries import describe_type, options_of, shortened

ALIKE = 0.8  # of difflib: trian is train, foo is not corpus
MEANT = {  # how other tools call it
    "export": ["convert"],
    "import": ["convert"],
    "infer": ["translate"],
    "predict": ["translate"],
    "finetune": ["train --from"],
}


def _read(type_: Any, tokens: Any) -> Any:
    """As cyclopts does, which would round 2.5 where a whole number is wanted."""
    if int in _leaves(type_):
        for token in tokens:
            if "." in token.value and not _is_whole(token.value):
                raise cyclopts.CoercionError(token=token, target_type=int)
    return cyclopts.convert(type_, tokens)


def _is_whole(value: str) -> bool:
    try:
        return float(value).is_integer()
    except ValueError:  # which cyclopts tells
        return True


def _leaves(type_: Any) -> set[Any]:
    """What a type such as `list[int] | None` is made of."""
    inner = typing.get_args(type_)
    return set().union(*map(_leaves, inner)) if inner else {type_}


PLAIN = cyclopts.Parameter(negative="", converter=_read)  # no --no-once, no --empty-run


def explain(error: cyclopts.CycloptsError) -> str:
    """The sentence for an error of parsing: the flag as it was typed, its value, what is expected, where to read on."""
    return f"{_sentence(error)}; see: {_page(error)} --help"


def _page(error: cyclopts.CycloptsError) -> str:
    return " ".join(["transduce", *(error.command_chain or ())])


def _sentence(error: cyclopts.CycloptsError) -> str:
    match error:
        case cyclopts.UnknownCommandError():
            return _unknown_command(error)
        case cyclopts.UnknownOptionError():
            return _unknown_option(error, error.token.keyword or error.token.value)
        case cyclopts.MissingArgumentError():
            return _missing(error)
        case cyclopts.CoercionError():
            return _wrong_value(error)
        case cyclopts.RepeatArgumentError():
            return f"{error.token.keyword} is given more than once, and takes one value"
        case cyclopts.UnusedCliTokensError():
            return _too_many(error)
        case ArgumentOrderError():
            name = error.argument.name if error.argument else "its flag"
            return f"{_quoted(error.token)} comes after a word with a flag, so it needs its own: {name}"
        case MixedArgumentError():
            name = error.argument.name if error.argument else "one argument"
            return f"{name} is given both with its flag and without; choose one way"
    return str(error).strip().partition("\n")[0].rstrip(".")


def _unknown_command(error: cyclopts.CycloptsError) -> str:
    word = (error.unused_tokens or [""])[0]
    if word.startswith("-"):
        return f"{word} stands where a command should"
    known = [name for name in error.app or () if not name.startswith("-")]
    begun = " ".join([*(error.command_chain or ()), word])
    return f"there is no command {begun}{_or_rather(alike(word, known) or MEANT.get(word, []))}"


def _unknown_option(error: cyclopts.CycloptsError, word: str) -> str:
    flag, _, _ = word.partition("=")
    close = alike(flag, [name for argument in _arguments(error) for name in argument.names])
    if not close and flag.startswith("--"):  # a setting without its section: --layers is --model.layers
        names = [entry.name for entry in settings_of(error.target)]
        keys = alike(flag[2:].replace("-", "_"), {name.partition(".")[2] for name in names})
        close = [f"--{name}" for name in names if name.partition(".")[2] in keys]
    return f"{_page(error)} has no {flag}{_or_rather(close)}"


def _missing(error: cyclopts.MissingArgumentError) -> str:
    """A flag without its value, or nothing at all; where a flag was mistyped, that is what is told."""
    argument = error.argument
    assert argument is not None
    if error.keyword is not None:
        return f"{error.keyword} needs a value{_gloss(error, argument.name)}"
    known = {name for one in _arguments(error) for name in one.names}
    for word in error.unused_tokens or ():
        if word.startswith("-") and word.partition("=")[0] not in known and word != "-":
            return _unknown_option(error, word)
    return f"{_shown_name(argument)} is missing{_gloss(error, argument.name)}"


def _wrong_value(error: cyclopts.CoercionError) -> str:
    token = error.token
    given = "" if token is None else shortened(token.value)
    name = token.keyword if token is not None and token.keyword else _shown_name(error.argument)
    if error.target_type is bool:
        return f"{name} takes no value, and {_quoted(given)} was given"
    options = [option for option in options_of(error.target_type) if option is not type(None)]
    choices = [choice for option in options for choice in typing.get_args(option) if isinstance(choice, str)]
    if choices:
        return f"{name} {_quoted(given)} must be one of {', '.join(choices)}{_or_rather(alike(given, choices))}"
    return f"{name} {_quoted(given)} must be {' or '.join(map(describe_type, options))}"


def _too_many(error: cyclopts.CycloptsError) -> str:
    words = [_quoted(word) for word in error.unused_tokens or ()]
    names = [_shown_name(argument) for argument in _arguments(error) if argument.index is not None]
    takes = f"{', '.join(names)} and flags" if names else "flags only"
    return f"{' '.join(words)} {'is' if len(words) == 1 else 'are'} too much: {_page(error)} takes {takes}"


def _arguments(error: cyclopts.CycloptsError, with_help: bool = False) -> list[Any]:
    """What the command takes, but for what cli.py hands in."""
    if error.app is None:
        return []
    collected = error.app.assemble_argument_collection(default_parameter=PLAIN, parse_docstring=with_help)
    return [argument for argument in collected if argument.parse]


def _gloss(error: cyclopts.CycloptsError, name: str) -> str:
    """` (folder of the run)`: the beginning of what help says."""
    for argument in _arguments(error, with_help=True):
        if argument.name == name and argument.parameter.help:
            words = re.split(r"[.;:](?:\s|$)", " ".join(argument.parameter.help.split()))[0]
            return f" ({words if words[1:2].isupper() else words[:1].lower() + words[1:]})"
    return ""


def _shown_name(argument: Any) -> str:
    """RUN for a word, --source for a flag, as help shows them."""
    return argument.name.lstrip("-").upper() if argument.index is not None else argument.name


def _quoted(text: str) -> str:
    """As it was typed; in quotes where it would not be seen as one word."""
    return text if text and not re.search(r"\s", text) else f'"{text}"'


def _or_rather(close: list[str]) -> str:
    """The way out, where there is a likely one."""
    return f", did you mean {' or '.join(close[:2])}" if close else ""


def alike(word: str, known: Iterable[str]) -> list[str]:
    """The names that were probably meant: hardly another spelling, or longer by the end; none is better than wrong."""
    names = list(known)
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=ALIKE)
    return close or [name for name in names if len(word.lstrip("-")) > 2 and name.startswith(word.lower())]
