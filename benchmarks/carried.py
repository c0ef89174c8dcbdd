"""Whether word vectors help a translator that has little text: with and without, Transformer and RNN.

    python benchmarks/carried.py --pairs 2000 10000 50000 --minutes 3 --seeds 1 2 3

The vectors are skip-gram with n-grams, trained here on each side of all of Tatoeba de-en (154,058 sentences); the
translator sees the first so many pairs of it, shuffled. Every way is the command that a user would type, with the same
minutes. Adds a line a run to benchmarks/results/carried.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
from pathlib import Path

from common import machine
from recipe import transduce

from transduce.data.lines import read_lines

HERE = Path(__file__).parent
MODELS = {"transformer": ("--preset", "small"), "rnn": ("--preset", "rnn-attention")}


def prepare(data: Path, pairs: list[int], folder: Path) -> None:
    """Text and vectors, if they are not there yet."""
    if (folder / "vectors-en" / "manifest.json").exists():
        return
    sides = [list(read_lines(data / "tatoeba-de-en" / f"train.{side}.gz")) for side in ("de", "en")]
    together = list(zip(*sides, strict=True))
    random.Random(1).shuffle(together)
    for number, side in enumerate(("de", "en")):
        (folder / f"all.{side}").write_text("".join(f"{pair[number]}\n" for pair in together), encoding="utf-8")
        for count in pairs:
            some = "".join(f"{pair[number]}\n" for pair in together[:count])
            (folder / f"{count}.{side}").write_text(some, encoding="utf-8")
        transduce("vectors", "train", str(folder / f"vectors-{side}"), f"--source={folder / f'all.{side}'}")


def one(kind: str, count: int, way: str, seed: int, given: argparse.Namespace, folder: Path) -> dict[str, object]:
    test = given.data / "tatoeba-de-en"
    run, begin = folder / f"{kind}-{count}-{way}-{seed}", time.monotonic()
    text = (f"--source={folder / f'{count}.de'}", f"--target={folder / f'{count}.en'}")
    text += (f"--valid-source={test / 'dev.de.gz'}", f"--valid-target={test / 'dev.en.gz'}")
    apart = ("--text.joint=false", "--model.tie_source=false", "--text.vocabulary=4000", "--device=cpu")
    vectors = (
        "--model.source_vectors",
        str(folder / "vectors-de"),
        "--model.target_vectors",
        str(folder / "vectors-en"),
    )
    rest = ("--training.vectors_rest=100",) if way == "rested" else ()
    transduce("train", str(run), *text, *MODELS[kind], *apart, f"--minutes={given.minutes:g}",
              f"--training.seed={seed}", *(() if way == "without" else vectors), *rest)  # fmt: skip
    answer = json.loads(transduce("evaluate", str(run), "--source", str(test / "test.de.gz"), "--reference",
                                  str(test / "test.en.gz"), "--json"))  # fmt: skip
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line.get("kind") == "valid"]
    return {
        **{"model": kind, "pairs": count, "way": way, "seed": seed, "minutes": given.minutes},
        **{"bleu": round(answer["scores"]["BLEU"]["score"], 2), "validation_loss": min(losses, default=None)},
        "seconds": round(time.monotonic() - begin, 1),
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--pairs", type=int, nargs="+", default=[2000, 10_000, 50_000])
    words.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    words.add_argument("--ways", nargs="+", choices=["without", "with", "rested"], default=["without", "with"])
    words.add_argument("--minutes", type=float, default=2.0)
    words.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    words.add_argument("--out", type=Path, default=HERE / "results" / "carried.jsonl")
    words.add_argument("--folder", type=Path, help="where text, vectors and runs are kept for the next call")
    given = words.parse_args()
    given.data = given.data.resolve()
    with tempfile.TemporaryDirectory() as passing:
        folder = given.folder or Path(passing)
        folder.mkdir(exist_ok=True)
        prepare(given.data, given.pairs, folder)
        for seed, count, kind, way in itertools.product(given.seeds, given.pairs, given.models, given.ways):
            facts = {**one(kind, count, way, seed, given, folder), **machine()}
            with given.out.open("a") as out:
                out.write(json.dumps(facts) + "\n")
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
