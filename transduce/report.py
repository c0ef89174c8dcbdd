"""What long work says about itself, and the form of an answer. Silent here; `terminal.py` makes it visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """An answer for people: rows under their heads, with lines above and below."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    above: Sequence[str] = ()
    below: Sequence[str] = ()


class Progress:
    """One stretch of work that is under way."""

    def update(self, done: float, **facts: str) -> None:
        """`done` of the total is finished; `facts` stand beside the bar."""


class Report:
    """Lower rooms are handed one of these and never print."""

    def say(self, text: str) -> None:
        """A line for the user."""

    def warn(self, text: str) -> None:
        """A line the user should not miss."""

    @contextmanager
    def progress(self, title: str, total: float | None = None) -> Iterator[Progress]:
        """A stretch of work with a beginning and an end."""
        yield Progress()

    @contextmanager
    def screen(self) -> Iterator[Callable[[list[str]], None] | None]:
        """A function that replaces the lines it showed before; None where nobody looks."""
        yield None


SILENT = Report()
