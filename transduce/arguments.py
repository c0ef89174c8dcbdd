"""What Python callers hand in, looked at first: a wrong type is refused in our words, before any work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transduce.errors import ArgumentError

LONGEST = 60  # characters of a value in a message


def check_folder(value: object, name: str, what: str = "folder") -> None:
    """A path, as text or as a Path."""
    if not isinstance(value, str | os.PathLike) or isinstance(value, str) and not value:
        raise ArgumentError(f"{name} must be the name of a {what}, as str or Path, not {shown(value)}")


def check_text(value: object, name: str) -> None:
    """A str, and not the bytes of one."""
    if isinstance(value, bytes | bytearray):
        raise ArgumentError(f"{name} must be str, not {shown(value)}; decode it first: {name}.decode()")
    if not isinstance(value, str):
        raise ArgumentError(f"{name} must be str, not {shown(value)}")


def check_texts(values: Any, name: str) -> Iterator[str]:
    """Texts as they come; one text alone is refused, because its letters are texts too."""
    if isinstance(values, str):
        raise ArgumentError(f"{name} must be several texts, not one; put it in a list: [{name}]")
    if isinstance(values, bytes | bytearray):
        check_text(values, name)
    if not isinstance(values, Iterable):
        raise ArgumentError(f"{name} must be str, or a list of str, not {shown(values)}")
    return _checked_texts(values, name)


def _checked_texts(values: Iterable[Any], name: str) -> Iterator[str]:
    for number, value in enumerate(values):
        check_text(value, f"{name}[{number}]")
        yield value


def check_pairs(values: Any, name: str) -> Iterator[tuple[str, str]]:
    """Pairs of texts as they come."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError(f"{name} must be a list of (source, target), not {shown(values)}")
    return _checked_pairs(values, name)


def _checked_pairs(values: Iterable[Any], name: str) -> Iterator[tuple[str, str]]:
    for number, pair in enumerate(values):
        if isinstance(pair, str | bytes) or not isinstance(pair, Iterable) or len(sides := tuple(pair)) != 2:
            raise ArgumentError(f"{name}[{number}] must be two texts, source and target, not {shown(pair)}")
        for side, value in enumerate(sides):
            check_text(value, f"{name}[{number}][{side}]")
        yield sides


def check_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """One of these words."""
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, not {shown(value)}")


def check_languages(value: Any) -> tuple[str | None, str | None]:
    """Two names, of which either may be left to the model."""
    if isinstance(value, str) or not isinstance(value, Iterable) or len(both := tuple(value)) != 2:
        raise ArgumentError(f'languages must be two, source and target, such as ("de", "en"), not {shown(value)}')
    for language in both:
        if language is not None:
            check_text(language, "languages")
    return both


def shown(value: object) -> str:
    """A value with its type, however long it is."""
    if value is None:
        return "None"
    text = repr(value)
    return f"{text if len(text) <= LONGEST else text[: LONGEST - 3] + '...'} ({type(value).__name__})"
