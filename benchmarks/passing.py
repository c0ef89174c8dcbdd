"""Does what must not change pass through, and is a line in capitals still understood?

    python benchmarks/passing.py MODEL --source test.de --reference test.en [--without OTHER]

One or two things are put between the words of every test line: URLs, addresses, numbers, tags, placeholders, emoji. It
is right where its translation has each of them, unchanged and as often. Then the BLEU of the text as it is (beside
OTHER's, trained with text.protect=none), and of the same text in capitals. Writes JSON to benchmarks/results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random

from common import write

from transduce.data.lines import read_lines
from transduce.evaluate import bleu
from transduce.model import Model

MANY = 2000
KINDS: dict[str, Callable[[Random], str]] = {
    "url": lambda r: f"https://example.org/{_word(r)}/{r.randrange(1000)}?q={_word(r)}",
    "email": lambda r: f"{_word(r)}.{_word(r)}@{_word(r)}.org",
    "number": lambda r: f"{r.randrange(10, 10**9)}",
    "decimal": lambda r: f"{r.randrange(1000)}.{r.randrange(10, 100)}",
    "tag": lambda r: f"<{r.choice('abi')}{r.randrange(10)}/>",
    "placeholder": lambda r: r.choice([f"{{{_word(r)}}}", "%s", f"%{r.randrange(1, 10)}$d"]),
    "emoji": lambda r: r.choice("😀🚀🎉🍺🐶🌍"),
}


def _word(random: Random) -> str:
    return "".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(3, 8)))


def planted(line: str, random: Random) -> tuple[str, list[tuple[str, str]]]:
    """The line with one or two things between its words, and which."""
    words = line.split()
    things = [(kind, KINDS[kind](random)) for kind in random.sample(sorted(KINDS), random.choice([1, 2]))]
    for _, thing in things:
        words.insert(random.randint(0, len(words) - 1), thing)  # never behind the full stop
    return " ".join(words), things


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--without", type=Path, help="a model of the same text, trained without text.protect")
    parser.add_argument("--name", default="passing")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    model, random = Model.load(given.model), Random(5)
    sources, references = ([*islice(read_lines(path), MANY)] for path in (given.source, given.reference))
    lines = [planted(line, random) for line in sources]
    wrong: list[tuple[str, str, list]] = []
    count: dict[str, list[int]] = {kind: [0, 0] for kind in KINDS}
    for (line, things), answer in zip(lines, model.translate([line for line, _ in lines]), strict=True):
        for kind, thing in things:
            count[kind][0] += 1
            count[kind][1] += answer.text.count(thing) == line.count(thing)
        if any(answer.text.count(thing) != line.count(thing) for _, thing in things):
            wrong.append((line, answer.text, things))
    plain = [t.text for t in model.translate(sources)]
    capitals = [t.text for t in model.translate([line.upper() for line in sources])]
    facts = {
        "model": given.model.name,
        "lines": len(lines),
        "restored": round(1 - len(wrong) / len(lines), 4),
        "kinds": {kind: round(right / of, 4) for kind, (of, right) in count.items()},
        "BLEU": round(bleu(plain, references), 2),
        "BLEU in capitals": round(bleu(capitals, [line.upper() for line in references]), 2),
    }
    if given.without:
        facts["BLEU without"] = round(
            bleu([t.text for t in Model.load(given.without).translate(sources)], references), 2
        )
    for line, text, things in wrong[:10]:
        print(f"{things}\n  {line}\n  {text}", file=sys.stderr)
    print(facts)
    write(given.output, given.name, facts)


if __name__ == "__main__":
    main()
