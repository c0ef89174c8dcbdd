"""What a model that there is brings for a new kind of text: fine-tuning against training from nothing.

    python benchmarks/transfer.py BASE [--pairs 500 2000 10000] [--ways nothing from lora frozen mixed] [--minutes 2]
    python benchmarks/pictures.py benchmarks/results/transfer.jsonl

BASE is a model of Tatoeba de-en; the new text are captions (the first so many pairs of Multi30k de-en). Every way is
the command that a user would type, with the same minutes. BLEU is that of both test texts: of the captions, and of
Tatoeba, which shows what is forgotten. Adds a line a run to benchmarks/results/transfer.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import machine

from transduce.data.lines import read_lines

HERE = Path(__file__).parent
WAYS = {
    "nothing": [],
    "from": ["--from", "BASE"],
    "lora": ["--from", "BASE", "--training.lora_rank=8", "--training.lora_parts=query,key,value,output,inner,outer"],
    "frozen": ["--from", "BASE", "--training.freeze=encoder"],
    "mixed": ["--from", "BASE"],
}


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "transduce", *words], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def first_lines(path: Path, count: int, to: Path) -> str:
    to.write_text("".join(f"{line}\n" for line in itertools.islice(read_lines(path), count)), encoding="utf-8")
    return str(to)


def bleu(model: str, data: Path, test: str) -> float:
    answer = run("evaluate", model, "--source", str(data / f"{test}.de.gz"), "--reference", str(data / f"{test}.en.gz"),
                 "--json")  # fmt: skip
    return round(json.loads(answer)["scores"]["BLEU"]["score"], 2)


def one(way: str, pairs: int, given: argparse.Namespace, seed: int, folder: Path) -> dict[str, Any]:
    """Train, and score both test texts."""
    captions, tatoeba = given.data / "multi30k", given.data / "tatoeba-de-en"
    texts = [[first_lines(captions / f"train.{side}.gz", pairs, folder / f"a.{side}") for side in ("de", "en")]]
    if way == "mixed":  # as much of the old text as of the new
        old = [first_lines(tatoeba / f"train.{side}.gz", 100_000, folder / f"all.{side}") for side in ("de", "en")]
        step = 100_000 // pairs
        mixed = [folder / f"b.{side}" for side in ("de", "en")]
        for path, to in zip(old, mixed, strict=True):
            to.write_text("".join(f"{line}\n" for line in itertools.islice(read_lines(path), 0, None, step)))
        texts.append([str(path) for path in mixed])
    files = [word for text in texts for word in ("--source", text[0], "--target", text[1])]
    files += ["--valid-source", str(captions / "val.de.gz"), "--valid-target", str(captions / "val.en.gz")]
    flags = [str(given.base) if word == "BASE" else word for word in WAYS[way]]
    model, begin = str(folder / "run"), time.monotonic()
    run("train", model, *files, *flags, "--minutes", f"{given.minutes:g}", "--training.seed", str(seed))
    newest = sorted((folder / "run" / "training").glob("step-*"))[-1]
    facts = {"way": way, "pairs": pairs, "minutes": given.minutes, "seed": seed, "seconds": time.monotonic() - begin}
    facts |= {"captions": bleu(model, captions, "test_2016_flickr"), "tatoeba": bleu(model, tatoeba, "test")}
    facts["optimizer_megabytes"] = round((newest / "optimizer.safetensors").stat().st_size / 1e6, 2)
    adapter = folder / "run" / "adapter.safetensors"
    facts["adapter_megabytes"] = round(adapter.stat().st_size / 1e6, 2) if adapter.exists() else None
    return facts


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("base", type=Path)
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--pairs", type=int, nargs="+", default=[500, 2000, 10_000])
    words.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    words.add_argument("--minutes", type=float, default=2.0)
    words.add_argument("--seeds", type=int, nargs="+", default=[1])
    words.add_argument("--out", type=Path, default=HERE / "results" / "transfer.jsonl")
    given = words.parse_args()
    for seed, pairs, way in itertools.product(given.seeds, given.pairs, given.ways):
        with tempfile.TemporaryDirectory() as folder:
            facts = {**one(way, pairs, given, seed, Path(folder)), **machine()}
        with given.out.open("a") as out:
            out.write(json.dumps(facts) + "\n")
        print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
