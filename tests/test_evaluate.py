"""Scores: sacreBLEU's own, with signatures; differences tested."""

from __future__ import annotations

import random

import pytest
import sacrebleu

from transduce import evaluate
from transduce.errors import DataError, SettingsError

REFERENCES = [f"the {a} cat sat on the {b} mat today" for a in ("old", "big", "red") for b in ("new", "wet", "dry")] * 5
GOOD = [r.replace("today", "now") if i % 3 else r for i, r in enumerate(REFERENCES)]
POOR = [" ".join(random.Random(i).sample(r.split(), 5)) for i, r in enumerate(REFERENCES)]


def test_scores_are_sacrebleus() -> None:
    found = evaluate.evaluate(GOOD, REFERENCES)
    assert found["BLEU"].score == pytest.approx(sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score, abs=1e-3)
    assert found["chrF"].score == pytest.approx(sacrebleu.corpus_chrf(GOOD, [REFERENCES]).score, abs=1e-3)
    assert found["TER"].score == pytest.approx(sacrebleu.corpus_ter(GOOD, [REFERENCES]).score, abs=1e-3)
    assert "tok:13a" in found["BLEU"].signature
    assert evaluate.bleu(GOOD, REFERENCES) == pytest.approx(found["BLEU"].score, abs=1e-3)
    assert evaluate.exact_match(GOOD, REFERENCES) == pytest.approx(1 / 3)


def test_a_real_difference_is_told_from_none() -> None:
    better = evaluate.compare(GOOD, POOR, REFERENCES, samples=200)
    assert better["BLEU"]["ours"] > better["BLEU"]["theirs"]
    assert better["BLEU"]["p"] < 0.05
    same = evaluate.compare(GOOD, GOOD[:-1] + [REFERENCES[-1]], REFERENCES, samples=200)
    assert same["BLEU"]["p"] > 0.05
    identical = evaluate.compare(GOOD, GOOD, REFERENCES, samples=50)
    assert {name: row["p"] for name, row in identical.items()} == {"BLEU": 1.0, "chrF": 1.0, "TER": 1.0}
    with pytest.raises(SettingsError, match="samples=0 must be at least 1"):
        evaluate.compare(GOOD, GOOD, REFERENCES, samples=0)


def test_complaints() -> None:
    with pytest.raises(DataError, match="2 translations cannot be scored against 1 references"):
        evaluate.evaluate(["a", "b"], ["a"])
    with pytest.raises(DataError, match="there is nothing to score: the reference is empty"):
        evaluate.evaluate([], [])
    with pytest.raises(SettingsError, match="unknown BLEU tokenizer 14a; there are: .*13a"):
        evaluate.metrics("14a")
    with pytest.raises(SettingsError, match="BLEU tokenizer ja-mecab cannot be used here"):
        evaluate.metrics("ja-mecab")
