"""Alignment error rate of every head on the bundled corpus, whose grammar knows the true links.

    python benchmarks/alignment.py MODEL

A head is chosen as training does it, on the development split and without the true links; all are judged on the test
split. AER = 1 - (|A and S| + |A and P|) / (|A| + |S|), with S the sure and P the possible links (Och and Ney 2003).
Writes JSON to benchmarks/results and prints a table.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from common import write

from transduce.bundled.corpus import bundled
from transduce.bundled.links import TrueLinks, true_links
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END
from transduce.data.batches import Batch
from transduce.decoding.aligner import score_aligners
from transduce.decoding.alignment import Aligner, align
from transduce.model import Model
from transduce.text.words import word_links


def error_rate(found: list[set[tuple[int, int]]], true: list[TrueLinks]) -> float:
    right = sum(len(a & t.sure) + len(a & t.possible) for a, t in zip(found, true, strict=True))
    return 1 - right / sum(len(a) + len(t.sure) for a, t in zip(found, true, strict=True))


def batch_of(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    source, target_in = lay_out([[[*s, END]] for s in sources]), lay_out([[[BEGIN, *t]] for t in targets])
    target_out = lay_out([[[*t, END]] for t in targets]).tokens
    return Batch(source, target_in, target_out, None, 0)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    model, made = Model.load(given.model, split=False), bundled()
    tokenizers, device = model.tokenizers, model.device

    def encode(pairs: list) -> tuple[list[list[int]], list[list[int]]]:
        return tokenizers.source.encode([p.source for p in pairs]), tokenizers.target.encode([p.target for p in pairs])

    some = [batch_of(*encode(made.dev[i : i + 100])) for i in range(0, len(made.dev), 100)]
    scores = score_aligners(model.model, some, tokenizers.target.size, device)
    chosen = max(scores, key=lambda aligner: scores[aligner])
    sources, targets = encode(made.test)
    true = [true_links(pair.source, pair.target) for pair in made.test]
    pieces = [
        [side.pieces(ids) for ids in many]
        for side, many in ((tokenizers.source, sources), (tokenizers.target, targets))
    ]

    def rate(aligner: Aligner) -> float:
        places = align(model.model, sources, targets, aligner, model.search.tokens, device)
        return error_rate([set(word_links(*each)) for each in zip(*pieces, places, strict=True)], true)

    rates = {aligner: rate(aligner) for aligner in scores}
    for aligner in sorted(rates, key=lambda aligner: rates[aligner]):
        mark = " <- chosen" if aligner == chosen else ""
        print(
            f"{aligner!s:16} AER {100 * rates[aligner]:5.1f} %  held-out {scores[aligner]:.3f}{mark}", file=sys.stderr
        )
    facts = {str(a): {"AER": round(rates[a], 4), "held_out": round(scores[a], 4)} for a in rates}
    best = min(rates, key=lambda aligner: rates[aligner])
    write(given.output, f"alignment-{given.model.name}", {"chosen": str(chosen), "best": str(best), "heads": facts})


if __name__ == "__main__":
    main()
