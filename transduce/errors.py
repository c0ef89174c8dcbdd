"""Everything transduce raises on purpose.

    TransduceError            exit code 1
    ├── Stopped               a signal asked for the end; the work is saved; exit code 128 + signal
    └── UserError             exit code 2: what was given is wrong; the message says how to mend it
        ├── ArgumentError     a value of the wrong type, from Python; a TypeError too
        ├── SettingsError     an unknown key, a wrong type, an impossible combination
        ├── DataError         a file that is missing, unpaired, empty, damaged, or not UTF-8
        └── ModelError        a folder that is no model, or a damaged one

A message names the thing, the value and the way out, in one sentence.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TransduceError(Exception):
    """Base of all errors raised on purpose."""

    is_repeated: bool | None = None  # whether another process of the run says the same; none: nobody has asked


class Stopped(TransduceError):
    """Ended by a signal after saving."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class UserError(TransduceError):
    """The input was wrong, and the user can mend it."""


class ArgumentError(UserError, TypeError):
    """A function was called with a value of the wrong type, or under an unknown name."""


class SettingsError(UserError):
    """A setting is unknown, of the wrong type, or contradicts another."""


class DataError(UserError):
    """Text files that cannot be used as they are."""


class ModelError(UserError):
    """A folder that holds no usable model."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """', did you mean X' when a known name is close, otherwise an empty string."""
    known = list(known)
    section, dot, key = name.rpartition(".")
    of_section = [k.rpartition(".")[2] for k in known if k.rpartition(".")[0] == section]
    close = [section + dot + word for word in difflib.get_close_matches(key, of_section, n=1, cutoff=0.6)]
    if not of_section:  # what a whole section shares with another says nothing, so only then
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not close:  # the right key under the wrong section: layers -> model.layers
        close = [k for k in known if k.rpartition(".")[2] == key][:1]
    return f", did you mean {close[0]}" if close else ""
