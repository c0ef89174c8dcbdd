"""Classification: a label is a target of one token, so everything else works unchanged."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from conftest import SMALL, SOURCE_WORDS, source_rows

import transduce
from transduce import evaluate
from transduce.cli import main
from transduce.core import classifier
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END
from transduce.data import survey
from transduce.data.open import open_corpus
from transduce.errors import DataError, SettingsError
from transduce.settings.compose import compose
from transduce.settings.sections import ModelSettings, TextSettings
from transduce.text.tokenizers import Tokenizers
from transduce.training.recipe import settings_of
from transduce.training.resolve import resolve

GOOD, BAD = ("good", "fine", "lovely"), ("bad", "awful", "dull")
LABELS = 7  # the four special tokens and three


def labelled(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts whose label needs two words: "not" turns it round."""
    random.seed(seed)
    found = []
    for _ in range(count):
        positive, negated = random.random() < 0.5, random.random() < 0.4
        word = random.choice(GOOD if positive else BAD)
        text = f"the {random.choice(['film', 'book', 'meal'])} was {'not ' if negated else ''}{word}"
        found.append((text, "liked it" if positive != negated else "disliked"))
    return found


def small() -> classifier.Classifier:
    torch.manual_seed(0)
    settings = ModelSettings(**{**SMALL.__dict__, "kind": "classifier", "tie_source": False, "output_bias": True})
    return classifier.build(settings, SOURCE_WORDS, LABELS).eval()


def test_steps_and_forward_agree_and_neighbours_do_not_matter() -> None:
    model = small()
    sentences, labels = ([5, 6, 7], [8, 9], [10, 11, 12, 13]), (4, 5, 6)
    target = lay_out([[[BEGIN, label]] for label in labels])
    together = model(source_rows(*sentences), target)
    memory = model.encode(source_rows(*sentences))
    state = model.start(memory)
    logits, state = model.step(target.tokens[:, :1], memory, state)
    label = torch.arange(LABELS) != END
    torch.testing.assert_close(logits[:, 0, label], together[:, 0, label])
    logits, state = model.step(target.tokens[:, 1:], memory, state)
    assert logits.log_softmax(-1)[:, 0, END].tolist() == [0.0] * 3  # after a label nothing but the end
    packed = lay_out([[[*s, END] for s in sentences]]), lay_out([[[BEGIN, label] for label in labels]])
    torch.testing.assert_close(model(*packed).view_as(together), together)
    assert len(model.attention(source_rows(*sentences), target).encoder) == SMALL.layers


def test_pooling_is_the_mean_of_a_sentences_states() -> None:
    model = small()
    memory = model.encode(source_rows([5, 6, 7], [8]))
    pooled = classifier.mean_of(memory, torch.tensor([[1], [1]]))
    torch.testing.assert_close(pooled[0, 0], memory.states[0].mean(0))
    torch.testing.assert_close(pooled[1, 0], memory.states[1, :2].mean(0))


def test_from_files_to_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way by commands, labels before the text and labels in a file."""
    for name, pairs in (("train", labelled(400, 1)), ("test", labelled(60, 2))):
        lines = [f"__label__{label.replace(' ', '-')} {text}" for text, label in pairs]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.texts").write_text("\n".join(text for text, _ in pairs) + "\n")
        (tmp_path / f"{name}.labels").write_text("\n".join(label for _, label in pairs) + "\n")
    quick = (
        "--model.layers 1 --model.d_model 32 --model.d_ff 48 --model.heads 2 --text.tokenizer words --batch.tokens 512"
    )
    quick += " --optimizer.rate 5e-3 --optimizer.warmup 20 --training.steps 200 --training.validate_every 100"
    quick += " --training.device cpu --preset tiny"
    run = str(tmp_path / "run")
    assert main(["train", run, "--task", "classify", "--source", str(tmp_path / "train.txt"), *quick.split()]) == 0
    assert "validation accuracy" in capsys.readouterr().err.replace("\n", " ")
    assert main(["evaluate", run, "--source", str(tmp_path / "test.txt"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores["accuracy"] > 0.9
    assert scores["macro_f1"] > 0.9
    (tmp_path / "one.txt").write_text("the film was not bad\n")
    assert main(["translate", run, str(tmp_path / "one.txt"), "--n-best", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["translation"] == "liked-it"
    assert {candidate["text"] for candidate in found["candidates"]} == {"liked-it", "disliked"}
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert '"accuracy"' in metrics
    assert (tmp_path / "run" / "curve.png").stat().st_size > 1000

    two = str(tmp_path / "two")
    files = ["--source", str(tmp_path / "train.texts"), "--target", str(tmp_path / "train.labels")]
    assert main(["train", two, "--task", "classify", *files, *quick.split(), "--training.steps", "4"]) == 0
    capsys.readouterr()
    words = ["--source", str(tmp_path / "test.texts"), "--reference", str(tmp_path / "test.labels")]
    assert main(["evaluate", two, *words, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["scores"]) == {"accuracy", "macro_f1"}


def test_labels_are_names_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Case, and space around them, do not matter to accuracy; lower-casing is for the text."""
    pairs = labelled(200, 1)
    (tmp_path / "a.texts").write_text("".join(f"{text.upper()}\n" for text, _ in pairs))
    (tmp_path / "a.labels").write_text("".join(f"{label.title()} \n" for _, label in pairs))
    files = ["--source", str(tmp_path / "a.texts"), "--target", str(tmp_path / "a.labels")]
    quick = (
        "--text.lowercase true --text.tokenizer words --preset tiny --model.layers 1 --model.d_model 32 --model.heads 2"
    )
    quick += " --training.steps 60 --optimizer.warmup 20 --optimizer.rate 1e-2 --training.validate_every 60 --training.device cpu"
    run = str(tmp_path / "run")
    assert main(["train", run, "--task", "classify", *files, *quick.split()]) == 0
    capsys.readouterr()
    words = ["--source", str(tmp_path / "a.texts"), "--reference", str(tmp_path / "a.labels")]
    assert main(["evaluate", run, *words, "--against", run, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"]["accuracy"] > 0.7
    assert found["against"]["accuracy"]["p"] == 1.0
    assert main(["evaluate", run, *words, "--against", run]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[2].split() == [run, run, "difference", "p"]
    assert shown[3].split()[0] == "accuracy"
    assert shown[-1] == f"{run} and {run} have the same accuracy"


def test_a_sample_of_the_text_does_not_decide_which_labels_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "ENOUGH", 20)
    labels = {f"label {i}" for i in range(40)}  # more than the sample has pairs
    pairs = [(f"word {i % 7}", f"label {i % 40}") for i in range(80)]
    settings = {"text": {"tokenizer": "words"}, "training": {"steps": 2, "validate_every": 2, "device": "cpu"}}
    model = transduce.train(tmp_path / "run", pairs, pairs[:10], preset="tiny", task="classify", **settings)
    assert {c.text for c in model.with_search(beam=40).translate("word 3", n_best=40).candidates} == labels


def test_a_task_is_weaker_than_a_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("training:\n  label_smoothing: 0.2\n")
    flags = {"data": {"source": "x"}}
    for file, smoothing in ((tmp_path / "c.yaml", 0.2), (None, 0.0)):
        wanted = resolve(tmp_path / "new", None, file, flags, "classify")
        assert settings_of(wanted).training.label_smoothing == smoothing


def test_mcnemar() -> None:
    references = ["a"] * 10
    ours, theirs = ["a"] * 9 + ["b"], ["a"] * 3 + ["b"] * 7
    found = evaluate.compare_labels(ours, theirs, references)
    assert (found["ours"], found["theirs"]) == (0.9, 0.3)
    assert found["p"] == pytest.approx(2 * 1 / 2**6, abs=1e-4)  # six only ours, none only theirs


def test_macro_f1_counts_every_label_the_same() -> None:
    found, references = ["a", "a", "a", "b"], ["a", "a", "b", "c"]
    # a: 2 right of 3 said and 2 true; b: 0 right; c: 0 right
    assert evaluate.macro_f1(found, references) == pytest.approx((2 * 2 / 5 + 0 + 0) / 3)
    assert evaluate.macro_f1(["x", "y"], ["x", "y"]) == 1


@pytest.mark.parametrize("preset", [[], ["--preset", "fasttext"]])
def test_sentences_are_no_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str], preset: list[str]) -> None:
    lines = "".join(f"news\ta text of number {number}\n" for number in range(300))
    (tmp_path / "a.tsv").write_text(lines)
    words = ["train", str(tmp_path / "run"), "--task", "classify", "--source", str(tmp_path / "a.tsv")]
    assert main([*words, *preset]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "different labels for 300 texts, most of several words: are text and label the wrong way round?" in said
    assert not (tmp_path / "run").exists()


def test_complaints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.txt").write_text("__label__a text\nno label\n")
    with pytest.raises(DataError, match=r"none.txt, line 2: it does not begin with __label__NAME; or give labels in"):
        list(open_corpus(str(tmp_path / "none.txt"), None, labels=True))
    (tmp_path / "many.txt").write_text("__label__a __label__b text\n")
    with pytest.raises(DataError, match=r"many.txt, line 1: more than one label; a text has one here"):
        list(open_corpus(str(tmp_path / "many.txt"), None, labels=True))
    settings = TextSettings(tokenizer="words", vocabulary=5, joint=False, target_tokenizer="labels")
    with pytest.raises(
        SettingsError,
        match=r"the target has 6 different labels, more than text.vocabulary=5 holds beside 4 special tokens",
    ):
        Tokenizers.train([("x", str(i)) for i in range(6)], settings)
    with pytest.raises(SettingsError, match=r"the target has one label only, a: two are needed"):
        Tokenizers.train([("x", "a")], TextSettings(tokenizer="words", joint=False, target_tokenizer="labels"))
    (tmp_path / "labels").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"none.txt has labels before its lines already; give either those or"):
        open_corpus(str(tmp_path / "none.txt"), str(tmp_path / "labels"), labels=True)
    with pytest.raises(DataError, match=r"none.txt has labels before its lines: train on it with --task classify"):
        open_corpus(str(tmp_path / "none.txt"), None)
    assert main(["train", str(tmp_path / "other"), "--task", "classify", "--preset", "rnn", "--source", "x"]) == 2
    assert "the preset rnn is of another kind" in capsys.readouterr().err.replace("\n", " ")
    assert main(["train", str(tmp_path / "run"), "--task", "classify"]) == 2
    assert "--task classify needs --source" in capsys.readouterr().err
    for changes, words in (
        ({"model": {"kind": "classifier"}}, "model.kind=classifier does not go with text.target_tokenizer=same"),
        ({"text": {"target_tokenizer": "labels", "joint": False}}, "model.kind=transformer does not go with"),
        ({"text": {"target_tokenizer": "labels"}}, "text.target_tokenizer=labels needs text.joint=false"),
        ({"model": {"kind": "classifier"}}, "model.kind=classifier needs model.tie_output=false and model.tie_source"),
    ):
        with pytest.raises(SettingsError, match=words):
            compose(changes)
