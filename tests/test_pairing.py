"""Do the two sides of the training text belong together?"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import Notes, bundled_pairs, quick_settings

from transduce.data.batches import Batches
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.files import metrics
from transduce.files.run_folder import METRICS, RunFolder
from transduce.settings.sections import BatchSettings, DataSettings, TextSettings
from transduce.text.tokenizers import Tokenizers
from transduce.training import checkpoint, trainer
from transduce.training.pairing import share_apart
from transduce.training.setup import fit
from transduce.training.state import read_state


def with_others_targets(pairs: list[tuple[str, str]], every: int) -> list[tuple[str, str]]:
    """Every so manieth pair gets the target of another."""
    targets = [target for _, target in pairs]
    random.Random(1).shuffle(targets)
    return [(s, targets[i] if i % every == 0 else t) for i, (s, t) in enumerate(pairs)]


def batches_of(folder: Path, pairs: list[tuple[str, str]]) -> Batches:
    tokenizers = Tokenizers.train(pairs, TextSettings(vocabulary=300, joint=True))
    store = build_store(ListCorpus(pairs), tokenizers, DataSettings(), folder)
    return Batches(store, BatchSettings(layout="packed", tokens=2048), seed=1)


class Copier:
    """Thinks that every word of the source is probable in the target."""

    def __init__(self, sure: float = 5.0) -> None:
        self.sure = sure

    def eval(self) -> None:
        pass

    def __call__(self, source: Any, target_in: Any) -> torch.Tensor:
        logits = torch.zeros(len(source.tokens), 400)
        logits.scatter_(1, source.tokens.long(), self.sure)
        return logits.unsqueeze(1).expand(-1, target_in.tokens.shape[1], -1)


@pytest.mark.parametrize("every", [1, 2, 4])
def test_pairs_that_do_not_belong_together_are_counted(tmp_path: Path, every: int) -> None:
    copies = [(source, source) for source, _ in bundled_pairs(1200)]
    validation = batches_of(tmp_path / "v", copies[:200])
    training = batches_of(tmp_path / "t", with_others_targets(copies[200:], every))
    assert share_apart(Copier(), training, validation, False, "cpu") == pytest.approx(1 / every, abs=0.1)  # type: ignore[arg-type]


def test_text_in_order_is_not_complained_of(tmp_path: Path) -> None:
    copies = [(source, source) for source, _ in bundled_pairs(600)]
    one, other = batches_of(tmp_path / "v", copies[:200]), batches_of(tmp_path / "t", copies[200:])
    found = share_apart(Copier(), other, one, False, "cpu")  # type: ignore[arg-type]
    assert found is not None
    assert found < 0.05


def test_a_model_of_use_doubts_validation_text_too(tmp_path: Path) -> None:
    """A part set aside is as mixed up as the text that it comes from."""
    mixed = with_others_targets([(source, source) for source, _ in bundled_pairs(1200)], 2)
    validation, training = batches_of(tmp_path / "v", mixed[:400]), batches_of(tmp_path / "t", mixed[400:])
    assert share_apart(Copier(), training, validation, True, "cpu") == pytest.approx(0.5, abs=0.1)  # type: ignore[arg-type]
    assert share_apart(Copier(), training, validation, False, "cpu") is None  # type: ignore[arg-type]


def test_a_text_that_says_the_same_again_is_in_order(tmp_path: Path) -> None:
    text = batches_of(tmp_path / "t", [(source, source) for source, _ in bundled_pairs(40)] * 10)
    assert share_apart(Copier(), text, text, True, "cpu") == 0  # type: ignore[arg-type]


def test_a_model_that_knows_nothing_does_not_judge(tmp_path: Path) -> None:
    text = batches_of(tmp_path / "t", bundled_pairs(200))
    assert share_apart(Copier(sure=0.0), text, text, False, "cpu") is None  # type: ignore[arg-type]
    few = SimpleNamespace(store=range(99))
    assert share_apart(Copier(), text, few, False, "cpu") is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "told"), [(0.4, 1), (0.02, 0)])
def test_a_run_asks_until_it_is_told_and_says_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, told: int
) -> None:
    answers, notes = iter([None, share]), Notes()  # a third question would fail
    monkeypatch.setattr(trainer, "share_apart", lambda *_: next(answers))
    settings = quick_settings(training={"steps": 16})
    fit(tmp_path / "r", ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(10, seed=2)), settings, notes)
    assert sum("about 40% of the training pairs do not seem to belong together" in line for line in notes.said) == told
    lines = [record for record in metrics.read(tmp_path / "r" / METRICS) if record["kind"] == "apart"]
    assert [(record["step"], record["share"]) for record in lines] == [(8, share)] * told
    assert read_state(checkpoint.latest(RunFolder(tmp_path / "r"))[0]).apart == share  # type: ignore[arg-type]
    assert list(answers) == []
