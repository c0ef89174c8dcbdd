"""Answers one can trust: what a model cannot know is not called ok, and confidence means what it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from conftest import bundled_pairs, quick_settings

from transduce import cli
from transduce.core.special import END, UNKNOWN
from transduce.data.corpus import ListCorpus
from transduce.decoding.results import Candidate, Translation, gravest, join
from transduce.decoding.trust import FEATURES, TRUST, Answer, Trust, Usual, features, read_trust
from transduce.errors import ModelError
from transduce.files.manifest import write_folder
from transduce.model import Model
from transduce.models.weights import read_tensors, tensor_bytes
from transduce.text.scripts import NAMES
from transduce.training import calibrate
from transduce.training.calibrate import are_good, logistic
from transduce.training.setup import fit


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A poor model, but its validation text is enough to know what it has seen."""
    run = tmp_path_factory.mktemp("trust") / "run"
    settings = quick_settings(
        text={"vocabulary": 400},
        training={"steps": 60, "validate_every": 60, "bleu_lines": 150},
        search={"beam": 2},
    )
    fit(run, ListCorpus(bundled_pairs(800)), ListCorpus(bundled_pairs(150, seed=2)), settings)
    return run


def test_what_was_made_up_is_noticed(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.decoding.trust.HOPELESS", 0.0)  # this model has no hope for anything
    model, random = Model.load(trained), Random(5)
    real = [source for source, _ in bundled_pairs(200, seed=3)]
    shuffled = ["".join(random.sample(line, len(line))) for line in real]
    statuses = [[t.status for t in model.translate(lines)] for lines in (real, shuffled)]
    false, found = (sum(status in ("doubtful", "unknown") for status in kind) / 200 for kind in statuses)
    assert found > 0.9
    assert false < 0.1
    chinese = model.translate("我想喝啤酒")
    assert (chinese.status, chinese.confidence) == ("unknown", 0.0)


def test_what_is_hardly_ever_good_is_doubtful(trained: Path) -> None:
    """However usual the source: nonsense with a confidence of 0.01 was called ok."""
    found = Model.load(trained).translate([source for source, _ in bundled_pairs(50, seed=3)])
    assert all(t.status != "ok" for t in found if t.confidence is not None and t.confidence < 0.01)
    assert any(t.status == "doubtful" for t in found)


def test_a_model_that_knows_little_says_so(trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("".join(f"{source}\n" for source, _ in bundled_pairs(20, seed=3)), encoding="utf-8")
    assert cli.main(["translate", str(trained), str(tmp_path / "a.de")]) == 0
    assert "trust no line" in " ".join(capsys.readouterr().err.split())


def test_a_verdict_does_not_depend_on_the_company(trained: Path) -> None:
    model = Model.load(trained)
    lines = [source for source, _ in bundled_pairs(40, seed=4)]
    together = model.translate(lines)
    alone = [model.translate(line) for line in lines]
    assert [(t.status, t.confidence) for t in together] == [(t.status, t.confidence) for t in alone]
    assert model.with_search(beam=1).translate(lines[0]).confidence is not None


def test_white_space_around_a_line_tells_nothing(trained: Path) -> None:
    """It was counted among the letters of which every token had too few."""
    model = Model.load(trained)
    lines = [source for source, _ in bundled_pairs(20, seed=4)] + ["ich trinke ein bier. du trinkst ein bier."]
    plain, spaced = model.translate(lines), model.translate([f"{' ' * 40}{line}\t  \u3000 " for line in lines])
    assert [(t.text, t.status, t.confidence) for t in spaced] == [(t.text, t.status, t.confidence) for t in plain]


def test_the_command_tells(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("我想喝啤酒\n" + bundled_pairs(1, seed=3)[0][0] + "\n\n")
    assert cli.main(["translate", str(trained), str(tmp_path / "in"), "--json"]) == 0
    out, err = capsys.readouterr()
    records = [json.loads(line) for line in out.splitlines()]
    assert records[0]["status"] == "unknown"
    assert 0 <= records[1]["confidence"] <= 1
    assert records[2]["status"] == "empty"
    assert "status unknown (much of it in letters or words that the model does not know): 1 in all, line 1" in err


def test_a_line_is_as_doubtful_as_its_worst_sentence() -> None:
    candidate = Candidate("b", -1.0, -1.0, ("b",))
    parts = [
        Translation("a", "b", status, (candidate,), confidence=c) for status, c in (("ok", 0.9), ("doubtful", 0.2))
    ]
    joined = join("a c", parts, ["", " "])
    assert (joined.status, joined.confidence) == ("doubtful", 0.2)
    assert gravest(["ok", "unknown", "doubtful"]) == "unknown"
    assert gravest(["failed", "unknown"]) == "failed"


def test_a_translation_into_chinese_is_good_as_soon_as_one_into_english() -> None:
    """By n-grams of six characters hardly anything but the reference itself was good in Chinese."""
    chinese, english = "他们的幻灯片投射在身后。", "their slides are thrown on the wall behind them."
    near = ["他们的幻灯片放在他们身后。"], ["their slides are shown on a wall behind them."]
    far = ["板球运动员击球。"], ["a dog is lying in the grass."]
    for translations, reference in zip((near, far), (True, False), strict=True):
        assert [bool(are_good(t, [r])[0]) for t, r in zip(translations, (chinese, english), strict=True)] == [
            reference
        ] * 2
    assert not are_good(["a dog is lying in the grass (狗)."], [english + " (幻灯片)"])[0]


def test_features_are_those_of_each_alone() -> None:
    rng = np.random.default_rng(0)
    ids, begins = rng.integers(4, 30, 500), np.arange(0, 500, 10)
    usual = Usual.learn(ids, begins, 40)
    answers = [
        Answer("x" * n, rng.integers(4, 40, n).tolist(), rng.integers(4, 40, n % 7).tolist(), -float(n))
        for n in (1, 2, 5, 9, 3)
    ]
    together = features(answers, usual, 0.1)
    assert together.shape == (5, len(FEATURES))
    for row, answer in zip(together, answers, strict=True):
        assert features([answer], usual, 0.1)[0] == pytest.approx(row)
    source = answers[3].source
    pairs = list(zip([END, *source], [*source, END], strict=True))
    one_by_one = [usual.surprise(np.array([a]), np.array([b])) for a, b in pairs]
    assert together[3][1] == pytest.approx(np.mean([surprise for surprise, _ in one_by_one]))
    assert together[3][2] == pytest.approx(np.mean(sorted(float(s[0]) for s, _ in one_by_one)[-5:]))
    assert together[3][3] == pytest.approx(np.mean([unseen for _, unseen in one_by_one]))
    assert together[3][8] == pytest.approx(-np.mean(np.log(usual.share(np.array(source)))))


def test_usual_pairs_do_not_surprise() -> None:
    usual = Usual.learn(np.array([4, 5, 6, 4, 5, 7, 4, 5]), np.array([0, 3, 6]), 10)
    surprise, unseen = usual.surprise(np.array([4, 5, 7, 6]), np.array([5, 4, 6, END]))
    assert unseen.tolist() == [False, True, True, False]
    assert max(surprise[0], surprise[3]) < min(surprise[1], surprise[2])


def test_letters_of_another_script_are_foreign() -> None:
    """A model that reads Chinese called German ok: small pieces of words follow each other often in any text."""
    usual = Usual.learn(np.array([4, 5]), np.array([0]), 10, text="我想喝啤酒，OK？" * 20)
    chinese, mixed, german = usual.foreign(["我想喝啤酒。", "我想喝 ok 酒。", "das ist sein Haus."])
    assert chinese < mixed < german
    assert usual.foreign(["12:30?", "我", ""])[[0, 2]].tolist() == [0, 0]
    assert Usual.learn(np.array([4, 5]), np.array([0]), 10).foreign(["das"])[0] == pytest.approx(
        0, abs=1e-3
    )  # not known


def test_pairs_are_told_apart_in_a_large_text() -> None:
    """With one table as small as the text has pairs, every second pair that never was would seem to have been."""
    rng = np.random.default_rng(1)
    ids = rng.integers(4, 5000, 200_000)
    usual = Usual.learn(ids, np.array([0]), 5000)
    assert not usual.surprise(ids[:-1], ids[1:])[1].any()
    unseen = usual.surprise(rng.integers(4, 5000, 10_000), rng.integers(4, 5000, 10_000))[1]
    assert unseen.mean() > 0.95


def test_a_rule_of_before_there_were_two_tables_is_read(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(trained, folder)
    tensors = read_tensors(folder / TRUST)
    tensors["pairs"] = torch.zeros(2**18, dtype=torch.uint8)
    tensors["pairs"][(4 * 1_000_003 + 5 * 7_919) % 2**18] = 80  # where that version had the pair 4, 5
    del tensors["letters"]
    for name in ("means", "scales"):
        tensors[name] = tensors[name][:8]
    for name in ("doubt", "confidence"):
        tensors[name] = torch.cat([tensors[name][:8], tensors[name][-1:]])
    write_folder(folder, {TRUST: tensor_bytes(tensors)})
    trust = read_trust(folder, Model.load(trained).tokenizers.source.size)
    assert trust is not None
    assert trust.usual.surprise(np.array([4, 4]), np.array([5, 6]))[1].tolist() == [False, True]
    assert 0 <= trust.judge([Answer("ab", [4, 5], [6], -1.0)])[0].confidence <= 1


def test_logistic_finds_the_odds() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 2))
    y = rng.random(4000) < 1 / (1 + np.exp(-(2 * x[:, 0] - 1)))
    assert logistic(x, y) == pytest.approx([2, 0, -1], abs=0.2)


def test_too_little_text_or_too_poor_a_model_gives_no_rule(trained: Path, model_folder: Path) -> None:
    assert not (model_folder / TRUST).exists()  # 40 lines of validation text
    assert Model.load(model_folder).translate("ein bier").confidence is None
    usual = Usual.learn(np.array([4, 5, 6]), np.array([0]), 10)
    same = [Answer("ab", [4, 5], [6], -1.0)] * 200
    assert calibrate._fit(same, same, np.ones(200, bool), usual) is None


def test_unknown_by_its_share() -> None:
    count = len(FEATURES)
    usual = Usual(np.ones(10, np.float32), np.zeros((2, 8), np.uint8), np.zeros(len(NAMES), np.float32))
    rule = Trust(
        usual, np.zeros(count), np.ones(count), np.zeros(count + 1), np.zeros(count + 1), np.array([9, 0.3, 0])
    )
    verdicts = rule.judge([Answer("ab", [UNKNOWN, 4], [5], -1.0), Answer("abc", [4, 5, 6, UNKNOWN], [5], -1.0)])
    assert [verdict.status for verdict in verdicts] == ["unknown", "ok"]
    assert verdicts[1].confidence == 0.5
    assert rule.judge([]) == []


@pytest.mark.parametrize("damage", ["missing", "shape", "dtype", "numbers", "scales"])
def test_a_damaged_rule_is_named(trained: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(trained, folder)
    tensors = read_tensors(folder / TRUST)
    if damage == "missing":
        del tensors["doubt"]
    elif damage == "shape":
        tensors["pairs"] = tensors["pairs"].repeat(2, 1)
    elif damage == "dtype":
        tensors["pairs"] = tensors["pairs"].float() - 100
    elif damage == "scales":
        tensors["scales"].zero_()
    else:
        tensors["limits"] = torch.full((3,), float("nan"))
    write_folder(folder, {TRUST: tensor_bytes(tensors)})
    with pytest.raises(ModelError, match=r"trust.safetensors is damaged: \w+ is not what it should be"):
        read_trust(folder, Model.load(trained).tokenizers.source.size)
