"""Scores: sacreBLEU's own, with signatures; differences tested."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

import pytest
import sacrebleu
from conftest import Notes

from transduce import cli, evaluate
from transduce.commands.evaluate import _verdict, _warn_of_doubts
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


def test_intervals_hold_the_score_and_shrink_with_more_text() -> None:
    few, many = (evaluate.evaluate(GOOD[:n], REFERENCES[:n], samples=100) for n in (9, 45))
    for name, scored in many.items():
        assert scored.interval is not None
        assert few[name].interval is not None
        low, high = scored.interval
        assert low < scored.score < high
        assert high - low < few[name].interval[1] - few[name].interval[0]
        assert "bs:100|" in scored.signature
    assert evaluate.evaluate(GOOD, REFERENCES)["BLEU"].interval is None
    with pytest.raises(SettingsError, match="samples=0 must be at least 1"):
        evaluate.evaluate(GOOD, REFERENCES, samples=0)


@pytest.mark.parametrize("at_terminal", [False, True])
def test_a_table_says_which_is_better_and_how_sure(
    at_terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: at_terminal)
    for name, lines in (("good", GOOD), ("poor", POOR), ("right", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    words = ["evaluate", "poor", "--source", "right", "--reference", "right", "--against", "good", "--samples", "200"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert cli.main(words) == 0
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert out[0] == "45 lines of right"
    assert out[2].split() == ["poor", "good", "difference", "p"]
    bleu, low, high = found["scores"]["BLEU"]["score"], *found["scores"]["BLEU"]["interval"]
    assert out[3].split()[:4] == ["BLEU", f"{bleu:.1f}", "±", f"{(high - low) / 2:.1f}"]
    assert [line.split()[0] for line in out[4:7]] == ["chrF", "TER", "exact"]
    compared = found["against"]["BLEU"]
    expected = f"good is better by {compared['theirs'] - compared['ours']:.1f} BLEU; p = {compared['p']:.3f}"
    assert out[8] == f"{expected}, so it is hardly chance"
    assert out[9] == f"BLEU: {found['scores']['BLEU']['signature']}"


def test_verdicts() -> None:
    def verdict(ours: float, theirs: float, p: float, name: str = "BLEU") -> str:
        return _verdict("a", {"other": "b", "samples": 9, name: {"ours": ours, "theirs": theirs, "p": p}})

    assert verdict(31.2, 30, 0.003) == "a is better by 1.2 BLEU; p = 0.003, so it is hardly chance"
    assert verdict(30, 30.03, 0.04) == "b is better by 0.03 BLEU; p = 0.040, so it is probably not chance"
    assert verdict(31, 30, 0.2) == "a is better by 1.0 BLEU; p = 0.200, so it may be chance"
    assert verdict(30, 30, 1) == "a and b have the same BLEU"
    assert verdict(0.75, 0.5, 0.001, "accuracy") == (
        "a is better by 25.0 points of accuracy; p = 0.001, so it is hardly chance"
    )


def test_complaints() -> None:
    with pytest.raises(DataError, match="2 translations cannot be scored against 1 references"):
        evaluate.evaluate(["a", "b"], ["a"])
    with pytest.raises(DataError, match="there is nothing to score: the reference is empty"):
        evaluate.evaluate([], [])
    with pytest.raises(SettingsError, match="unknown BLEU tokenizer 14a; there are: .*13a"):
        evaluate.metrics("14a")
    with pytest.raises(SettingsError, match="BLEU tokenizer ja-mecab cannot be used here"):
        evaluate.metrics("ja-mecab")


def test_a_text_that_is_not_the_models_is_told() -> None:
    """Its scores look like any others."""
    notes = Notes()
    _warn_of_doubts(["doubtful"] * 30 + ["ok"] * 70, Path("run"), notes)
    assert not notes.said
    _warn_of_doubts(["doubtful"] * 30 + ["unknown"] * 30 + ["ok"] * 40, Path("run"), notes)
    assert "run calls 60 of 100 lines unknown or doubtful" in notes.said[0]
