"""Does a sentence's translation depend on its neighbours, or on the engine? Counted on real sentences.

    python benchmarks/company.py MODEL SOURCE.gz [--reference REF.gz] [--lines 2000] [--device cuda] [--beams 1 4]

The same sentences are translated in one go, in another order, 64 and 7 at a time, amid neighbours of 128 tokens, and
one by one; then by the plain engine. Prints how many texts are equal, how far scores are apart, and BLEU; writes JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from common import write

from transduce.data.lines import read_lines
from transduce.evaluate import bleu
from transduce.model import Model
from transduce.models.device import prepare_device

Answers = list[tuple[str, float]]  # text and score of each line
LONG = 128  # tokens of a neighbour


def translated(model: Model, lines: list[str]) -> Answers:
    return [(t.text, t.candidates[0].score if t.candidates else 0.0) for t in model.translate(lines)]


def in_another_order(model: Model, lines: list[str]) -> Answers:
    order = Random(1).sample(range(len(lines)), len(lines))
    found = dict(zip(order, translated(model, [lines[i] for i in order]), strict=True))
    return [found[i] for i in range(len(lines))]


def at_a_time(count: int) -> Callable[[Model, list[str]], Answers]:
    def in_turns(model: Model, lines: list[str]) -> Answers:
        return [a for i in range(0, len(lines), count) for a in translated(model, lines[i : i + count])]

    return in_turns


def amid_long_ones(model: Model, lines: list[str]) -> Answers:
    """A long neighbour after every seven lines."""
    words = " ".join(lines).split()
    long = " ".join(words[:LONG])
    mixed = [text for i, line in enumerate(lines) for text in ([line, long] if i % 7 == 6 else [line])]
    answers = translated(model, mixed)
    return [answer for text, answer in zip(mixed, answers, strict=True) if text is not long]


COMPANIES = {
    "in another order": in_another_order,
    "64 at a time": at_a_time(64),
    "7 at a time": at_a_time(7),
    "amid 128-token neighbours": amid_long_ones,
    "one by one": at_a_time(1),
}


def compared(one: Answers, other: Answers) -> dict[str, float]:
    """Equal texts, and the largest distance of their scores."""
    equal = [(a, b) for (text, a), (same, b) in zip(one, other, strict=True) if text == same]
    return {"equal texts": len(equal), "of": len(one), "largest score difference": max(abs(a - b) for a, b in equal)}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model", type=Path)
    words.add_argument("source")
    words.add_argument("--reference")
    words.add_argument("--lines", type=int, default=2000)
    words.add_argument("--device", default="auto")
    words.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    words.add_argument("--precisions", nargs="+", default=["auto"])
    words.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = words.parse_args()
    device = prepare_device(given.device)
    lines = list(read_lines(given.source))[: given.lines]
    references = list(read_lines(given.reference))[: given.lines] if given.reference else None
    results = []
    for beam in given.beams:
        plain = translated(Model.load(given.model, device, beam=beam, engine="plain", precision="float32"), lines)
        for precision in given.precisions:
            model = Model.load(given.model, device, beam=beam, precision=precision)
            alone = translated(model, lines)
            rows = {"plain engine, float32": compared(plain, alone)}
            rows |= {name: compared(alone, way(model, lines)) for name, way in COMPANIES.items()}
            result = {"beam": beam, "precision": precision, "compared with": rows}
            if references:
                scored = {"engine": alone, "plain": plain}
                result["BLEU"] = {key: round(bleu([t for t, _ in a], references), 2) for key, a in scored.items()}
            print(json.dumps(result, indent=1), flush=True)
            results.append(result)
    write(given.output, f"company-{device}", {"lines": len(lines), "results": results})


if __name__ == "__main__":
    main()
