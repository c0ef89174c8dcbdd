"""transduce bench: several seeds of a named task, scored as papers do; and the page made from its files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from conftest import bundled_pairs

from transduce import evaluate
from transduce.commands.bench import LENGTH_PENALTIES, bench
from transduce.data.corpus import Joined, ListCorpus
from transduce.errors import DataError, SettingsError
from transduce.settings.recipes import RECIPES

ROOT = Path(__file__).parent.parent
QUICK = {
    "model": {"layers": 1, "d_model": 32, "d_ff": 48, "heads": 2, "dropout": 0.1},
    "text": {"vocabulary": 300},
    "batch": {"tokens": 512},
    "training": {"steps": 6, "validate_every": 3, "bleu_lines": 10, "device": "cpu"},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Text in the places where the task looks for it."""
    here = tmp_path / "data" / "multi30k"
    here.mkdir(parents=True)
    for seed, (name, count) in enumerate({"train": 120, "val": 20, "test_2016_flickr": 15}.items()):
        pairs = bundled_pairs(count, seed=seed)
        for side, language in enumerate(("de", "en")):
            (here / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return tmp_path / "data"


def test_seeds_are_trained_once_and_summed_up(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "bench"
    first = list(bench("multi30k-de-en", data=data, run=run, seeds=[1, 2], settings=QUICK))
    assert "2 seeds: 1, 2" in first[0]
    found = json.loads((run / "results.json").read_text())
    assert [seed["seed"] for seed in found["seeds"]] == [1, 2]
    assert found["command"].startswith("transduce bench multi30k-de-en --data")
    assert "--training.steps 6" in found["command"]
    each = [seed["scores"]["chrF, beam 5"] for seed in found["seeds"]]
    assert found["mean"]["chrF, beam 5"] == pytest.approx(sum(each) / 2, abs=0.01)
    assert "case:lc" in found["seeds"][0]["signatures"]["BLEU lower-cased"]
    assert found["seeds"][0]["steps"] == 6
    assert found["seeds"][0]["chosen length penalty"] in LENGTH_PENALTIES
    assert [point[0] for point in found["seeds"][0]["curve"]] == [3, 6]

    stamp = (run / "seed-1" / "result.json").stat().st_mtime_ns
    again = list(bench("multi30k-de-en", data=data, run=run, seeds=[1, 2, 3], settings=QUICK))
    assert "3 seeds: 1, 2, 3" in again[0]
    assert (run / "seed-1" / "result.json").stat().st_mtime_ns == stamp

    with pytest.raises(SettingsError, match="seed-1 was trained with training.steps=6, not 7; choose another"):
        list(
            bench(
                "multi30k-de-en",
                data=data,
                run=run,
                seeds=[1],
                settings={**QUICK, "training": {**QUICK["training"], "steps": 7}},
            )
        )

    lines = (run / "seed-3" / "test.beam5.txt").read_text(encoding="utf-8").splitlines()
    references = (data / "multi30k" / "test_2016_flickr.en").read_text(encoding="utf-8").splitlines()
    theirs = sacrebleu.corpus_chrf(lines, [references]).score
    result = json.loads((run / "seed-3" / "result.json").read_text())
    assert result["scores"]["chrF, beam 5"] == pytest.approx(theirs, abs=1e-3)

    page = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "results.py", run / "results.json"], capture_output=True, text=True
    ).stdout
    assert "| multi30k-de-en | transduce | 3 | 5 |" in page
    assert found["command"].split(" --seeds")[0] in page
    assert f"--run {run}" in found["command"]


def test_a_length_penalty_set_by_hand_stays(data: Path, tmp_path: Path) -> None:
    settings = {**QUICK, "search": {"length_penalty": 0.3}, "training": {**QUICK["training"], "bleu_lines": 0}}
    list(bench("multi30k-de-en", data=data, run=tmp_path / "bench", seeds=[1], settings=settings))
    result = json.loads((tmp_path / "bench" / "seed-1" / "result.json").read_text())
    assert result["chosen length penalty"] == 0.3


def test_complaints(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match="unknown task multi30k-dn-en, did you mean multi30k-de-en; there are: bundled"
    ):
        list(bench("multi30k-dn-en"))
    with pytest.raises(DataError, match="there is no folder .*multi30k; --data names the folder that holds multi30k"):
        list(bench("multi30k-de-en", data=tmp_path, run=tmp_path / "r", seeds=[1]))


def test_results_that_are_not_ours(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "bench"
    list(bench("multi30k-de-en", data=data, run=run, seeds=[1], settings=QUICK))
    with pytest.raises(SettingsError, match="seed-1 was trained with task=multi30k-de-en, not multi30k-en-de; choose"):
        list(bench("multi30k-en-de", data=data, run=run, seeds=[2], settings=QUICK))
    for broken in ('{"seed": 1, "sc', "{}", "[]"):
        (run / "seed-1" / "result.json").write_text(broken)
        with pytest.raises(DataError, match="result.json is damaged; remove it, and the seed is scored again"):
            list(bench("multi30k-de-en", data=data, run=run, seeds=[2], settings=QUICK))
    (tmp_path / "file").write_text("x")
    with pytest.raises(SettingsError, match="file is a file; choose another --run"):
        list(bench("bundled", run=tmp_path / "file"))
    with pytest.raises(SettingsError, match="given by --seeds, not by --training.seed"):
        list(bench("bundled", settings={"training": {"seed": 7}}))


def test_every_task_has_settings_that_hold() -> None:
    from transduce.settings.compose import compose

    for name, task in RECIPES.items():
        assert compose(task.settings).training.steps, name
        assert task.summary.endswith("."), name


def test_corpora_one_after_the_other() -> None:
    both = Joined([ListCorpus([("a", "b")], "one"), ListCorpus([("c", "d")], "two")])
    assert [tuple(pair) for pair in both] == [("a", "b", 1), ("c", "d", 2)]
    assert both.name == "one + two"


def test_case_counts_only_where_it_should() -> None:
    scores = evaluate.as_papers_do(["Ein Hund läuft durch das Gras ."], ["ein hund läuft durch das gras ."])
    assert scores["BLEU lower-cased"].score == pytest.approx(100)
    assert scores["BLEU"].score < 60


def test_the_results_page_is_made_from_its_files() -> None:
    results = ROOT / "benchmarks" / "results"
    files = [*sorted(results.glob("bench-*.json")), *sorted(results.glob("marian-*.json"))]
    assert files
    made = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "results.py", *files], capture_output=True, text=True, check=True
    ).stdout
    assert made == (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
