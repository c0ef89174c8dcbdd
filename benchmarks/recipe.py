"""What the automatic recipe reaches in a given time, beside what a user could have taken instead.

    python benchmarks/recipe.py tatoeba-de-en --minutes 5 [--ways auto small bench marian] [--seeds 1 2 3]
        [--pairs N [--spread]]
    python benchmarks/recipe.py --table

Each way is the command that a user would type, in a process of its own: `auto` says nothing but the text and the time,
`small` adds that preset, `bench` the settings of `transduce bench` for this text, and `marian` is benchmarks/marian.py.
All are given the same minutes, everything counted. The test text is translated with a beam of 4 (HF: 5) and looked at
only here. Adds a line a run to benchmarks/results/recipe.jsonl; --table shows them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from common import machine, spread

from transduce.commands.bench import corpora
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.settings.recipes import RECIPES, Recipe

WAYS = ("auto", "small", "bench", "marian")
HERE = Path(__file__).parent


def write_splits(
    recipe: Recipe, data: Path, pairs: int | None, folder: Path, of_all: bool = False
) -> dict[str, list[str]]:
    """The text as plain files; for each split its two paths. Of the training text the first so many pairs, or so many
    spread over all of it."""
    found = {}
    for name, corpus in zip(("train", "valid", "test"), corpora(recipe, data), strict=True):
        some = list(corpus)
        if name == "train" and pairs is not None and pairs < len(some):
            some = spread(some, pairs) if of_all else some[:pairs]
        paths = [folder / f"{name}.{side}" for side in ("source", "target")]
        for path, side in zip(paths, ("source", "target"), strict=True):
            path.write_text("".join(f"{getattr(pair, side)}\n" for pair in some), encoding="utf-8")
        found[name] = [str(path) for path in paths]
    return found


def flags_of(way: str, recipe: Recipe, folder: Path) -> list[str]:
    """What is said beside the text and the time."""
    if way != "bench":
        return [] if way == "auto" else ["--preset", way]
    sections = dataclasses.asdict(compose(recipe.settings))
    sections["training"] |= {"minutes": None, "steps": None}
    sections["optimizer"] |= {"schedule": "wsd"}  # as every run by the clock
    if recipe.target == "zh":  # backwards; else its BLEU would count no Chinese words
        sections["training"] |= {"bleu_tokenizer": "zh"}
    (folder / "bench.yaml").write_text(yaml.safe_dump({key: sections[key] for key in sections if key != "data"}))
    return ["--preset", "small", "--config", str(folder / "bench.yaml")]


def transduce(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "transduce", *words], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def one(way: str, recipe: Recipe, given: argparse.Namespace, seed: int, folder: Path) -> dict[str, Any]:
    """Train, and score the test text."""
    run, splits = folder / "run", write_splits(recipe, given.data, given.pairs, folder, given.spread)
    text = [
        f"--{flag}={path}"
        for split, prefix in (("train", ""), ("valid", "valid-"))
        for flag, path in zip((f"{prefix}source", f"{prefix}target"), splits[split], strict=True)
    ]
    begin = time.monotonic()
    transduce(
        "train",
        str(run),
        *text,
        "--minutes",
        f"{given.minutes:g}",
        "--training.seed",
        str(seed),
        "--device",
        given.device,
        *flags_of(way, recipe, folder),
        *given.flags,
    )
    seconds = time.monotonic() - begin
    source, reference = splits["test"]
    tokenize = ["--tokenize", "zh"] if recipe.target == "zh" else []
    answer = json.loads(
        transduce("evaluate", str(run), "--source", source, "--reference", reference, *tokenize, "--json")
    )
    chosen = config_file.read(run / "config.yaml")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "bleu": round(answer["scores"]["BLEU"]["score"], 2),
        "signature": answer["scores"]["BLEU"]["signature"],
        "seconds": round(seconds, 1),
        "updates": max(line["step"] for line in lines),
        "validation": max((line["bleu"] for line in lines if line.get("bleu") is not None), default=None),
        "settings": {
            name: chosen[section][key]
            for name in SHOWN
            for section, key in [name.split(".")]
            if key in chosen.get(section, {})
        },
    }


SHOWN = (
    "text.vocabulary",
    "text.target_vocabulary",
    "text.case",
    "model.layers",
    "model.d_model",
    "model.dropout",
    "batch.tokens",
    "optimizer.rate",
    "search.length_penalty",
)


def marian(given: argparse.Namespace, seed: int, folder: Path) -> dict[str, Any]:
    """HF's model in the same time."""
    backwards = ["--backwards"] if given.backwards else []
    subprocess.run(
        [sys.executable, str(HERE / "marian.py"), given.task, *backwards, "--data", str(given.data), "--minutes",
         f"{given.minutes:g}", "--seed", str(seed), "--device", given.device, "--every", str(15 * given.minutes),
         "--out", str(folder)], check=True, stdout=sys.stderr)  # fmt: skip
    (written,) = folder.glob(f"marian-*-{seed}.json")
    result = json.loads(written.read_text())
    return {
        "bleu": round(result["scores"]["BLEU, beam 5"], 2),
        "signature": result["signatures"]["BLEU"],
        "seconds": result["seconds in all, text to model"],
        "updates": result["steps"],
    }


def table(path: Path) -> None:
    """A row for text, time and device; a column a way: the mean over seeds, and how many."""
    rows: dict[tuple, dict[str, list[dict]]] = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        which = f"{line['pairs'] or 'all'}{', spread' if line.get('spread') else ''}"
        key = line["device"], line["task"], which, line["minutes"]
        rows.setdefault(key, {}).setdefault(line["way"], []).append(line)
    print("| device | text | pairs | minutes |", " | ".join(WAYS), "| auto took |\n|" + "---|" * (5 + len(WAYS)))
    for key, ways in sorted(rows.items(), key=str):
        cells = []
        for way in WAYS:
            bleu = [line["bleu"] for line in ways.get(way, [])]
            spread = f" ± {statistics.stdev(bleu):.1f} ({len(bleu)})" if len(bleu) > 1 else ""
            cells.append(f"{statistics.mean(bleu):.1f}{spread}" if bleu else "")
        took = [line["seconds"] / 60 / line["minutes"] for line in ways.get("auto", [])]
        print("|", " | ".join(map(str, [*key, *cells, f"{100 * max(took):.0f} %" if took else ""])), "|")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("task", nargs="?", choices=RECIPES)
    words.add_argument("--backwards", action="store_true", help="from the target language to the source language")
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--minutes", type=float, default=5.0)
    words.add_argument("--ways", nargs="+", choices=WAYS, default=["auto", "small"])
    words.add_argument("--seeds", type=int, nargs="+", default=[1])
    words.add_argument("--pairs", type=int, help="the first so many of the training text")
    words.add_argument("--spread", action="store_true", help="so many pairs of the whole text: it is sorted by length")
    words.add_argument("--device", default="cpu")
    words.add_argument("--flags", nargs="*", default=[], help="further flags of transduce train, without the dashes")
    words.add_argument("--label", help="what the rows call a way with such flags")
    words.add_argument("--keep", type=Path, help="folder in which runs stay")
    words.add_argument("--out", type=Path, default=HERE / "results" / "recipe.jsonl")
    words.add_argument("--table", action="store_true")
    given = words.parse_args()
    if given.table or not given.task:
        table(given.out)
        return
    if given.spread and not given.pairs:
        words.error("--spread says which pairs are taken: say how many with --pairs")
    if given.pairs and "marian" in given.ways:
        words.error("--ways marian takes the whole text: leave out --pairs")
    given.flags = [f"--{flag}" for flag in given.flags]
    if given.flags and not given.label:
        words.error("--flags makes another way of it: say its name with --label")
    recipe = RECIPES[given.task]
    if given.backwards:
        recipe = dataclasses.replace(recipe, source=recipe.target, target=recipe.source)
    for seed in given.seeds:
        for way in given.ways:
            name = f"{given.task}{'-backwards' if given.backwards else ''}"
            with tempfile.TemporaryDirectory() as temporary:
                pairs = f"{given.pairs or 'all'}{'-spread' if given.spread else ''}"
                kept = f"{name}-{given.label or way}-{given.minutes:g}-{pairs}-{seed}"
                folder = given.keep / kept if given.keep else Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                found = marian(given, seed, folder) if way == "marian" else one(way, recipe, given, seed, folder)
            facts = {
                "task": name,
                "way": given.label or way,
                "minutes": given.minutes,
                "pairs": given.pairs,
                "spread": given.spread,
                "seed": seed,
                "device": given.device,
                **found,
                **machine(),
            }
            with given.out.open("a") as out:
                out.write(json.dumps(facts) + "\n")
            print(
                json.dumps(
                    {
                        key: facts[key]
                        for key in ("task", "way", "minutes", "pairs", "seed", "bleu", "seconds", "updates")
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
