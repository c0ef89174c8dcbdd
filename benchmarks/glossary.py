"""What a hard glossary costs, and what it brings: real sentences, each with one or two entries of its own.

    python benchmarks/glossary.py MODEL SOURCE.gz REFERENCE.gz [--lines 500]

An entry wants a word of the reference that the translation without a glossary has not, as a translator would who knows
better than the model. Where the reference has no such word, it wants one that is there. Prints how many entries are
met, BLEU without and with them, the mean score and sentences a second; writes JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from pathlib import Path
from random import Random

from common import write

from transduce.data.lines import read_lines
from transduce.evaluate import bleu
from transduce.model import Model
from transduce.text.glossary import Glossary


def entries_for(source: str, text: str, reference: str, draw: Random) -> dict[str, str]:
    """One or two words of the source, with words of the reference; that they mean the same is not needed here."""
    here, there, wanted = (list(dict.fromkeys(re.findall(r"\w{3,}", line))) for line in (source, text, reference))
    missing = [word for word in wanted if word not in there] or wanted
    count = min(draw.choice([1, 2]), len(here), len(missing))
    return dict(zip(draw.sample(here, count), draw.sample(missing, count), strict=True))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model", type=Path)
    words.add_argument("source")
    words.add_argument("reference")
    words.add_argument("--lines", type=int, default=500)
    words.add_argument("--name", default="glossary")
    words.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = words.parse_args()
    model = Model.load(given.model, split=False, engine="plain")
    source, reference = (list(read_lines(path))[: given.lines] for path in (given.source, given.reference))
    begin = time.perf_counter()
    plain = model.translate(source)
    plain_seconds = time.perf_counter() - begin
    draw = Random(1)
    asked = [entries_for(s, t.text, r, draw) for s, t, r in zip(source, plain, reference, strict=True)]
    begin = time.perf_counter()
    found = [
        model.translate(s, glossary=Glossary.of(entries)) if entries else t
        for s, t, entries in zip(source, plain, asked, strict=True)
    ]
    seconds = time.perf_counter() - begin
    met = [
        re.search(rf"(?<!\w){word}(?!\w)", t.text) is not None
        for t, entries in zip(found, asked, strict=True)
        for word in entries.values()
    ]
    facts = {
        "lines": len(source),
        "entries": len(met),
        "met": sum(met),
        "BLEU without": round(bleu([t.text for t in plain], reference), 2),
        "BLEU with": round(bleu([t.text for t in found], reference), 2),
        "score without": round(statistics.mean(t.score for t in plain), 3),
        "score with": round(statistics.mean(t.score for t in found), 3),
        "sentences/s without, in batches": round(len(source) / plain_seconds, 1),
        "sentences/s with, one by one": round(len(source) / seconds, 1),
    }
    print(json.dumps(facts, indent=1))
    write(given.output, given.name, {"model": given.model.name, **facts})


if __name__ == "__main__":
    main()
