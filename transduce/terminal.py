"""A Report that people see, on stderr: bars on a terminal, lines now and then elsewhere. And answers as tables."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table as RichTable
from rich.text import Text

from transduce.report import Progress, Report, Table

CONTROLS = {i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160)) if chr(i) not in "\t\n"}
EVERY = 15.0  # seconds between lines when nobody watches a terminal


def printable(text: str) -> str:
    """A text without what would steer a terminal (a name or a value may come from anybody): control characters, such as
    those that begin escape sequences, as they are written in Python. Letters and marks of all scripts stay."""
    return text.translate(CONTROLS)


class _Unbroken:
    """Standard error; when nobody is there any more (a terminal was closed), what is said is lost, and no error."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    def write(self, text: str) -> int:
        with suppress(OSError, AttributeError):  # None, where it was closed from the beginning
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, AttributeError):
            sys.stderr.flush()


class Terminal(Report):
    def __init__(self) -> None:
        self.console = Console(file=cast(IO[str], _Unbroken()), highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False)

    def warn(self, text: str) -> None:
        self.console.print(f"warning: {printable(text)}", style="yellow", markup=False)

    @contextmanager
    def progress(self, title: str, total: float | None = None) -> Iterator[Progress]:
        title = printable(title)
        if not self.console.is_terminal:
            yield _Lines(self, title, total)
            return
        columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)]
        columns += [TextColumn("{task.fields[facts]}"), TimeElapsedColumn()]
        if total:
            columns += [TextColumn("left"), TimeRemainingColumn()]
        # Rich would by itself send standard output to this console, away from the file it is meant for.
        with RichProgress(
            *columns, console=self.console, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as shown:
            yield _Bar(shown, title, total)

    @contextmanager
    def screen(self) -> Iterator[Callable[[list[str]], None] | None]:
        if not self.console.is_terminal:
            yield None
            return
        with Live(console=self.console, transient=True, redirect_stdout=False, redirect_stderr=False) as live:
            yield lambda lines: live.update(Text(printable("\n".join(lines))), refresh=True)


def table_lines(table: Table, at_terminal: bool) -> Iterator[str]:
    """A table as text; elsewhere than on a terminal neither bold nor cut to a width."""
    width = shutil.get_terminal_size().columns if at_terminal else 10_000
    console = Console(file=io.StringIO(), force_terminal=at_terminal, width=width, highlight=False)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for number, head in enumerate(table.heads):
        drawn.add_column(Text(printable(head)), justify="right" if number else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    with console.capture() as captured:
        console.print(drawn)
    yield from map(printable, table.above)
    yield from (line.rstrip() for line in captured.get().splitlines())
    yield from map(printable, table.below)


class _Bar(Progress):
    def __init__(self, shown: RichProgress, title: str, total: float | None) -> None:
        self.shown = shown
        self.task = shown.add_task(title, total=total, facts="")

    def update(self, done: float, **facts: str) -> None:
        self.shown.update(self.task, completed=done, facts="  ".join(f"{name} {fact}" for name, fact in facts.items()))


class _Lines(Progress):
    def __init__(self, terminal: Terminal, title: str, total: float | None) -> None:
        self.terminal, self.title, self.total = terminal, title, total
        self.said = time.monotonic()
        self.begun: tuple[float, float] | None = None  # when, and how much was done then: a resumed run has a start

    def update(self, done: float, **facts: str) -> None:
        now = time.monotonic()
        self.begun = self.begun or (now, done)
        if now - self.said < EVERY:
            return
        self.said = now
        words = [f"{name} {fact}" for name, fact in facts.items()]
        if self.total and done > self.begun[1]:
            left = (now - self.begun[0]) * (self.total - done) / (done - self.begun[1])
            words = [f"{done / self.total:.0%}", *words, f"about {left / 60:.1f} minutes left"]
        self.terminal.say(f"{self.title}: {', '.join(words)}")
