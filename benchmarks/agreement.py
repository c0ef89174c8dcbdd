"""The same weights and the same wishes in transduce, HF generate and CTranslate2: how many outputs are equal, and why
the others are not.

    python benchmarks/agreement.py MODEL SOURCE.gz [--lines 500]

Every output that differs is scored by the model, with the length penalty of the search. A tie: both are equally good.
Ours better: the other system stopped earlier or dropped it. Theirs better: our beam lost it. Writes JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import write
from translators import Sources, as_hugging_face

from transduce.core.hypotheses import Penalty, Request
from transduce.core.layout import lay_out
from transduce.core.rules import Forbid, NoRepeat, begin_with_prefix
from transduce.core.search import Roles
from transduce.core.special import BEGIN, END, PAD, UNKNOWN
from transduce.data.lines import read_lines
from transduce.decoding.forced import score_targets
from transduce.engine.auto import make_engine
from transduce.engine.ctranslate2_engine import CTranslate2Engine
from transduce.formats.ctranslate2_out import token_name
from transduce.model import Model
from transduce.settings.sections import SearchSettings
from transduce.text.normalise import normalise

ALPHA = 0.6
TIE = 2e-4  # between scores
Outputs = list[list[list[int]]]  # of each sentence, best first


def ours(model: Model, requests: list[Request], roles: Roles) -> Outputs:
    engine = make_engine(model.model, SearchSettings(), "cpu")
    return [[h.tokens for h in found] for found in engine.find(requests, roles, lambda _: None)]


def by_ctranslate2(model: Model, requests: list[Request], roles: Roles) -> Outputs:
    engine = CTranslate2Engine(model.model, "float32", "cpu")
    return [[h.tokens for h in found] for found in engine.find(requests, roles, lambda _: None)]


def covering_by_ctranslate2(model: Model, requests: list[Request], roles: Roles) -> Outputs:
    """With its own penalties, one sentence at a time: it counts the padding beside longer ones as left out."""
    engine = CTranslate2Engine(model.model, "float32", "cpu")
    answers = engine.translator.translate_batch(
        [[*map(token_name, [*request.source, END])] for request in requests],
        beam_size=roles.size,
        length_penalty=ALPHA,
        coverage_penalty=roles.penalty.beta,
        max_decoding_length=max(request.most for request in requests),
        suppress_sequences=[[token_name(PAD)], [token_name(BEGIN)]],
        disable_unk=True,
        max_batch_size=1,
    )
    return [[list(map(int, answer.hypotheses[0]))] for answer in answers]


@torch.inference_mode()
def by_hugging_face(theirs: Any, requests: list[Request], roles: Roles, options: dict[str, Any]) -> Outputs:
    """One sentence at a time, so that each has its own prefix and its own limit."""
    found = []
    for request in requests:
        rows = lay_out([[[*request.source, END]]])
        tokens = theirs.generate(
            rows.tokens,
            attention_mask=torch.ones_like(rows.tokens),
            decoder_input_ids=torch.tensor([[BEGIN, *request.prefix]]),
            max_new_tokens=request.most - len(request.prefix),
            num_beams=roles.size,
            num_return_sequences=roles.n_best,
            length_penalty=ALPHA,
            early_stopping=roles.size > 1,
            do_sample=False,
            suppress_tokens=[PAD, BEGIN, UNKNOWN],
            **options,
        )
        found.append([_clean(row) for row in tokens.tolist()])
    return found


def _clean(row: list[int]) -> list[int]:
    row = row[1:]
    return row[: row.index(END)] if END in row else [token for token in row if token != PAD]


def compare(model: Model, sources: Sources, mine: Outputs, other: Outputs) -> dict[str, Any]:
    """Equal bests, equal lists, and what the rest is."""
    different = [i for i, (a, b) in enumerate(zip(mine, other, strict=True)) if a[:1] != b[:1]]
    why: Counter[str] = Counter()
    for i in different:
        a, b = (_score(model, sources[i], found[i][0] if found[i] else []) for found in (mine, other))
        why["tie" if abs(a - b) < TIE else "ours better" if a > b else "theirs better"] += 1
    lists = sum(sorted(a) == sorted(b) for a, b in zip(mine, other, strict=True))
    return {"equal": len(mine) - len(different), "equal lists": lists, "of": len(mine), **why}


def _score(model: Model, source: list[int], target: list[int]) -> float:
    (score,) = score_targets(model.model, [source], [target], model.lengths.longest, 4096, "cpu")
    return Penalty(ALPHA, plain=True).score(score.log_probability, score.tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source")
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    model = Model.load(given.model, "cpu", split=False)
    lines = list(read_lines(given.source))[: given.lines]
    sources = model.tokenizers.source.encode([normalise(line) for line in lines])
    plain = [Request(ids, len(ids) + 51) for ids in sources]
    theirs = as_hugging_face(model.model)
    beam = Roles(4, 1, Penalty(ALPHA, plain=True), stop="usual", ended_first=False)
    best = ours(model, plain, beam)
    frequent = [token for token, _ in Counter(t for found in best for t in found[0]).most_common(12)[2:]]
    begun = [request._replace(prefix=found[0][:2]) for request, found in zip(plain, best, strict=True)]
    forbid = [Forbid([[token] for token in frequent])]
    searches: dict[str, tuple[list[Request], Roles, dict[str, Any]]] = {
        "greedy": (plain, beam._replace(size=1), {}),
        "beam 4": (plain, beam, {}),
        "4 best of beam 4": (plain, beam._replace(n_best=4), {}),
        "no 2 tokens twice": (plain, beam._replace(rules=[NoRepeat(2)]), {"no_repeat_ngram_size": 2}),
        "10 frequent tokens forbidden": (
            plain, beam._replace(rules=forbid), {"bad_words_ids": [[token] for token in frequent]},
        ),
        "prefix of 2 tokens": (begun, beam._replace(rules=[begin_with_prefix]), {}),
        "coverage penalty 0.2": (plain, beam._replace(penalty=Penalty(ALPHA, plain=True, beta=0.2)), {}),
    }  # fmt: skip
    results: dict[str, dict] = {}
    for name, (requests, roles, options) in searches.items():
        mine = ours(model, requests, roles)
        systems: dict[str, Callable[[], Outputs]] = {
            "HF generate": lambda r=requests, s=roles, o=options: by_hugging_face(theirs, r, s, o),
            "CTranslate2": lambda r=requests, s=roles: by_ctranslate2(model, r, s),
        }
        if roles.penalty.beta:  # which HF has not
            systems = {"CTranslate2": lambda r=requests, s=roles: covering_by_ctranslate2(model, r, s)}
        results[name] = {system: compare(model, sources, mine, run()) for system, run in systems.items()}
        print(f"{name:30} {json.dumps(results[name])}", file=sys.stderr, flush=True)
    write(given.output, f"agreement-{given.model.name}", {"lines": len(lines), "searches": results})


if __name__ == "__main__":
    main()
