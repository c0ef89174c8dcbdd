"""BLEU and chrF of the ways to search, on the same trained models.

    python benchmarks/searches.py --source test.de.gz --reference test.en.gz MODEL [OTHER SEEDS ...]

Every way is tried with the first model; the ensemble is of all. Writes JSON to benchmarks/results and prints a table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from common import write

from transduce.data.lines import read_lines
from transduce.evaluate import evaluate
from transduce.model import Model

WAYS: dict[str, dict[str, object]] = {
    "greedy": {"beam": 1},
    "beam 4": {},
    "beam 4, coverage 0.2": {"coverage_penalty": 0.2},
    "beam 8": {"beam": 8},
    "diverse: beam 8 in 4 groups": {"beam": 8, "groups": 4, "diversity": 0.5},
    "MBR by chrF over beam 16": {"beam": 16, "mbr": "chrf"},
    "MBR by chrF over 32 samples": {"method": "sample", "mbr": "chrf", "candidates": 32},
    "MBR by BLEU over 32 samples": {"method": "sample", "mbr": "bleu", "candidates": 32},
    "MBR by chrF over 32 samples, min-p 0.05": {"method": "sample", "mbr": "chrf", "candidates": 32, "min_p": 0.05},
    "MBR by chrF over 32 samples, temperature 0.5": {
        "method": "sample",
        "mbr": "chrf",
        "candidates": 32,
        "temperature": 0.5,
    },
    "one sample": {"method": "sample"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--source", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--name", default="searches")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    source, reference = list(read_lines(given.source)), list(read_lines(given.reference))
    results: dict[str, dict[str, float]] = {}

    def note(name: str, make: Callable[[], Model]) -> None:
        model = make()
        begin = time.perf_counter()
        texts = [t.text for t in model.translate(source)]
        seconds = time.perf_counter() - begin
        scores = {key: round(score.score, 2) for key, score in evaluate(texts, reference).items()}
        results[name] = {**scores, "seconds": round(seconds, 1)}
        print(f"| {name:42} | {' | '.join(map(str, results[name].values()))} |", file=sys.stderr, flush=True)

    for name, search in WAYS.items():
        note(name, lambda search=search: Model.load(given.models[0], split=False, **search))
    for other in given.models[1:]:
        note(f"beam 4 of {other.name}", lambda other=other: Model.load(other, split=False))
    if len(given.models) > 1:
        note(
            f"ensemble of {len(given.models)}, beam 4",
            lambda: Model.load(given.models[0], split=False, together=given.models[1:]),
        )
        each = [results[key]["BLEU"] for key in results if key == "beam 4" or key.startswith("beam 4 of")]
        results["beam 4, mean of all models"] = {"BLEU": round(statistics.mean(each), 2)}
    write(given.output, given.name, {"models": [str(path) for path in given.models], "ways": results})


if __name__ == "__main__":
    main()
