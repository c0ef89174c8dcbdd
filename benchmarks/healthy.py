"""Twenty healthy courses of training, none of which may be taken for a divergence.

    python benchmarks/healthy.py [--jobs 2] [--device cpu]

A loss goes up for good reasons: more dropout, other text, another precision; and it is noisy where batches are small or
the text is. Each course trains on the bundled corpus (or noisy copies of it) in one to three sessions of the same run.
Prints for each what was said of divergence, and how high its loss rose above the lowest before; writes
benchmarks/results/healthy.json. `benchmarks/divergence.py` has the courses that must be noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import write

HERE = Path(__file__).parent
PAIRS = 5_000

Session = tuple[str, ...]  # the flags of one session
Course = tuple[str, tuple[Session, ...]]  # the text it trains on, and its sessions


def then(*sessions: Session, text: str = "clean") -> Course:
    return text, sessions


FIRST, MORE = ("--training.steps=450",), ("--training.steps=1500",)
COURSES: dict[str, Course] = {
    "given more steps": then(FIRST, MORE),
    "given more steps, seed 2": then((*FIRST, "--training.seed=2"), MORE),
    "given more steps twice": then(("--training.steps=300",), ("--training.steps=700",), ("--training.steps=1700",)),
    "given more steps, a line an update": then((*FIRST, "--training.log_every=1"), MORE),
    "dropout 0 to 0.3": then((*FIRST, "--model.dropout=0"), (*MORE, "--model.dropout=0.3")),
    "dropout 0 to 0.5": then((*FIRST, "--model.dropout=0"), (*MORE, "--model.dropout=0.5")),
    "dropout 0.5 to 0 to 0.5": then(
        (*FIRST, "--model.dropout=0.5"),
        ("--training.steps=900", "--model.dropout=0"),
        (*MORE, "--model.dropout=0.5"),
    ),
    "attention dropout": then(FIRST, (*MORE, "--model.attention_dropout=0.3")),
    "feed-forward dropout": then(FIRST, (*MORE, "--model.feed_forward_dropout=0.4")),
    "noisy text, a line an update": then(("--training.steps=1200", "--training.log_every=1"), text="noisy"),
    "noisy text, a line a hundred updates": then(("--training.steps=1200", "--training.log_every=100"), text="noisy"),
    "small batches, a line an update": then(
        ("--training.steps=2000", "--training.log_every=1", "--batch.tokens=64"),
    ),
    "small batches, a line a hundred updates": then(
        ("--training.steps=2000", "--training.log_every=100", "--batch.tokens=64"),
    ),
    "noisy text in small batches": then(
        ("--training.steps=2000", "--training.log_every=1", "--batch.tokens=64"), text="noisy"
    ),
    "noisy text added": then(FIRST, (*MORE, "ADD noisy")),
    "clean text added to noisy": then(FIRST, (*MORE, "ADD clean"), text="noisy"),
    "bfloat16 after float32": then(FIRST, ("--training.steps=900", "--training.precision=bfloat16")),
    "float32 after bfloat16": then(
        (*FIRST, "--training.precision=bfloat16"), ("--training.steps=900", "--training.precision=float32")
    ),
    "few pairs by heart, then dropout": then(
        ("--training.steps=1500", "--model.dropout=0"), (*MORE, "--model.dropout=0.4"), text="few"
    ),
    "a classifier by heart, then dropout": then(
        ("--training.steps=600", "--model.dropout=0", "--task=classify"),
        ("--training.steps=1800", "--model.dropout=0.4"),
        text="labels",
    ),
}


def write_texts(folder: Path) -> None:
    """The bundled corpus as it is, few lines of it, a copy of which three targets in ten are another line's, and its
    sources with labels."""
    command = [sys.executable, "-m", "transduce", "corpus", str(folder / "corpus")]
    subprocess.run(command, check=True, capture_output=True)
    source, target = (
        (folder / "corpus" / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("de", "en")
    )
    draw = random.Random(1)
    noisy = [draw.choice(target) if draw.random() < 0.3 else line for line in target[-PAIRS:]]
    labels = ["long" if len(line.split()) > 7 else "short" for line in source[:PAIRS]]
    texts = {
        "clean": (source[:PAIRS], target[:PAIRS]),
        "noisy": (source[-PAIRS:], noisy),
        "few": (source[:300], target[:300]),
        "labels": (source[:PAIRS], labels),
    }
    for name, sides in texts.items():
        for end, lines in zip(("source", "target"), sides, strict=True):
            (folder / f"{name}.{end}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run_course(name: str, texts: Path, device: str) -> dict[str, Any]:
    """All sessions of a course, one after the other, in one run folder."""
    text, sessions = COURSES[name]
    with tempfile.TemporaryDirectory() as folder:
        run, told, code = Path(folder) / "run", [], 0
        for flags in sessions:
            added = [flag.removeprefix("ADD ") for flag in flags if flag.startswith("ADD ")]
            files = [f"--{end}={texts / other}.{end}" for other in (text, *added) for end in ("source", "target")]
            given = [flag for flag in flags if not flag.startswith("ADD ")]
            done = subprocess.run(
                [sys.executable, "-m", "transduce", "train", str(run), *files, *given, "--device", device],
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            code = code or done.returncode
            lines = done.stderr.replace("\r", "\n").splitlines()
            told += [line for line in lines if "diverge" in line or line.startswith("transduce:")]
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if record["kind"] == "train"]
    highest = max(loss / min(losses[: place + 1]) for place, loss in enumerate(losses))
    stopped = sum(record["kind"] == "diverged" for record in records)
    return {"exit": code, "diverged": stopped, "highest rise": round(highest, 2), "told": told}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--jobs", type=int, default=2, help="courses that run beside each other")
    words.add_argument("--device", default="cpu")
    words.add_argument("--courses", nargs="+", choices=COURSES, default=list(COURSES))
    words.add_argument("--output", type=Path, default=HERE / "results")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        write_texts(Path(folder))
        jobs = {name: pool.submit(run_course, name, Path(folder), given.device) for name in given.courses}
        found = {}
        for name, job in jobs.items():
            found[name] = job.result()
            print(f"{name}: {found[name]}", flush=True)
    healthy = sum(not course["diverged"] and not course["exit"] for course in found.values())
    print(f"{healthy} of {len(found)} courses ended as they should")
    write(given.output, "healthy", {"device": given.device, **found})


if __name__ == "__main__":
    main()
