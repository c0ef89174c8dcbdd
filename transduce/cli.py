"""The command table. Only this file prints, parses or exits; a command is a function in tasks/."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cyclopts

import transduce
from transduce.errors import Stopped, TransduceError, UserError
from transduce.report import SILENT
from transduce.tasks.average import average
from transduce.tasks.bench import bench
from transduce.tasks.demo import demo
from transduce.tasks.doctor import doctor
from transduce.tasks.evaluate import evaluate
from transduce.tasks.inspect import inspect
from transduce.tasks.lookup import corpus, presets, settings
from transduce.tasks.merge import merge
from transduce.tasks.plot import PLOTS
from transduce.tasks.train import train
from transduce.tasks.translate import score, translate
from transduce.tasks.watch import runs, watch
from transduce.terminal import Terminal

COMMANDS: tuple[Callable[..., Any], ...] = (
    *(demo, train, translate, evaluate, score, inspect),
    *(bench, watch, runs, doctor, average, merge, presets, settings, corpus),
)


def make_app() -> cyclopts.App:
    app = cyclopts.App(
        name="transduce",
        version=transduce.__version__,
        help="Sequence transduction you can read, train, look into and ship.",
        help_epilogue="Examples:\n" + "\n".join(f"  {_example(function)}" for function in (*COMMANDS, *PLOTS.values())),
        help_format="plaintext",
    )
    for place, function in enumerate(COMMANDS):
        app.command(function, name=function.__name__, sort_key=place, help_epilogue="")
    plot = cyclopts.App(name="plot", help="Draw pictures.", sort_key=len(COMMANDS), help_epilogue="")
    for name, drawing in PLOTS.items():
        plot.command(drawing, name=name)
    app.command(plot)
    return app


def _example(function: Callable[..., Any]) -> str:
    """The example that a command's docstring gives."""
    lines = (function.__doc__ or "").splitlines()
    return next(line.strip().removeprefix("Example: ") for line in lines if line.strip().startswith("Example: "))


NO_MEMORY = ("DefaultCPUAllocator", "out of memory")  # as PyTorch says it, on a CPU and on a GPU


def main(arguments: list[str] | None = None) -> int:
    """Run one command and give its exit code: 0 done, 1 our failure, 2 wrong input, 128 + signal stopped."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever the locale says
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (closed by whoever started us)
    terminal = Terminal()
    try:
        words, settings = split_settings(sys.argv[1:] if arguments is None else arguments)
        command, bound, ignored = make_app().parse_args(words, exit_on_error=False, print_error=False)
        if "report" in ignored:
            bound.arguments["report"] = terminal if _rank() == 0 else SILENT
        if "settings" in ignored:
            bound.arguments["settings"] = settings
        elif settings:
            name = next(f"{section}.{key}" for section, keys in settings.items() for key in keys)
            raise UserError(f"--{name} is a setting of training; this command has its own flags, see --help")
        show(command(*bound.args, **bound.kwargs))
        sys.stdout.flush()
        return 0
    except cyclopts.CycloptsError as error:
        return _complain(terminal, f"{error} See: transduce --help", 2, speakers=1)
    except Stopped as stopped:
        code = 0 if _would_be_started_again() else 128 + stopped.signal
        return _complain(terminal, str(stopped), code, stopped.speakers)
    except UserError as error:
        return _complain(terminal, str(error), 2, error.speakers)
    except TransduceError as error:
        return _complain(terminal, str(error), 1, error.speakers)
    except BrokenPipeError:
        # The reader has left (| head). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(terminal, f"{error.strerror or error}: {error.filename or 'standard output'}", 2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        return _complain(terminal, "out of memory; take a smaller model, smaller batches or shorter text", 2)
    except KeyboardInterrupt:
        return _complain(terminal, "interrupted", 128 + signal.SIGINT)


def split_settings(words: list[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Take `--section.key value` (or `=value`, or nothing for true) out of the words of a command line."""
    rest: list[str] = []
    settings: dict[str, dict[str, Any]] = {}
    words = list(words)
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        section, dot, key = name.partition(".")
        if not (word.startswith("--") and dot and section.isidentifier()):
            rest.append(word)
            continue
        if not equals:
            value = words.pop(0) if words and not words[0].startswith("--") else "true"
        settings.setdefault(section, {})[key.replace("-", "_")] = value
    return rest, settings


def show(result: Any) -> None:
    """Lines as they come, anything else as JSON."""
    if isinstance(result, Iterator):
        at_terminal = sys.stdout.isatty()
        for line in result:
            sys.stdout.write(line + "\n")
            if at_terminal:
                sys.stdout.flush()
    elif result is not None:
        sys.stdout.write(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


def _complain(terminal: Terminal, message: str, code: int, speakers: int | None = None) -> int:
    """Give the code, and say why; where many processes have the same to say, only the first `speakers` do."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if speakers is None or _rank() < speakers:
        terminal.console.print(f"transduce: {message}", markup=False)
    return code


def _rank() -> int:
    """Of this process among those that torchrun has started; 0 without it."""
    return int(os.environ.get("RANK", "0")) if "TORCHELASTIC_RUN_ID" in os.environ else 0


def _would_be_started_again() -> bool:
    """torchrun takes every code but 0 for a failure, and starts all processes again while it may."""
    may, did = (os.environ.get(f"TORCHELASTIC_{name}", "0") for name in ("MAX_RESTARTS", "RESTART_COUNT"))
    return int(may) > int(did)


def entry() -> None:
    sys.exit(main())
