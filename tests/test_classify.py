"""Classification: a label is a target of one token, so everything else works unchanged."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from conftest import SMALL, SOURCE_WORDS, source_rows

from transduce import evaluate
from transduce.cli import main
from transduce.config import ModelSettings, TextSettings, compose
from transduce.data.corpus import open_corpus
from transduce.data.layout import lay_out
from transduce.errors import DataError, SettingsError
from transduce.models import classifier
from transduce.text.tokenizer import BEGIN, END, Tokenizers

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
    logits, state = model.step(target.tokens[:, 0], memory, state)
    label = torch.arange(LABELS) != END
    torch.testing.assert_close(logits[:, label], together[:, 0, label])
    logits, state = model.step(target.tokens[:, 1], memory, state)
    assert logits.log_softmax(-1)[:, END].tolist() == [0.0] * 3  # after a label nothing but the end
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
    assert main(["evaluate", run, "--source", str(tmp_path / "test.txt")]) == 0
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
    assert main(["evaluate", two, *words]) == 0
    assert set(json.loads(capsys.readouterr().out)["scores"]) == {"accuracy", "macro_f1"}


def test_macro_f1_counts_every_label_the_same() -> None:
    found, references = ["a", "a", "a", "b"], ["a", "a", "b", "c"]
    # a: 2 right of 3 said and 2 true; b: 0 right; c: 0 right
    assert evaluate.macro_f1(found, references) == pytest.approx((2 * 2 / 5 + 0 + 0) / 3)
    assert evaluate.macro_f1(["x", "y"], ["x", "y"]) == 1


def test_complaints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.txt").write_text("__label__a text\nno label\n")
    with pytest.raises(DataError, match=r"none.txt, line 2: it does not begin with __label__NAME; or give labels in"):
        list(open_corpus(str(tmp_path / "none.txt"), None, labels=True))
    (tmp_path / "many.txt").write_text("__label__a __label__b text\n")
    with pytest.raises(DataError, match=r"many.txt, line 1: more than one label; a text has one here"):
        list(open_corpus(str(tmp_path / "many.txt"), None, labels=True))
    settings = TextSettings(tokenizer="words", vocabulary=5, joint=False, target_tokenizer="labels")
    with pytest.raises(SettingsError, match=r"the target has 6 different labels, more than text.vocabulary=5; is it a"):
        Tokenizers.train([("x", str(i)) for i in range(6)], settings)
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
