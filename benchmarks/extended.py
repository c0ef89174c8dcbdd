"""What a run reaches that is given twice its time when it is done, beside one that has had it from the beginning.

    python benchmarks/extended.py multi30k-de-en --minutes 15 [--seeds 1 2 3] [--pairs N] [--ways extended whole]
    python benchmarks/extended.py multi30k-de-en --updates 6000 --device cuda --flags batch.tokens=512 ...
    python benchmarks/extended.py --table

Nothing is said but the text and the time, and what --flags name. A clock shows other numbers of updates each time, and
BLEU differs by some tenths from seed to seed; so many updates on a GPU, for several seeds, tell more about the rule.
The test text is looked at only here. Adds lines to benchmarks/results/extended.jsonl; --table shows their means.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from common import machine
from recipe import transduce, write_splits

from transduce.settings import config_file
from transduce.settings.recipes import RECIPES

HERE = Path(__file__).parent
STAGES = ("first", "extended", "whole")


def scored(run: Path, test: list[str], tokenize: list[str]) -> dict[str, Any]:
    """Of the model in its folder as it is now."""
    source, reference = test
    flags = ["--source", source, "--reference", reference, *tokenize, "--json"]
    bleu = json.loads(transduce("evaluate", str(run), *flags))["scores"]["BLEU"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if line["kind"] == "valid"]
    settings = config_file.read_whole(run / "config.yaml")
    return {
        "bleu": round(bleu["score"], 2),
        "signature": bleu["signature"],
        "updates": max(line["step"] for line in lines),
        "validation loss": round(validations[-1]["loss"], 3),
        "dropout": settings.model.dropout,
        "batch.tokens": settings.batch.tokens,
        "optimizer.rate": settings.optimizer.rate,
    }


def stages(way: str, given: argparse.Namespace, seed: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Train once, or once and then again in the same folder."""
    recipe, run = RECIPES[given.task], str(folder / "run")
    splits = write_splits(recipe, given.data, given.pairs, folder, of_all=True)
    (source, target), (valid_source, valid_target) = splits["train"], splits["valid"]
    text = ["--source", source, "--target", target, "--valid-source", valid_source, "--valid-target", valid_target]
    flags = [*text, "--device", given.device, "--training.seed", str(seed), *(f"--{flag}" for flag in given.flags)]
    tokenize = ["--tokenize", "zh"] if recipe.target == "zh" else []

    def limit(times: int) -> list[str]:
        if given.updates:
            return ["--training.steps", str(times * given.updates)]
        return ["--minutes", f"{times * given.minutes:g}"]

    if way == "whole":
        transduce("train", run, *flags, *limit(2))
        return {"whole": scored(Path(run), splits["test"], tokenize)}
    transduce("train", run, *flags, *limit(1))
    first = scored(Path(run), splits["test"], tokenize)
    transduce("train", run, *limit(2))
    return {"first": first, "extended": scored(Path(run), splits["test"], tokenize)}


def table(path: Path) -> None:
    """A row for text, time and device; for each stage the mean over seeds, and how many."""
    rows: dict[tuple, dict[str, list[float]]] = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        key = line["device"], line["task"], line["pairs"] or "all", line["time"]
        rows.setdefault(key, {}).setdefault(line["stage"], []).append(line["bleu"])
    print("| device | text | pairs | time |", " | ".join(STAGES), "|\n|" + "---|" * (4 + len(STAGES)))
    for key, found in sorted(rows.items(), key=str):
        cells = [f"{statistics.mean(found[s]):.2f} ({len(found[s])})" if s in found else "" for s in STAGES]
        print("|", " | ".join(map(str, [*key, *cells])), "|")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("task", nargs="?", choices=RECIPES)
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--minutes", type=float, default=15.0, help="of the first time; then twice as many")
    words.add_argument("--updates", type=int, help="instead of minutes")
    words.add_argument("--ways", nargs="+", choices=("extended", "whole"), default=["extended", "whole"])
    words.add_argument("--seeds", type=int, nargs="+", default=[1])
    words.add_argument("--pairs", type=int, help="so many of the training text, spread over it")
    words.add_argument("--device", default="cpu")
    words.add_argument("--flags", nargs="*", default=[], help="further flags of transduce train, without the dashes")
    words.add_argument("--out", type=Path, default=HERE / "results" / "extended.jsonl")
    words.add_argument("--table", action="store_true")
    given = words.parse_args()
    if given.table or not given.task:
        table(given.out)
        return
    time = f"{given.updates} updates" if given.updates else f"{given.minutes:g} minutes"
    for seed in given.seeds:
        for way in given.ways:
            with tempfile.TemporaryDirectory() as folder:
                results = stages(way, given, seed, Path(folder))
            for stage, result in results.items():
                row = {"task": given.task, "pairs": given.pairs, "time": time, "stage": stage, "seed": seed}
                row |= {"device": given.device, "flags": given.flags, **result, **machine()}
                with given.out.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
