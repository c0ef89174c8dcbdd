"""How far answers can be trusted: planted lines that nobody can translate among good ones, and the calibration.

    python benchmarks/trust.py MODEL --source test.de --target test.en --other test.zh --other test.en

Up to 1,000 lines, spread over the test text, are good ones. As many are planted: lines of other languages (--other),
words of good lines shuffled, random tokens. Says how many of each got `unknown` or `doubtful`, how many good ones did,
and how often translations called 10, 20, ... % sure are good (chrF of at least 50). Writes JSON to benchmarks/results.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

import numpy as np
from common import spread, write

from transduce.bundled.corpus import bundled
from transduce.data.lines import read_lines
from transduce.model import Model
from transduce.training.calibrate import are_good

MANY = 1000


def planted(model: Model, sources: list[str], others: list[list[str]]) -> dict[str, list[str]]:
    random, tokenizer, share = Random(7), model.tokenizers.source, MANY // 3
    words = [source.split() if " " in source else list(source) for source in sources]  # or characters, without spaces
    spaces = [" " if " " in source else "" for source in sources]
    ids = [[random.randrange(4, tokenizer.size) for _ in range(random.randint(3, 15))] for _ in range(share)]
    kinds = {f"other language {i}": spread(lines, share // len(others)) for i, lines in enumerate(others, 1)}
    shuffled = [
        space.join(random.sample(line, len(line))) for line, space in zip(words, spaces, strict=True) if len(line) > 3
    ]
    return {
        **kinds,
        "shuffled words": spread(shuffled, share),
        "random tokens": [tokenizer.decode(line) for line in ids],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, help="test text; without it, that of the bundled corpus")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--other", type=Path, action="append", required=True)
    parser.add_argument("--name", default="demo")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    model = Model.load(given.model)
    if given.source:
        pairs = list(zip(read_lines(given.source), read_lines(given.target), strict=True))
    else:
        pairs = [(pair.source, pair.target) for pair in bundled().test]
    pairs = spread(pairs, MANY)
    sources = [source for source, _ in pairs]
    others = [list(read_lines(other)) for other in given.other]

    def noticed(lines: list[str]) -> float:
        return float(np.mean([t.status in ("unknown", "doubtful") for t in model.translate(lines)]))

    found = {kind: (len(lines), noticed(lines)) for kind, lines in planted(model, sources, others).items()}
    answers = model.translate(sources)
    flagged = np.array([t.status in ("unknown", "doubtful") for t in answers])
    false = float(flagged.mean())
    good = are_good([t.text for t in answers], [target for _, target in pairs])
    sure = np.array([t.confidence for t in answers], float)
    place = np.minimum((10 * sure).astype(int), 9)
    curve = [
        (int((place == i).sum()), *(float(x[place == i].mean()) for x in (sure, good))) for i in sorted(set(place))
    ]
    error = sum(count * abs(said - was) for count, said, was in curve) / len(sure)
    total = sum(count for count, _ in found.values())
    result = {
        "good lines": len(pairs),
        "false alarms": round(false, 4),
        "false alarms, of translations that are good": round(float((flagged & good).mean()), 4),
        "planted lines": total,
        "noticed": round(sum(count * share for count, share in found.values()) / total, 4),
        "noticed by kind": {kind: round(share, 4) for kind, (_, share) in found.items()},
        "calibration error": round(error, 4),
        "calibration": [{"lines": n, "said": round(said, 3), "were good": round(was, 3)} for n, said, was in curve],
    }
    for name, value in result.items():
        print(f"{name}: {value}", file=sys.stderr)
    write(given.output, f"trust-{given.name}", result)


if __name__ == "__main__":
    main()
