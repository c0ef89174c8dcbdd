"""Guided alignment: a lexicon of the text knows where words come from, and a head learns to look there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import bundled_pairs, quick_settings
from test_recipe import chosen

from transduce.core import transformer
from transduce.core.flat import FlatWeights
from transduce.core.layout import lay_out
from transduce.core.seq2seq import AttentionMaps
from transduce.core.special import BEGIN, END, PAD
from transduce.data.batches import Batch, Batches
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.data.lexicon import learn_lexicon
from transduce.data.store import Store
from transduce.errors import SettingsError
from transduce.models.weights import read_tensors
from transduce.settings.sections import BatchSettings, DataSettings, ModelSettings, TextSettings
from transduce.text.tokenizers import Tokenizers
from transduce.training.gradients import PlainGradients
from transduce.training.guided import Guide
from transduce.training.setup import fit

PAIRS = bundled_pairs(600)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("guided") / "store"
    tokenizers = Tokenizers.train(PAIRS, TextSettings(vocabulary=300))
    return build_store(ListCorpus(PAIRS), tokenizers, DataSettings(), folder)


def batch_of(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    """All in one row."""
    source = lay_out([[[*s, END] for s, _ in pairs]])
    target_in = lay_out([[[BEGIN, *t] for _, t in pairs]])
    target_out = lay_out([[[*t, END] for _, t in pairs]]).tokens
    return Batch(source, target_in, target_out, np.arange(len(pairs)), int((target_out != PAD).sum()))


def test_a_lexicon_finds_what_goes_together() -> None:
    draw = np.random.default_rng(1)
    sources = [draw.choice(np.arange(4, 24), 5, replace=False) for _ in range(300)]
    found = learn_lexicon([(s, s[::-1] + 20) for s in sources], 50, most=100_000)
    partner = {int(pair) // 50: int(pair) % 50 for pair in found.pairs[np.argsort(found.probability)]}  # the best last
    assert partner == {token: token + 20 for token in range(4, 24)}
    assert found.written[24:44].sum() == 1500
    for source in range(4, 24):
        assert found.probability[found.pairs // 50 == source].sum() == pytest.approx(1)


def test_words_come_from_their_own_sentence_and_place(store: Store) -> None:
    """Also where several sentences share a row, and a word comes twice."""
    guide = Guide(store, 0.5)
    side = store.source
    taken = [
        tuple(s.ids[s.begins[i] : s.begins[i] + s.lengths[i]].astype(int).tolist() for s in store.sides)
        for i in range(3)
    ]
    assert side.lengths[0] > 1
    together = guide.alignment(batch_of(taken))
    column = row = 0
    for source, target in taken:
        alone = guide.alignment(batch_of([(source, target)]))[0]
        here = together[0, row : row + len(target) + 1, column : column + len(source) + 1]
        torch.testing.assert_close(here, alone)
        assert together[0, row : row + len(target) + 1].sum() == pytest.approx(float(alone.sum()))
        assert set(alone.sum(-1).round(decimals=4).tolist()) <= {0.0, 1.0}
        row, column = row + len(target) + 1, column + len(source) + 1


def test_the_head_learns_to_look_there_and_the_loss_is_the_same_one(store: Store) -> None:
    guide = Guide(store, 1.0)
    batch = next(iter(Batches(store, BatchSettings(tokens=600), seed=1).epoch(0)))
    torch.manual_seed(1)
    sizes = ModelSettings(layers=2, d_model=32, d_ff=48, heads=2, dropout=0.0)
    model = transformer.build(sizes, *store.sizes).train()
    flat = FlatWeights(model)
    guided, plain = PlainGradients(model, 0.1, flat, None, guide), PlainGradients(model, 0.1, flat)
    before = guide.loss(_looked(model, batch), batch).item()
    assert guided.add(batch, 1 / batch.tokens) == pytest.approx(float(plain.add(batch, 1 / batch.tokens)), rel=1e-5)
    optimizer = torch.optim.Adam([flat.weights], lr=1e-2)
    for _ in range(60):
        plain.clear()
        guided.add(batch, 1 / batch.tokens)
        optimizer.step()
    assert guide.loss(_looked(model, batch), batch).item() < 0.8 * before
    guided.is_guided = False
    plain.clear()
    guided.add(batch, 1.0)
    unguided = flat.gradient.clone()
    plain.clear()
    PlainGradients(model, 0.1, flat).add(batch, 1.0)
    torch.testing.assert_close(flat.gradient, unguided)


def _looked(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    maps = AttentionMaps(only_cross=True)
    with torch.no_grad():
        model(batch.source, batch.target_in, maps)
    assert maps.encoder == maps.decoder == []
    return maps.cross[-1][:, 0]


def test_the_guide_leaves_when_the_decay_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], Guide.loss

    def counted(self: Guide, weights: torch.Tensor, batch: Batch) -> torch.Tensor:
        calls.append(batch)
        return real(self, weights, batch)

    monkeypatch.setattr(Guide, "loss", counted)
    training = {"steps": 10, "validate_every": 10, "guided_alignment": 0.5}
    wsd = {"schedule": "wsd", "rate": 3e-3, "warmup": 2, "decay": 0.3}
    fit(tmp_path / "run", ListCorpus(PAIRS[:100]), None, quick_settings(training=training, optimizer=wsd))
    assert len(calls) == 7
    rnn = {"kind": "rnn", "tie_source": True}
    fit(tmp_path / "rnn", ListCorpus(PAIRS[:100]), None, quick_settings(model=rnn, training=training))
    assert len(calls) == 17  # another schedule has no such end


def test_a_guided_run_goes_on_exactly(tmp_path: Path) -> None:
    """Until the decay there is a guide, and none from there on; a stop changes nothing of that."""
    training = {"steps": 12, "validate_every": 3, "guided_alignment": 0.5}
    wsd = {"schedule": "wsd", "rate": 3e-3, "warmup": 2, "decay": 0.3}
    whole = quick_settings(training=training, optimizer=wsd)
    text = ListCorpus(PAIRS[:200]), ListCorpus(PAIRS[200:220])
    fit(tmp_path / "whole", *text, whole)
    for minutes in (1e-9, None):  # the first session is over after an update or two
        fit(tmp_path / "stopped", *text, whole, pause_after=minutes)
    one, two = (read_tensors(tmp_path / run / "weights/last.safetensors") for run in ("whole", "stopped"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    fit(tmp_path / "plain", *text, quick_settings(training={**training, "guided_alignment": 0.0}, optimizer=wsd))
    other = read_tensors(tmp_path / "plain" / "weights/last.safetensors")
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_who_is_guided() -> None:
    assert chosen(20_000, minutes=5, seconds=0.2).training.guided_alignment == 0.5
    assert chosen(20_000, minutes=200, seconds=0.2).training.guided_alignment == 0.0  # it finds out by itself
    for tokens in (2048, 8192):
        found = chosen(20_000, minutes=1, device="cuda", batch={"tokens": tokens})
        assert found.training.guided_alignment == 0.0  # recorded updates have no guide
    assert (
        chosen(20_000, 5, 0.2, optimizer={"schedule": "noam"}).training.guided_alignment == 0.0
    )  # it would never leave
    assert chosen(20_000, minutes=5, seconds=0.2, training={"guided_alignment": 0.0}).training.guided_alignment == 0.0
    with pytest.raises(SettingsError, match=r"training\.guided_alignment needs a translator with attention"):
        quick_settings(model={"kind": "rnn", "attention": False}, training={"guided_alignment": 0.5})
