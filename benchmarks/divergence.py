"""Runs that are made to fail, four ways: is it noticed, named, mended or stopped, and never called best?

    python benchmarks/divergence.py --data data --minutes 3

20,000 pairs of Tatoeba de-en, spread over its text. `rate`: thirty times the recipe's learning rate. `warm-up`: norms
after the layers, a warm-up of 100 updates and eight times the rate. `both`: norms after the layers and
thirty times the rate. `text`: the target of every second
pair is another's, its words in random order. Prints what each run says about it and where it ends, and writes it to
benchmarks/results/divergence.json.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import write
from recipe import write_splits

from transduce.settings.recipes import RECIPES

HERE = Path(__file__).parent
PAIRS = 20_000
WAYS = {
    "rate": ["--optimizer.rate=0.036"],
    "warm-up": ["--model.norm=after", "--optimizer.warmup=100", "--optimizer.rate=0.01"],
    "both": ["--model.norm=after", "--optimizer.warmup=100", "--optimizer.rate=0.036"],
    "text": [],
}
TOLD = re.compile(
    r"diverge|calm|guess|use yet|little was learned|belong together|best so far|are over|"
    r"(best|averaged|last)\)? weights"
)


def corrupt(path: Path) -> None:
    """Half of the lines: another's words, in random order."""
    lines, draw = path.read_text(encoding="utf-8").splitlines(), random.Random(1)
    for i in range(0, len(lines), 2):
        words = draw.choice(lines).split()
        draw.shuffle(words)
        lines[i] = " ".join(words) or "?"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def one(way: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    splits = write_splits(RECIPES["tatoeba-de-en"], given.data, PAIRS, folder, of_all=True)
    if way == "text":
        corrupt(Path(splits["train"][1]))
    text = [f"--{name}={path}" for name, path in zip(("source", "target"), splits["train"], strict=True)]
    text += [f"--valid-{name}={path}" for name, path in zip(("source", "target"), splits["valid"], strict=True)]
    command = [sys.executable, "-m", "transduce", "train", str(folder / "run"), *text, *WAYS[way]]
    done = subprocess.run(
        [*command, "--minutes", f"{given.minutes:g}", "--device", given.device], stderr=subprocess.PIPE, text=True
    )
    told = [line for line in done.stderr.replace("\r", "\n").splitlines() if TOLD.search(line)]
    told = [line.replace(str(folder), "…") for line in told if not line.startswith("train:")]
    metrics = folder / "run" / "metrics.jsonl"
    kinds = [json.loads(line)["kind"] for line in metrics.read_text().splitlines()]
    return {"flags": WAYS[way], "exit": done.returncode, "diverged": kinds.count("diverged"), "told": told}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--minutes", type=float, default=3.0)
    words.add_argument("--device", default="cpu")
    words.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    words.add_argument("--name", default="divergence")
    words.add_argument("--output", type=Path, default=HERE / "results")
    given = words.parse_args()
    found = {}
    for way in given.ways:
        with tempfile.TemporaryDirectory() as temporary:
            found[way] = one(way, given, Path(temporary))
        print(f"{way} {' '.join(WAYS[way])}", *found[way]["told"], f"exit {found[way]['exit']}", sep="\n  ", flush=True)
    write(given.output, given.name, {"minutes": given.minutes, **found})


if __name__ == "__main__":
    main()
