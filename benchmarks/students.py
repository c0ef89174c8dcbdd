"""What distillation keeps and what it brings: a teacher, and a student with a decoder of one layer.

    python benchmarks/students.py multi30k-de-en --minutes 3 --student-minutes 3 [--devices cpu cuda] [--seeds 1]
        [--width 512] [--keep FOLDER]

The teacher has six layers a side, of --width if that is given, and else the settings of `transduce bench` for this
text; the student has six and one, and learns from the teacher's translations and from the real ones (transduce
distill). Both then translate the test text with a beam of 4 on each device, in turns, the faster of two rounds: from
text to text, and the search alone, from tokens to tokens, on a GPU of many copies, because of few sentences Python
takes longer than the GPU. With --keep what is trained stays, and what is there is not trained again. Adds a line a run
to benchmarks/results/students.jsonl.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from common import machine, synchronize
from decoding import ours
from recipe import flags_of, transduce, write_splits

from transduce.data.lines import read_lines
from transduce.evaluate import bleu
from transduce.model import Model
from transduce.settings.recipes import RECIPES
from transduce.text.normalise import normalise

HERE = Path(__file__).parent
ROUNDS = 2
COPIES = {"cuda": 64, "cpu": 1}  # of the test text, for the search alone
SHAPE = ("--model.layers=6", "--text.sampling=0")


def train(task: str, given: argparse.Namespace, seed: int, folder: Path) -> dict[str, list[str]]:
    """The teacher into folder/teacher, the student into folder/student; the files of the text."""
    splits = write_splits(RECIPES[task], given.data, None, folder)
    if (folder / "student" / "trust.safetensors").exists():  # which is written last
        return splits
    (source, target), (valid_source, valid_target) = splits["train"], splits["valid"]
    text = (
        f"--source={source}",
        f"--target={target}",
        f"--valid-source={valid_source}",
        f"--valid-target={valid_target}",
    )
    common = (*text, f"--device={given.train_on}", f"--training.seed={seed}")
    recipe = flags_of("bench", RECIPES[task], folder)
    width = given.width and (f"--model.d_model={given.width}", f"--model.d_ff={4 * given.width}",
                             f"--model.heads={given.width // 64}", "--optimizer.rate=7e-4")  # fmt: skip
    transduce(
        "train", str(folder / "teacher"), *common, f"--minutes={given.minutes:g}", *recipe, *SHAPE, *(width or ())
    )
    transduce("distill", str(folder / "teacher"), str(folder / "student"), *common,
              f"--minutes={given.student_minutes:g}", "--beam=4", "--batch.tokens=8192")  # fmt: skip
    return splits


def compare(folder: Path, splits: dict[str, list[str]], devices: list[str]) -> dict[str, Any]:
    """BLEU and sentences a second of both on the test text, by device."""
    sources, references = (list(read_lines(path)) for path in splits["test"])
    found: dict[str, Any] = {}
    for device in devices:
        models = {name: Model.load(folder / name, device, beam=4, split=False) for name in ("teacher", "student")}
        seconds: dict[str, list[float]] = {name: [] for name in models}
        for model in models.values():
            model.translate(sources)  # compiles, on a GPU
        for _ in range(ROUNDS):
            for name, model in models.items():
                begin = time.perf_counter()
                texts = [t.text for t in model.translate(sources)]
                seconds[name].append(time.perf_counter() - begin)
                found[f"{name}, {device}"] = {
                    "bleu": round(bleu(texts, references, model.settings.training.bleu_tokenizer), 2)
                }
        for name, model in models.items():
            found[f"{name}, {device}"]["searched_a_second"] = round(search_alone(model, sources, device), 1)
            found[f"{name}, {device}"]["sentences_a_second"] = round(len(sources) / min(seconds[name]), 1)
            found[f"{name}, {device}"]["weights"] = sum(weight.numel() for weight in model.model.parameters())
    return found


def search_alone(model: Model, lines: list[str], device: str) -> float:
    """Sentences a second, from tokens to tokens."""
    tokens = model.tokenizers.source.encode(list(map(normalise, lines))) * COPIES[device]
    search = ours(model.model, device, "auto", 4, model.lengths.limit)
    search(tokens)  # compiles
    seconds = []
    for _ in range(ROUNDS):
        synchronize()
        begin = time.perf_counter()
        search(tokens)
        synchronize()
        seconds.append(time.perf_counter() - begin)
    return len(tokens) / min(seconds)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("task", choices=RECIPES)
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--minutes", type=float, default=3.0, help="of the teacher")
    words.add_argument("--student-minutes", type=float, default=3.0)
    words.add_argument("--width", type=int, help="of teacher and student; else the teacher's recipe decides")
    words.add_argument("--train-on", default="cuda")
    words.add_argument("--devices", nargs="+", default=["cuda", "cpu"])
    words.add_argument("--seeds", type=int, nargs="+", default=[1])
    words.add_argument("--keep", type=Path, help="folder in which teachers and students stay")
    words.add_argument("--out", type=Path, default=HERE / "results" / "students.jsonl")
    given = words.parse_args()
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as temporary:
            name = f"{given.task}-{given.width or 'recipe'}-{given.minutes:g}-{given.student_minutes:g}-{seed}"
            folder = given.keep / name if given.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            splits = train(given.task, given, seed, folder)
            facts = {"task": given.task, "minutes": [given.minutes, given.student_minutes],
                     "width": given.width, "seed": seed,
                     **compare(folder, splits, given.devices), **machine()}  # fmt: skip
        with given.out.open("a") as out:
            out.write(json.dumps(facts) + "\n")
        print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
