"""Hostile models, runs, texts and outputs against the command line.

    python tests/hostile.py --models 1500 --runs 500 --texts 200 --outputs 150 --seed 1

A small model and a small run are trained once. Each case copies one of them into a folder of its own, changes it
(hostile_cases.py), and runs one command on it in a forked child. It is broken if the command crashes, hangs, needs much
memory, ends with another code than 0 or 2, does not say why in one line, writes where it must not, loses or alters what
it was given, accepts what is wrong, or gives other lines than it was asked for. A broken case can be repeated alone, by
its name and seed: `--only NAME --seed N` also shows what it said and leaves its folder. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import hashlib
import importlib
import json
import multiprocessing
import os
import pkgutil
import re
import resource
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
import traceback
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from hostile_cases import (
    ACCEPTED,
    EITHER,
    MANIFESTS,
    MODELS,
    REFUSED,
    RUNS,
    SAME,
    STEERING,
    TEXTS,
    UNTOUCHED,
    linked,
)

SECONDS, MEGABYTES = 10.0, 500  # that a case may take; the latter beyond a translation that nobody disturbs
AFTERWARDS = 2.0  # seconds that a process beside the command has, once that has ended
MOST_MEMORY, MOST_DISK = 3 << 30, 1 << 30  # where the system steps in, for the sake of this machine
LONGEST_MESSAGE = 20_000  # characters
DEVICES = {"null": 3, "zero": 5, "full": 7, "urandom": 9}  # minor numbers
STEPS, WIDTH = 8, 16
TINY = f"--preset tiny --model.layers 1 --model.d_model {WIDTH} --model.d_ff 24 --model.heads 2".split()
SMALL = f"""--device cpu --model.max_positions 64 --data.max_tokens 60 --batch.tokens 1500
  --optimizer.schedule constant --optimizer.rate 3e-3 --optimizer.warmup 10 --training.validate_every {STEPS // 2}
  --training.log_every 2 --training.bleu_lines 4 --training.average 2 --training.keep_best 2
  --training.ema 0.9""".split()
SUBWORDS = ["--text.vocabulary", 200, "--text.sampling", 0.1, "--text.variants", 2]
Fault = tuple[str, str]  # the reason in a word or two, and what exactly
Words = list[Any]  # of a command line
Changes = dict[Path, bool]  # what is not as before, and whether it is new


class Place:
    """The folder of a case; what a command is given lies deep in it, so that names with .. still end in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.here, self.outside = root, root / "deep" / "er", root / "outside"
        self.victim, self.text, self.out, self.sandbox = (
            self.here / name for name in ("victim", "text", "out", "sandbox")
        )


@dataclass(frozen=True)
class Attack:
    """One command on what was prepared for it, and what must come of it."""

    words: Words
    must: str = EITHER
    writes: tuple[Path, ...] = ()  # what it changes if it is accepted
    leaves: tuple[Path, ...] = ()  # what it may change, also if it is refused
    adds: tuple[Path, ...] = ()  # where it may leave new files, also if it is refused
    stdin: Path = Path(os.devnull)
    disk: int = MOST_DISK  # bytes that a file may have
    lines: Path | None = None  # the text of which each line is answered by one
    json: str = ""  # lines, or whole: what is JSON on standard output
    beside: Callable[[], Any] | None = None  # runs in a process of its own meanwhile
    check: Callable[[], str | None] | None = None  # what else is wrong after it was accepted


class Case(NamedTuple):
    kind: str
    name: str
    command: str
    seed: int

    def __str__(self) -> str:
        return " @ ".join(part for part in self[:3] if part)


class Outcome(NamedTuple):
    code: int | None  # none: it was killed, by us if it took too long
    killed: str
    seconds: float
    processor: float  # seconds of it
    megabytes: float
    out: bytes
    err: str


class Result(NamedTuple):
    case: Case
    outcome: Outcome
    faults: list[Fault]

    def __str__(self) -> str:
        told = "; ".join(f"{reason} ({text})" for reason, text in self.faults)
        return f"--only {str(self.case)!r} --seed {self.case.seed}: {told}"


# ---- one command in a child ------------------------------------------------------------------------------------------


def fork(work: Callable[[], Any], out: Path, err: Path, stdin: Path = Path(os.devnull)) -> int:
    """Do some work in a child, which ends with its code; 70 and a traceback where something escapes."""
    if child := os.fork():
        return child
    code = 70
    try:
        os.setsid()
        for number, path, flags in ((0, stdin, 0), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
            os.dup2(os.open(path, flags | os.O_CREAT | os.O_APPEND if number else flags), number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  (multiprocessing has put something else there)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = work() or 0
        threading._shutdown()  # as Python does at its end: what other threads still do counts too
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def limited(words: Words, place: Place, disk: int = MOST_DISK) -> int:
    from transduce.cli import main

    # not RLIMIT_AS: a file that is mapped needs no memory
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))
    os.chdir(place.sandbox)
    return main(list(map(str, words)))


def run(attack: Attack, place: Place, limit: float) -> Outcome:
    """The command, watched from outside; killed after so many seconds."""
    logs = [place.root.with_suffix(f".{end}") for end in ("out", "err", "beside")]
    helper = fork(attack.beside, logs[2], logs[2]) if attack.beside else 0
    begin = time.monotonic()
    child = fork(lambda: limited(attack.words, place, attack.disk), logs[0], logs[1], attack.stdin)
    ended = wait(child, limit)
    seconds = time.monotonic() - begin
    if helper and (ended is None or wait(helper, AFTERWARDS) is None):
        kill(helper)
    _, status, usage = ended or kill(child)
    killed = f"no end after {limit:g} s" if ended is None else ""
    if ended is not None and os.WIFSIGNALED(status):
        killed = signal.Signals(os.WTERMSIG(status)).name
    out, err = (log.read_bytes() for log in logs[:2])
    for log in logs:
        log.unlink(missing_ok=True)
    code = None if killed else os.waitstatus_to_exitcode(status)
    used = usage.ru_utime + usage.ru_stime
    return Outcome(code, killed, seconds, used, usage.ru_maxrss / 1000, out, err.decode("utf-8", "replace"))


Ended = tuple[int, int, resource.struct_rusage]  # process, status, what it has used


def wait(process: int, seconds: float) -> Ended | None:
    """Until it has ended, but no longer than that."""
    begin = time.monotonic()
    while not (ended := os.wait4(process, os.WNOHANG))[0]:
        if time.monotonic() - begin > seconds:
            return None
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # what it has started and not waited for
    return ended


def kill(process: int) -> Ended:
    """With whatever it has started."""
    os.killpg(process, signal.SIGKILL)
    return os.wait4(process, 0)


# ---- the judge -------------------------------------------------------------------------------------------------------


def snapshot(root: Path) -> dict[Path, tuple[Any, ...]]:
    """Everything below a folder, with what would tell that it was written to."""
    paths = (Path(folder, name) for folder, folders, files in os.walk(root) for name in (*folders, *files))
    return {path: _facts(path, path.lstat()) for path in paths}


def _facts(path: Path, status: os.stat_result) -> tuple[Any, ...]:
    if stat.S_ISLNK(status.st_mode):
        return ("link", os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return (stat.S_IFMT(status.st_mode),)
    content = hashlib.sha256(path.read_bytes()).digest() if status.st_size < 50_000_000 else status.st_blocks
    return (status.st_ino, status.st_size, status.st_mtime_ns, content)


def judge(attack: Attack, outcome: Outcome, changed: Changes, usual: float) -> Iterator[Fault]:
    """Whatever is wrong, the worst first; `usual`: megabytes that any command takes."""
    code, err = outcome.code, outcome.err
    if code is None:
        yield ("hang" if outcome.killed.startswith("no end") else "died"), outcome.killed
    elif outcome.seconds > SECONDS and outcome.processor > SECONDS:  # in its longer chance
        yield "hang", f"{outcome.processor:.0f} s"
    if steering := {letter for letter in err if unicodedata.category(letter) == "Cc"} - {"\n", "\t"}:
        yield "steering", repr(sorted(steering))
    for lines, path in re.findall(r"([0-9,]+) lines so far are in (.*\.part)", err):
        if (there := _count(Path(path))) != int(lines.replace(",", "")):
            yield "promise", f"{there} lines for {lines}"
    if "Traceback (most recent call last)" in err:
        yield "traceback", _last_line(err)
    elif code not in (0, 2, None):
        yield "exit code", f"{code}: {_last_line(err)}"
    if outcome.megabytes > usual + MEGABYTES:
        yield "memory", f"{outcome.megabytes - usual:,.0f} MB"
    if others := sorted(_not_allowed(attack, outcome, changed)):
        yield "altered", ", ".join(map(str, others[:3]))
    if code == 2:
        yield from _judge_message(err)
        if attack.must == ACCEPTED:
            yield "refused", _last_line(err)
    if code == 0:
        yield from _judge_accepted(attack, outcome, changed)


def _not_allowed(attack: Attack, outcome: Outcome, changed: Changes) -> Iterator[Path]:
    """Changed, and not to be changed; a new file that the message tells of is no harm."""
    allowed = attack.leaves + (attack.writes if outcome.code != 2 else ())
    for path, is_new in changed.items():
        told = is_new and outcome.code == 2 and str(path) in outcome.err
        places = allowed + (attack.adds if is_new else ())
        if not told and not any(path.is_relative_to(place) for place in places):
            yield path


def _judge_message(err: str) -> Iterator[Fault]:
    """It says what is wrong in one line, at the end."""
    lines = [line for line in err.split("\n") if line.strip()] or [""]
    if sum(line.startswith("transduce: ") for line in lines) != 1 or not lines[-1].startswith("transduce: "):
        yield "message", repr("\n".join(lines[-2:]))[:300]
    elif len(lines[-1]) > LONGEST_MESSAGE:
        yield "message", f"{len(lines[-1]):,} characters"


def _judge_accepted(attack: Attack, outcome: Outcome, changed: Changes) -> Iterator[Fault]:
    if attack.must == REFUSED:
        yield "accepted", repr(outcome.out[:60] or _last_line(outcome.err))
    for path in attack.writes:
        if not any(other.is_relative_to(path) for other in changed):
            yield "not written", str(path)
    wanted = None if attack.lines is None else _count(attack.lines)
    if wanted is not None and (found := outcome.out.count(b"\n")) != wanted:
        yield "line count", f"{found:,} lines for {wanted:,}"
    texts = outcome.out.split(b"\n")[:-1] if attack.json == "lines" else [outcome.out] if attack.json else []
    for text in texts:
        try:
            json.loads(text, parse_constant=_no_number)
        except ValueError as error:
            yield "not JSON", f"{error}: {text[:60]!r}"
            break
    if attack.check is not None and (wrong := attack.check()):
        yield "wrong result", wrong


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _count(path: Path) -> int | None:
    """Lines of a text; none where it cannot be read twice."""
    if not path.is_file() or path.stat().st_size > 1 << 30:
        return None
    lines, last = 0, b"\n"
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        while block := stream.read(1 << 20):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n")


def _last_line(err: str) -> str:
    """Of the last traceback, or of all."""
    lines = [line for line in err.split("\n") if line.strip()] or [""]
    if begins := [place for place, line in enumerate(lines) if line.startswith("Traceback")]:
        lines = [line for line in lines[begins[-1] + 1 :] if not line.startswith(" ")][:1] or lines
    return lines[-1][:300]


# ---- victims ---------------------------------------------------------------------------------------------------------


def make_victims(root: Path) -> None:
    """root/run and root/model: a trained run, and what of it is a model. root/straight: the run when it went on."""
    from sentencepiece import SentencePieceTrainer

    from transduce.cli import main

    assert main(["corpus", str(root / "corpus"), "--train", "300"]) == 0
    (root / "text").mkdir()
    for name, size in {"train.de": 300, "train.en": 300, "dev.de": 60, "dev.en": 60}.items():
        (root / "text" / name).write_text("".join(_lines(root / "corpus" / name)[:size]))
    assert main(train_words(root / "run", root / "text", STEPS)) == 0
    shutil.copytree(root / "run", root / "straight")
    assert main(train_words(root / "straight", root / "text", 2 * STEPS)) == 0
    shutil.copytree(root / "run", root / "model", ignore=shutil.ignore_patterns("data", "step-?"))
    text, other = str(root / "text" / "train.de"), str(root / "other")
    SentencePieceTrainer.train(input=text, model_prefix=other, vocab_size=99, minloglevel=2)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def train_words(run: Path, text: Path, steps: int) -> list[str]:
    files = {"source": "train.de", "target": "train.en", "valid-source": "dev.de", "valid-target": "dev.en"}
    flags = [word for flag, name in files.items() for word in (f"--{flag}", text / name)]
    return list(map(str, ["train", run, *flags, *TINY, *SMALL, *SUBWORDS, "--training.steps", steps]))


def lay_out(root: Path, victims: Path, kind: str) -> Place:
    """A folder for a case, with copies of what it needs."""
    place = Place(root)
    for folder in (place.outside, place.out, place.sandbox, place.text):
        folder.mkdir(parents=True)
    shutil.copytree(victims / ("run" if kind == "runs" else "model"), place.victim)
    shutil.copy(victims / "other.model", place.outside / "other.model")
    for folder in (place.outside, place.root / "deep"):
        (folder / "victim.txt").write_text(UNTOUCHED)
    for name, number in DEVICES.items():  # our own: a command that replaces its output must not replace the system's
        try:
            os.mknod(place.outside / name, 0o666 | stat.S_IFCHR, os.makedev(1, number))
        except PermissionError:
            (place.outside / name).symlink_to(f"/dev/{name}")
    if kind == "runs":
        shutil.copytree(victims / "text", place.text, dirs_exist_ok=True)
    for name, side in (("source", "de"), ("target", "en")):
        some = _lines(victims / "text" / f"train.{side}")[: 6 if kind == "models" else 40]
        (place.text / f"{name}.txt").write_text("".join(some))
    return place


# ---- commands on models, runs and texts ------------------------------------------------------------------------------


def commands(place: Place, source: Path) -> dict[str, Attack]:
    """By the names that mutations use; what must happen is not said yet."""
    model, out, target = place.victim, place.out, place.text / "target.txt"
    files, pairs = (
        ["--source", source, *([] if source.suffix in (".tsv", ".jsonl") else [flag, target])]
        for flag in ("--target", "--reference")
    )
    translate, inspect = ["translate", model, source], ["inspect", model, "ein Satz", "-o", out / "page.html"]
    average = ["average", model, "--output", out / "average"]
    new = ["train", out / "run", *files, *TINY, *SMALL, "--training.steps", 2]
    # what a run that cannot go on may have written before that was found out; never checkpoints and weights
    before = tuple(model / name for name in ("data", "metrics.jsonl", "curve.png", "config.yaml", "manifest.json"))
    before += tuple(model / "training" / name for name in ("chosen.json", "machine"))
    return {
        "translate": Attack(translate, lines=source),
        "translate json": Attack([*translate, "--json"], lines=source, json="lines"),
        "translate best": Attack([*translate, "--weights", "best"], lines=source),
        "score": Attack(["score", model, *files, "--json"], lines=source, json="lines"),
        "evaluate": Attack(["evaluate", model, *pairs, "--json"], json="whole"),
        "inspect": Attack(inspect, writes=(out,)),
        "inspect best": Attack([*inspect, "--weights", "best"], writes=(out,)),
        "average": Attack([*average, "--last", 2], writes=(out,)),
        "average best": Attack([*average, "--best", 2], writes=(out,)),
        "resume": Attack(train_words(model, place.text, 2 * STEPS), writes=(model,), leaves=before, adds=(model,)),
        "runs": Attack(["runs", model]),
        "watch": Attack(["watch", model, "--once"]),
        "plot": Attack(["plot", "curve", model, "-o", out / "curve.png"], writes=(out,)),
        "train": Attack([*new, *SUBWORDS], leaves=(out,)),
        "train characters": Attack([*new, "--text.tokenizer", "characters"], leaves=(out,)),
        "doctor": Attack(["doctor", *files, *TINY]),
    }


KINDS = {
    "models": (MODELS, ("translate", "translate json", "score", "evaluate", "inspect", "average")),
    "runs": (RUNS, ("resume", "resume", "runs", "watch", "average", "average best", "plot")),
    "texts": (TEXTS, ("translate", "translate json", "score", "evaluate", "train", "train characters", "doctor")),
}


def prepare(case: Case, place: Place, victims: Path) -> Attack:
    """Do the harm, and say what is run on it."""
    random = Random(case.seed)
    if case.kind == "outputs":
        return OUTPUTS[case.name](place)
    mutation = next(mutation for mutation in KINDS[case.kind][0] if mutation.name == case.name)
    mutation.change(place.text if case.kind == "texts" else place.victim, random)
    source = next(place.text.glob("source.*"), place.text / "source.txt")
    must = EITHER if case.command in mutation.spared else mutation.must
    attack = replace(commands(place, source)[case.command], must=must)
    if source.is_fifo():
        attack = replace(attack, beside=lambda: source.write_text("eins\nzwei\n") and 0)
    if must in (SAME, ACCEPTED) and case.command == "resume":
        attack = replace(attack, check=lambda: _differs(victims / "straight", place.victim))
    return attack


def _differs(straight: Path, run: Path) -> str | None:
    """Whether the last checkpoint of a run has other weights, or moments, than that of the undisturbed one."""
    for path in (straight / "training" / f"step-{2 * STEPS}").glob("*.safetensors"):
        other = run / path.relative_to(straight)
        if not other.is_file() or other.read_bytes() != path.read_bytes():
            return f"{path.relative_to(straight)} is not that of the undisturbed run"
    return None


# ---- commands that write ---------------------------------------------------------------------------------------------


class Writer(NamedTuple):
    words: Words  # all but the output
    end: str  # of its name
    text: Path | None  # an input


def writers(place: Place) -> dict[str, Writer]:
    model, source, target, whole = (
        place.victim,
        place.text / "source.txt",
        place.text / "target.txt",
        place.here / "whole",
    )
    files = ["--source", source, "--target", target]
    return {
        "translate": Writer(["translate", model, source, "-o"], ".txt", source),
        "score": Writer(["score", model, *files, "-o"], ".txt", target),
        "merge": Writer(["merge", source, target, "-o"], ".txt", target),
        "merge like": Writer(["merge", source, target, "--like", whole, "-o"], ".txt", whole),
        "inspect": Writer(["inspect", model, "ein Satz", "-o"], ".html", None),
        "plot curve": Writer(["plot", "curve", model, "-o"], ".png", None),
        "plot masks": Writer(["plot", "masks", "-o"], ".svg", None),
        "plot attention": Writer(["plot", "attention", model, "ein Satz", "-o"], ".png", None),
        "doctor report": Writer(["doctor", *files, *TINY, "--report-to"], ".json", source),
        "compare": Writer(
            ["compare", model, model, "--source", source, "--reference", target, "--maps", 0, "-o"], ".html", source
        ),
        "plot lengths": Writer(
            ["plot", "lengths", model, "--source", source, "--reference", target, "-o"], ".png", source
        ),
        "plot huffman": Writer(["plot", "huffman", "--source", source, "-o"], ".svg", source),
        "doctor picture": Writer(["doctor", *files, *TINY, "--picture"], ".png", None),
    }


def _put(put: Callable[[Path], Any]) -> Callable[[Place, Writer], Path]:
    """Something in the place of the output."""

    def path(place: Place, writer: Writer) -> Path:
        put(place.out / f"output{writer.end}")
        return place.out / f"output{writer.end}"

    return path


def _put_link(link: Callable[[Path, Any], None]) -> Callable[[Place, Writer], Path]:
    return lambda place, writer: _put(lambda path: link(path, writer.text))(place, writer)


def _write(path: Path) -> None:
    path.write_text(UNTOUCHED)


PAGE = "<!doctype html>\n<html lang=en>\n<title>What I do with transduce</title>\n<p>transduce is ...</p>\n"
SPOTS: dict[str, tuple[str, Callable[[Place, Writer], Any]]] = {  # what must happen, and where the output goes
    "a new file": (ACCEPTED, _put(lambda path: None)),
    "a file": (REFUSED, _put(_write)),
    "a link to a file": (REFUSED, _put(linked("victim.txt"))),
    "a page about us": (REFUSED, _put(lambda path: path.write_text(PAGE))),
    "a link to itself": (REFUSED, _put(lambda path: path.symlink_to(path.name))),
    "a link to nothing": (EITHER, _put(linked("new.txt"))),
    "a folder": (REFUSED, _put(Path.mkdir)),
    "a full disk": (REFUSED, _put(linked("full"))),
    "the null device": (EITHER, _put(linked("null"))),
    "a file in no folder": (EITHER, lambda place, writer: place.here / "new" / f"file{writer.end}"),
    "a file of the model": (REFUSED, lambda place, writer: place.victim / "config.yaml"),
    "an input": (REFUSED, lambda place, writer: writer.text),
    "a hard link to an input": (REFUSED, _put_link(Path.hardlink_to)),
    "a link to an input": (REFUSED, _put_link(Path.symlink_to)),
}


def onto(command: str, spot: str, *force: str) -> Callable[[Place], Attack]:
    """A command whose output is something that may be there already."""

    def attack(place: Place) -> Attack:
        (place.here / "whole").write_text("x\n" * 80)
        writer = writers(place)[command]
        must = ACCEPTED if force and spot == "a file" else SPOTS[spot][0]
        path = SPOTS[spot][1](place, writer)
        leaves = (path, place.outside / "new.txt", place.here / "new") if must == EITHER else ()
        return Attack([*writer.words, path, *force], must, (path,) if must == ACCEPTED else (), leaves)

    return attack


def onto_all() -> Iterator[tuple[str, Callable[[Place], Attack]]]:
    nowhere = Place(Path())
    for command, writer in writers(nowhere).items():
        spots = [spot for spot in SPOTS if writer.text or "input" not in spot]
        yield from ((f"{command} onto {spot}", onto(command, spot)) for spot in spots)
        given = {"a file": True, "a file of the model": nowhere.victim in writer.words, "a link to itself": True}
        given |= dict.fromkeys(("an input", "a hard link to an input", "a link to an input"), bool(writer.text))
        forced = (spot for spot, is_given in given.items() if is_given)
        yield from ((f"{command} --force onto {spot}", onto(command, spot, "--force")) for spot in forced)


def from_itself(place: Place) -> Attack:
    text = place.here / "text.txt"
    text.write_text("ein Satz\n" * 5000)
    return Attack(["translate", place.victim, "--beam", 1, "-o", text], REFUSED, stdin=text)


def late_fault(place: Place, *force: str) -> Attack:
    text, output = place.here / "text.txt", place.out / "output.txt"
    text.write_bytes(b"ein\n" * 5000 + b"caf\xe9\n")
    _write(output)
    return Attack(["translate", place.victim, text, "--beam", 1, "-o", output, *force], REFUSED)


def small_disk(place: Place, *force: str, there: bool = True) -> Attack:
    files, output = [place.here / "many.de", place.here / "many.en"], place.out / "output.txt"
    for path in files:
        path.write_text("ein\n" * 4000)
    if there:
        _write(output)
    words = ["score", place.victim, "--source", files[0], "--target", files[1], "-o", output, *force]
    return Attack(words, REFUSED, disk=5000)


def two_writers(place: Place) -> Attack:
    """Of a long text, and meanwhile of a short one, to one file: it is then that of one of them."""
    output, parts = place.out / "output.txt", [place.here / "long", place.here / "short"]
    texts = [("a" * 40 + "\n") * 200_000, ("b" * 40 + "\n") * 1000]
    for part, text in zip(parts, texts, strict=True):
        part.write_text(text)
    long, short = (["merge", part, part, "-o", output] for part in parts)

    def meanwhile() -> int:
        while not any(place.out.iterdir()):
            time.sleep(0.001)
        return limited(short, place)

    def check() -> str | None:
        content = output.read_text()
        return None if content in (2 * texts[0], 2 * texts[1]) else f"{len(content):,} characters, of both"

    return Attack(long, leaves=(place.out,), beside=meanwhile, check=check)


def into_a_pipe(place: Place) -> Attack:
    pipe, copy = place.out / "pipe", place.out / "copy"
    os.mkfifo(pipe)
    words = ["translate", place.victim, place.text / "source.txt", "-o", pipe]
    copied = lambda: copy.write_bytes(pipe.read_bytes()) and 0  # noqa: E731
    check = lambda: None if _count(copy) == 40 else f"{_count(copy)} lines came out of the pipe"  # noqa: E731
    return Attack(words, leaves=(copy,), beside=copied, check=check)


def page_is(put: Callable[[Path], Any], must: str, place: Place) -> Attack:
    """inspect without -o, where something lies in the place of its page."""
    put(place.victim / "attention.html")
    return Attack(["inspect", place.victim, "ein Satz"], must, leaves=(place.victim / "attention.html",))


def asked(words: Words, must: str, place: Place) -> Attack:
    """translate, with wishes that are too much."""
    return Attack(["translate", place.victim, place.text / "source.txt", *words], must)


def _many_words(count: int) -> Words:
    words = (f"{a}{b}{c}" for a in "abdefghiklmnorst" for b in "aeiou" for c in "bdeghiklmnorstabdeghiklmnorst" * 9)
    return [part for word, _ in zip(words, range(count), strict=False) for part in ("--forbid", word)]


def corpus_onto(put: Callable[[Path], Any], must: str, place: Place, *force: str) -> Attack:
    put(place.out / "dev.en")
    others = tuple(place.out / f"{name}.{side}" for name in ("train", "dev", "test") for side in ("de", "en"))
    writes = (place.out / "dev.en",) if must == ACCEPTED else ()
    leaves = tuple(path for path in others if path.name != "dev.en")
    return Attack(["corpus", place.out, "--train", 50, *force], must, writes, leaves)


def clean_onto(name: str, must: str, place: Place, *force: str) -> Attack:
    """doctor --clean onto a file of that name; without one, into the folder of its input."""
    folder = place.out if name else place.text
    if name:
        _write(folder / name)
    words = [*writers(place)["doctor report"].words[:-1], "--clean", folder, *force]
    return Attack(
        words, must, (place.out / name,) if must == ACCEPTED else (), (place.out,) if must == ACCEPTED else ()
    )


def average_to(put: Callable[[Place, Path], Any], place: Place) -> Attack:
    put(place, place.out / "average")
    return Attack(["average", place.victim, "--last", 2, "--output", place.out / "average"], REFUSED)


def _name_in_manifest(title: str) -> Callable[[Place, Path], Any]:
    change = next(change for name, _, change in MANIFESTS if name == title)
    return lambda place, path: change(place.victim, Random(0))


def _forced(attack: Callable[..., Attack]) -> Callable[[Place], Attack]:
    return lambda place: attack(place, "--force")


bound = functools.partial
OUTPUTS: dict[str, Callable[[Place], Attack]] = {
    **dict(onto_all()),
    "translate onto its standard input": from_itself,
    "translate with a fault at line 5,001": late_fault,
    "translate --force with a fault at line 5,001": _forced(late_fault),
    "score to a small disk": bound(small_disk, there=False),
    "score to a small disk onto a file": small_disk,
    "score --force to a small disk onto a file": _forced(small_disk),
    "two merge to one file": two_writers,
    "translate into a pipe": into_a_pipe,
    "inspect, its page a file": bound(page_is, _write, EITHER),
    "inspect, its page a link to a file": bound(page_is, linked("victim.txt"), EITHER),
    "inspect, its page a link to nothing": bound(page_is, linked("new.txt"), EITHER),
    "inspect, its page a folder": bound(page_is, Path.mkdir, REFUSED),
    "inspect, its page a pipe": bound(page_is, os.mkfifo, REFUSED),
    **{
        f"translate --keep {title}": bound(asked, ["--keep", pattern], must)
        for title, must, pattern in (
            ("nested", EITHER, r"(\w+\s?)+\d"),
            ("ambiguous", EITHER, "(?:e|er|r)*[0-9]"),
            ("of four spaces", EITHER, r"\s*\s*\s*[0-9]"),
            ("that counts far", REFUSED, "a{4294967295}"),
            ("nested deep", REFUSED, "(" * 5000 + ")" * 5000),
            ("that steers the terminal", REFUSED, f"({STEERING}"),
        )
    },
    "translate --forbid 100,000 letters": bound(asked, ["--forbid", "a" * 100_000], REFUSED),
    "translate --forbid 300 words": bound(asked, _many_words(300), EITHER),
    "translate --forbid 3,000 words": bound(asked, _many_words(3000), REFUSED),
    "corpus onto a file": bound(corpus_onto, _write, REFUSED),
    "corpus --force onto a file": _forced(bound(corpus_onto, _write, ACCEPTED)),
    "corpus onto a folder": bound(corpus_onto, Path.mkdir, REFUSED),
    "doctor --clean onto its input": bound(clean_onto, "", REFUSED),
    "doctor --clean --force onto its input": _forced(bound(clean_onto, "", REFUSED)),
    **{f"doctor --clean onto {n}": bound(clean_onto, n, REFUSED) for n in ("source.txt", "target.txt", "dropped.tsv")},
    "doctor --clean --force onto a file": _forced(bound(clean_onto, "source.txt", ACCEPTED)),
    "average to a folder in use": bound(average_to, lambda place, path: shutil.copytree(place.text, path)),
    "average to a file": bound(average_to, lambda place, path: _write(path)),
    "average to a link to a folder in use": bound(average_to, lambda place, path: path.symlink_to(place.text)),
    "average to itself": bound(average_to, lambda place, path: path.symlink_to(place.victim)),
    "average of a name above": bound(average_to, _name_in_manifest("a name above")),
    "average of an absolute name": bound(average_to, _name_in_manifest("an absolute name")),
}

# ---- the whole -------------------------------------------------------------------------------------------------------


def draw(kind: str, number: int, seed: int) -> list[Case]:
    """Each command on what is whole; then every mutation once before any comes again, with a command by chance."""
    chance = Random(f"{seed} {kind}")
    entries, drawn = [(name, ("",)) for name in OUTPUTS], []
    if kind != "outputs":
        entries = [(mutation.name, mutation.only or KINDS[kind][1]) for mutation in KINDS[kind][0]]
        drawn = [("nothing", (command,)) for command in sorted({command for _, names in entries for command in names})]
    while len(drawn) < number:
        drawn += chance.sample(entries, len(entries))
    return [Case(kind, name, chance.choice(c), seed * 1_000_000 + i) for i, (name, c) in enumerate(drawn[:number])]


def try_case(case: Case, root: Path, usual: float, keep: bool = False, limit: float = SECONDS) -> Result:
    folder = root / f"{case.kind}-{case.seed}"
    place = lay_out(folder, root, case.kind)
    try:
        attack = prepare(case, place, root)
    except Exception as error:  # the package keeps its files in another way than this script knows
        return Result(case, Outcome(None, "", 0, 0, 0, b"", ""), [("not prepared", repr(error))])
    before = snapshot(folder)
    outcome = run(attack, place, limit)
    after = snapshot(folder)
    if outcome.code is None and limit == SECONDS and outcome.processor < limit / 2:
        shutil.rmtree(folder)  # did it wait for something, or was the machine busy? it has one more, longer, chance
        return try_case(case, root, usual, keep, 2 * limit)
    changed = {path: path not in before for path in before | after if before.get(path) != after.get(path)}
    faults = [(reason, text.replace(str(folder), "CASE")) for reason, text in judge(attack, outcome, changed, usual)]
    if keep:
        print(*attack.words, f"\n{outcome.out[:2000].decode('utf-8', 'replace')}\n{outcome.err[-5000:]}\n{folder}")
    else:
        shutil.rmtree(folder)
    return Result(case, outcome._replace(megabytes=outcome.megabytes - usual, out=b"", err=""), faults)


def try_all(cases: list[Case], root: Path, usual: float, jobs: int) -> Iterator[Result]:
    broken = 0
    # an executor: unlike those of a Pool, its processes may have children that have children
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"))
    try:
        for number, result in enumerate(pool.map(functools.partial(try_case, root=root, usual=usual), cases), 1):
            yield result
            if result.faults:  # now too: somebody may end this before its table
                broken += 1
                print(str(result)[:300], file=sys.stderr, flush=True)
            if number % 100 == 0:
                print(f"{number:,} of {len(cases):,} cases, {broken:,} broken", file=sys.stderr, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


def report(results: Iterable[Result], begin: float) -> int:
    """The table, then a line for each broken case; gives the exit code."""
    results = list(results)
    reasons = Counter(result.faults[0][0] for result in results if result.faults)
    print(f"{'kind':10}" + "".join(f"{head:>13}" for head in ("cases", "refused", "accepted", "broken", *reasons)))
    for kind in (*KINDS, "outputs"):
        mine = [result for result in results if result.case.kind == kind]
        broken = Counter(result.faults[0][0] for result in mine if result.faults)
        codes = [sum(result.outcome.code == code for result in mine) for code in (2, 0)]
        numbers = [len(mine), *codes, broken.total(), *(broken[reason] for reason in reasons)]
        print(f"{kind:10}" + "".join(f"{number:13,}" for number in numbers))
    for result in results:
        if result.faults:
            print(result)
    slowest, largest = (
        max(results, key=lambda one, of=of: getattr(one.outcome, of)) for of in ("seconds", "megabytes")
    )
    print(f"slowest: {slowest.outcome.seconds:.1f} s, {slowest.case}")
    print(f"largest: {largest.outcome.megabytes:,.0f} MB, {largest.case}")
    print(f"{len(results):,} cases in {time.monotonic() - begin:.0f} s, {reasons.total():,} broken")
    return 1 if reasons else 0


def import_everything() -> None:
    """Once for all children: torch, what commands use, and every room of the package."""
    import torch

    import transduce

    torch.set_num_threads(1)
    print(f"attacking {Path(transduce.__file__).parent}", flush=True)
    rooms = pkgutil.walk_packages(transduce.__path__, "transduce.", onerror=lambda name: None)
    others = ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "sacrebleu", "sentencepiece")
    for name in (*others, *(room.name for room in rooms if not room.name.endswith("__main__"))):
        with contextlib.suppress(Exception):  # of an extra that is not installed
            importlib.import_module(name)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind, number in (("models", 1500), ("runs", 500), ("texts", 200), ("outputs", 150)):
        words.add_argument(f"--{kind}", type=int, default=number)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--jobs", type=int, default=1, help="cases at a time")
    words.add_argument("--only", help="the name of one case, to be tried alone with its --seed")
    given = words.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  (names may be no UTF-8)
    root = Path(tempfile.mkdtemp(prefix="hostile-"))
    os.environ |= {"MPLCONFIGDIR": str(root / "matplotlib"), "TMPDIR": str(root), "OMP_NUM_THREADS": "1"}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of `finally`: nothing is left behind
    begin = time.monotonic()
    import_everything()
    try:
        child = fork(lambda: make_victims(root), root / "victims.log", root / "victims.log")
        if os.waitpid(child, 0)[1]:
            print((root / "victims.log").read_text())
            return 1
        usual = try_case(Case("models", "nothing", "translate", 0), root, 0).outcome.megabytes
        if given.only:
            kind, name, command = [*given.only.split(" @ "), ""][:3]
            return report([try_case(Case(kind, name, command, given.seed), root, usual, keep=True)], begin)
        cases = [case for kind in (*KINDS, "outputs") for case in draw(kind, getattr(given, kind), given.seed)]
        return report(try_all(cases, root, usual, given.jobs), begin)
    finally:
        if not given.only:
            shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
