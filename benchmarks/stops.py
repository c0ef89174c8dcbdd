"""A run that is stopped at ten random moments: can what it leaves be used each time, and does it say how far it is?

    python benchmarks/stops.py --data data

6,000 pairs of Tatoeba de-en, spread over its text; Ctrl-C and SIGTERM in turn, after 12 to 60 seconds. `translate` then
has to answer, and to name the step. Writes benchmarks/results/stops.json and prints a line a stop.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import write
from recipe import write_splits

from transduce.settings.recipes import RECIPES

HERE = Path(__file__).parent
PAIRS = 6_000
EARLIEST, LATEST = 12.0, 60.0  # seconds
TRANSDUCE = [sys.executable, "-m", "transduce"]


def one(number: int, seconds: float, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    splits = write_splits(RECIPES["tatoeba-de-en"], given.data, PAIRS, folder, of_all=True)
    text = [f"--{name}={path}" for name, path in zip(("source", "target"), splits["train"], strict=True)]
    command = [*TRANSDUCE, "train", str(folder / "run"), *text, "--minutes", "5", "--device", given.device]
    how = (signal.SIGINT, signal.SIGTERM)[number % 2]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as run:
        try:
            run.wait(seconds)
        except subprocess.TimeoutExpired:
            run.send_signal(how)
    (folder / "in").write_text("Ich habe Hunger.\nWo ist der Bahnhof?\n")
    asked = subprocess.run(
        [*TRANSDUCE, "translate", str(folder / "run"), str(folder / "in")], capture_output=True, text=True
    )
    step = re.search(r"\(step ([\d,]+)", asked.stderr)
    return {
        "by": how.name,
        "after seconds": round(seconds, 1),
        "exit of the run": run.returncode,
        "step": int(step.group(1).replace(",", "")) if step else None,
        "exit of translate": asked.returncode,
        "lines": len(asked.stdout.splitlines()),
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--stops", type=int, default=10)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--device", default="cpu")
    words.add_argument("--output", type=Path, default=HERE / "results")
    given = words.parse_args()
    draw, found = random.Random(given.seed), []
    for number in range(given.stops):
        with tempfile.TemporaryDirectory() as temporary:
            found.append(one(number, draw.uniform(EARLIEST, LATEST), given, Path(temporary)))
        print(found[-1], flush=True)
    usable = sum(stop["exit of translate"] == 0 and stop["lines"] == 2 and stop["step"] is not None for stop in found)
    print(f"{usable} of {given.stops} could be used")
    write(given.output, "stops", {"stops": found, "usable": usable})


if __name__ == "__main__":
    main()
