"""Do the two sides of the training text belong together?"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENOUGH, Notes, bundled_pairs, quick_settings

from transduce.data.batches import Batches
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.files import metrics
from transduce.files.run_folder import METRICS, RunFolder
from transduce.settings.sections import BatchSettings, DataSettings, TextSettings
from transduce.text.tokenizers import Tokenizers
from transduce.training import checkpoint, pairing
from transduce.training.pairing import Pairing, pairing_of, texts_apart
from transduce.training.setup import fit
from transduce.training.state import read_state


@pytest.fixture(autouse=True)
def _doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked here, as anywhere but in the other tests."""
    monkeypatch.setattr(pairing, "FEWEST", ENOUGH)


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


class Chance(Copier):
    """Thinks anything, and each time something else."""

    def __init__(self) -> None:
        self.noise = torch.Generator().manual_seed(1)

    def __call__(self, source: Any, target_in: Any) -> torch.Tensor:
        return torch.randn(*target_in.tokens.shape, 400, generator=self.noise)


def pairing_by(model: Any, text: Batches) -> Pairing:
    return pairing_of(model, text, text.budget, "cpu")


@pytest.mark.parametrize("every", [1, 2, 4])
def test_pairs_that_do_not_belong_together_are_counted(tmp_path: Path, every: int) -> None:
    copies = [(source, source) for source, _ in bundled_pairs(1200)]
    found = pairing_by(Copier(), batches_of(tmp_path / "t", with_others_targets(copies, every)))
    assert found.apart == pytest.approx(1 / every, abs=0.12)
    assert found.is_clear == (every > 1)  # where nothing belongs together the model may as well be weak


def test_text_in_order_is_not_complained_of(tmp_path: Path) -> None:
    found = pairing_by(Copier(), batches_of(tmp_path / "t", [(source, source) for source, _ in bundled_pairs(600)]))
    assert found.is_clear
    assert found.apart < 0.02
    assert texts_apart(found, found) == {}


def test_a_text_that_says_the_same_again_is_in_order(tmp_path: Path) -> None:
    text = batches_of(tmp_path / "t", [(source, source) for source, _ in bundled_pairs(40)] * 10)
    assert pairing_by(Copier(), text).apart == 0


def test_sources_that_mean_the_same_are_in_order(tmp_path: Path) -> None:
    text = batches_of(tmp_path / "t", [(source, "yes") for source, _ in bundled_pairs(300)])
    assert pairing_by(Chance(), text).apart == 0


def test_a_model_that_knows_nothing_does_not_judge(tmp_path: Path) -> None:
    text = batches_of(tmp_path / "t", bundled_pairs(300))
    assert not pairing_by(Chance(), text).is_clear
    few = batches_of(tmp_path / "f", bundled_pairs(90))
    assert pairing_by(Copier(), few) == (0, 0)


CLEAR, MIXED, WEAK, NOTHING = Pairing(0.02, 0.9), Pairing(0.5, 0.8), Pairing(0.25, 0.5), Pairing(0.95, 0.0)


@pytest.mark.parametrize(
    ("training", "validation", "told"),
    [
        (CLEAR, CLEAR, {}),
        (MIXED, CLEAR, {"training": 0.5}),
        (MIXED, MIXED, {"training": 0.5, "validation": 0.5}),
        (CLEAR, NOTHING, {"validation": 0.95}),  # the files of one text are in order, those of the other are not
        (NOTHING, CLEAR, {"training": 0.95}),  # as where a good model is trained further
        (WEAK, CLEAR, {"training": 0.25}),
        (CLEAR, Pairing(0.1, 0.5), {}),  # learned by heart, or of another kind of text
        (WEAK, WEAK, None),
        (NOTHING, NOTHING, None),
    ],
)
def test_which_text_is_out_of_order(training: Pairing, validation: Pairing, told: dict[str, float] | None) -> None:
    assert texts_apart(training, validation) == told


UNKNOWN = Pairing(0.5, 0.2)


@pytest.mark.parametrize(
    ("thought", "told"),
    [
        ([UNKNOWN, MIXED, MIXED], [12]),
        ([MIXED, UNKNOWN, MIXED, MIXED], [16]),  # a doubt that did not last
        ([MIXED, CLEAR], []),
        ([UNKNOWN, CLEAR], []),
    ],
)
def test_a_run_asks_until_it_is_sure_and_says_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thought: list[Pairing], told: list[int]
) -> None:
    answers, notes = iter([answer for training in thought for answer in (training, Pairing(0.1, 0.5))]), Notes()
    monkeypatch.setattr(pairing, "pairing_of", lambda *_: next(answers))  # one more question would fail
    settings = quick_settings(training={"steps": 4 * (len(thought) + 1)})
    fit(tmp_path / "r", ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(10, seed=2)), settings, notes)
    words = "about 50% of the training pairs do not seem to belong together"
    assert sum(words in line for line in notes.said) == len(told)
    lines = [record for record in metrics.read(tmp_path / "r" / METRICS) if record["kind"] == "apart"]
    assert [(record["step"], record["text"], record["share"]) for record in lines] == [
        (s, "training", 0.5) for s in told
    ]
    apart = read_state(checkpoint.latest(RunFolder(tmp_path / "r"))[0]).apart  # type: ignore[arg-type]
    assert apart == (0.5 if told else 0)
    assert list(answers) == []
