"""Chinese-English from nothing, from a German-English model, and with back-translated English, in the same time.

    python benchmarks/languages.py FOLDER --data data --minutes 4 --seeds 1 2 3 --device cuda

FOLDER gets what the second and third way begin with: a model of Tatoeba de-en, and the English side of that text with
Chinese sources by an English-Chinese model, each trained for --prepare minutes. No English sentence of the validation
or test text is in either. Then the three ways of a seed run beside each other, each by benchmarks/recipe.py, which
adds a line a run to benchmarks/results/recipe.jsonl.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from recipe import transduce, write_splits

from transduce.data.lines import read_lines
from transduce.settings.recipes import RECIPES

HERE = Path(__file__).parent
TASK = "tatoeba-zh-en"


def unseen(splits: dict[str, list[str]], data: Path, folder: Path) -> tuple[str, str]:
    """The text of Tatoeba de-en without what zh-en is validated and tested by."""
    kept_back = {line for split in ("valid", "test") for line in read_lines(splits[split][1])}
    sides = [read_lines(data / "tatoeba-de-en" / f"train.{side}.gz") for side in ("de", "en")]
    pairs = [pair for pair in zip(*sides, strict=True) if pair[1] not in kept_back]
    paths = folder / "unseen.de", folder / "unseen.en"
    for number, path in enumerate(paths):
        path.write_text("".join(f"{pair[number]}\n" for pair in pairs), encoding="utf-8")
    return str(paths[0]), str(paths[1])


def prepare(given: argparse.Namespace) -> dict[str, list[str]]:
    """The flags of each way, after what they name was made."""
    folder = given.folder
    german_english, english_chinese, made = folder / "de-en", folder / "en-zh", folder / "made.zh"
    splits = write_splits(RECIPES[TASK], given.data, None, folder)
    german, english = unseen(splits, given.data, folder)
    flags = ["--minutes", f"{given.prepare:g}", "--device", given.device]
    if not made.exists():
        chinese_text, english_text = splits["train"]
        transduce("train", str(german_english), "--source", german, "--target", english, *flags)
        transduce("train", str(english_chinese), "--source", english_text, "--target", chinese_text, *flags)
        transduce("backtranslate", str(english_chinese), english, "--output", str(made), "--beam", "4", "--resume",
                  "--device", given.device)  # fmt: skip
    return {
        "auto": [],
        "from-de-en": [f"from={german_english}", "training.new_vocabulary=true"],
        "back-translation": [f"source={made}", f"target={english}"],
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path)
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--minutes", type=float, default=4.0)
    words.add_argument("--prepare", type=float, default=2.0, help="minutes of each model that the ways begin with")
    words.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    words.add_argument("--device", default="cpu")
    words.add_argument("--out", type=Path, default=HERE / "results" / "recipe.jsonl")
    given = words.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    ways = prepare(given)
    for seed in given.seeds:
        command = [sys.executable, str(HERE / "recipe.py"), TASK, "--ways", "auto", "--seeds", str(seed), "--data",
                   str(given.data), "--minutes", f"{given.minutes:g}", "--device", given.device, "--out",
                   str(given.out)]  # fmt: skip
        running = [
            subprocess.Popen([*command, *(["--label", way, "--flags", *flags] if flags else [])])
            for way, flags in ways.items()
        ]
        ends = [process.wait() for process in running]
        if any(ends):
            sys.exit(f"a way of seed {seed} failed")


if __name__ == "__main__":
    main()
