"""The command table. Only this file prints, parses or exits; a command is a function in commands/."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import cyclopts

import transduce
from transduce.commands.average import average
from transduce.commands.backtranslate import backtranslate
from transduce.commands.bench import bench
from transduce.commands.compare import compare
from transduce.commands.completion import completion
from transduce.commands.convert import convert
from transduce.commands.demo import demo
from transduce.commands.distill import distill
from transduce.commands.doctor import doctor
from transduce.commands.evaluate import evaluate
from transduce.commands.inspect import inspect
from transduce.commands.lookup import corpus, presets, settings
from transduce.commands.merge import merge
from transduce.commands.plot import PLOTS
from transduce.commands.shortlist import shortlist
from transduce.commands.train import train
from transduce.commands.translate import score, translate
from transduce.commands.vectors import VECTORS
from transduce.commands.watch import runs, watch
from transduce.errors import Stopped, TransduceError, UserError
from transduce.files import strict_json
from transduce.report import SILENT, Table
from transduce.signals import Terminated, sigterm_interrupts
from transduce.terminal import Terminal, printable, table_lines
from transduce.usage import PLAIN, explain

COMMANDS: tuple[Callable[..., Any], ...] = (
    *(demo, train, translate, evaluate, score, inspect, compare),
    *(convert, distill, backtranslate),
    *(bench, watch, runs, doctor, average, shortlist, merge, presets, settings, corpus, completion),
)


def make_app() -> cyclopts.App:
    app = cyclopts.App(
        name="transduce",
        version=transduce.__version__,
        help="Sequence transduction you can read, train, look into and ship.",
        help_epilogue="Every command takes --debug: show where an unexpected error came from.\n\nExamples:\n"
        + "\n".join(f"  {_example(function)}" for function in (*COMMANDS, *VECTORS.values(), *PLOTS.values())),
        help_format="plaintext",
        default_parameter=PLAIN,
    )
    for place, function in enumerate(COMMANDS):
        app.command(function, name=function.__name__, sort_key=place, help_epilogue="")
    groups = {"vectors": ("Train word vectors, and ask them.", VECTORS), "plot": ("Draw pictures.", PLOTS)}
    for name, (summary, members) in groups.items():
        group = cyclopts.App(name=name, help=summary, sort_key=len(COMMANDS), help_epilogue="")
        for member, function in members.items():
            group.command(function, name=member)
        app.command(group)
    return app


def _example(function: Callable[..., Any]) -> str:
    """The example that a command's docstring gives."""
    lines = (function.__doc__ or "").splitlines()
    return next(line.strip().removeprefix("Example: ") for line in lines if line.strip().startswith("Example: "))


MOST_TIMES = 300  # that a flag may be given
NO_MEMORY = ("DefaultCPUAllocator", "out of memory")  # as PyTorch says it, on a CPU and on a GPU


def main(arguments: list[str] | None = None) -> int:
    """Run one command and give its exit code: 0 done, 1 our failure, 2 wrong input, 128 + signal stopped."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever the locale says
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (closed by whoever started us)
    terminal = Terminal()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        with sigterm_interrupts():
            run([word for word in words if word != "--debug"], terminal)
        return 0
    except cyclopts.CycloptsError as error:
        return _complain(terminal, explain(error), 2, error)
    except Stopped as stopped:
        return _complain(terminal, str(stopped), 0 if _would_be_started_again() else 128 + stopped.signal, stopped)
    except TransduceError as error:
        return _complain(terminal, str(error), 2 if isinstance(error, UserError) else 1, error)
    except BrokenPipeError:
        # The reader has left (| head). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(terminal, f"{error.strerror or error}: {error.filename or 'standard output'}", 2)
    except KeyboardInterrupt as error:
        goes_on = words[:1] in (["translate"], ["backtranslate"]) and any(
            w.startswith(("-o", "--output")) for w in words
        )
        more = (
            "; the same command with --resume goes on behind the last whole block of lines, if one was done"
            if goes_on
            else ""
        )
        number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
        return _complain(terminal, f"interrupted{more}", 128 + number)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
            return _complain(terminal, "out of memory; take a smaller model, smaller batches or shorter text", 2)
        reason = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        return _complain(
            terminal, f"this should not have happened ({reason}); --debug shows where, please report it", 1
        )


def run(words: list[str], terminal: Terminal) -> None:
    """Parse a command line, call its command and show the result."""
    _refuse_too_many(words)
    app = make_app()
    words, settings = split_settings(_with_dash_last(words, app))
    command, bound, ignored = app.parse_args(words, exit_on_error=False, print_error=False)
    if "report" in ignored:
        bound.arguments["report"] = terminal if _rank() == 0 else SILENT
    if "app" in ignored:
        bound.arguments["app"] = app
    if "settings" in ignored:
        bound.arguments["settings"] = settings
    elif settings:
        name = next(f"{section}.{key}" for section, keys in settings.items() for key in keys)
        page = " ".join(["transduce", *app.parse_commands(words)[0]])
        raise UserError(f"--{name} is a setting of training, which {page} does not take; see: {page} --help")
    show(command(*bound.args, **bound.kwargs))
    sys.stdout.flush()


def _refuse_too_many(words: list[str]) -> None:
    """The parser takes time that grows with the square of how often a flag is given: minutes for thousands."""
    flags = Counter(word.partition("=")[0] for word in words if word.startswith("--"))
    for flag, times in flags.items():
        if flag != "--" and times > MOST_TIMES:
            raise UserError(
                f"{flag} is given {times:,} times, and a command line takes a flag {MOST_TIMES} times at most; from "
                f"Python, a list may be as long as it likes"
            )


def _with_dash_last(words: list[str], app: cyclopts.App) -> list[str]:
    """Move `-` for standard input, which the parser would take for a flag, behind `--`. After a flag that takes a value
    it is that value."""
    if "-" not in words or "--" in words:
        return words
    command = app
    for name in app.parse_commands(words)[0]:
        command = command[name]
    arguments = command.assemble_argument_collection()
    switches = {name for argument in arguments if argument.hint is bool for name in argument.names}
    pairs = enumerate(zip(["", *words], words, strict=False))
    found = [i for i, (before, word) in pairs if word == "-" and (before in switches or not before.startswith("-"))]
    return [*(word for i, word in enumerate(words) if i not in found), "--", "-"] if found else words


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
    """Lines as they come, on a terminal without what would steer it; tables as text, anything else as JSON."""
    at_terminal = sys.stdout.isatty()
    if isinstance(result, Table):
        sys.stdout.writelines(f"{line}\n" for line in table_lines(result, at_terminal))
    elif isinstance(result, Iterator):
        for line in result:
            if at_terminal:
                print(printable(line), flush=True)
            else:
                sys.stdout.write(line + "\n")
    elif result is not None:
        sys.stdout.write(strict_json.dumps(result, indent=2) + "\n")


def _complain(terminal: Terminal, message: str, code: int, error: Exception | None = None) -> int:
    """Give the code, and say why. Where many processes have the same to say, one does: whoever knows of the others
    has found out (training/distributed.py), and before that, the first of each machine."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    is_repeated = getattr(error, "is_repeated", None)
    if is_repeated is None and error is not None:
        is_repeated = _rank("LOCAL_RANK") > 0
    if not is_repeated:
        terminal.say(f"transduce: {message}")
    return code


def _rank(name: str = "RANK") -> int:
    """The number of this process among those that torchrun has started, in all or on this machine; 0 without it."""
    return int(os.environ.get(name, "0")) if "TORCHELASTIC_RUN_ID" in os.environ else 0


def _would_be_started_again() -> bool:
    """torchrun takes every code but 0 for a failure, and starts all processes again while it may."""
    may, did = (os.environ.get(f"TORCHELASTIC_{name}", "0") for name in ("MAX_RESTARTS", "RESTART_COUNT"))
    return int(may) > int(did)


def entry() -> None:
    sys.exit(main())
