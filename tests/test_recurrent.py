"""The RNN: the same contract as the Transformer, with attention and without."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SOURCE_WORDS, TARGET_WORDS, bundled_pairs, quick_settings, source_rows, target_rows
from torch import Tensor

from transduce.core import recurrent
from transduce.core.hypotheses import Penalty, Request
from transduce.core.recurrent import Recurrent
from transduce.core.search import Roles, search
from transduce.core.special import PAD
from transduce.data.corpus import ListCorpus
from transduce.errors import SettingsError
from transduce.model import Model
from transduce.settings.compose import compose
from transduce.settings.sections import ModelSettings
from transduce.training.setup import fit

SENTENCES = ([5, 6, 7, 8], [9, 10], [11, 12, 13])
TARGETS = ([7, 8, 9], [10, 11], [12, 13, 14, 15])
EVERY = [
    {"cell": cell, "attention": attention, "bidirectional": both, "layers": layers}
    for cell, attention, both, layers in [
        ("gru", True, True, 1),
        ("gru", False, False, 2),
        ("lstm", True, False, 2),
        ("lstm", False, True, 2),
        ("lstm", True, True, 1),
    ]
]


def small(seed: int = 0, **changes: object) -> Recurrent:
    torch.manual_seed(seed)
    sizes = {"kind": "rnn", "d_model": 14, "dropout": 0.0, "tie_source": False, "score": "additive"}
    return recurrent.build(ModelSettings(**{**sizes, **changes}), SOURCE_WORDS, TARGET_WORDS).eval()


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_steps_and_forward_agree(options: dict) -> None:
    model = small(**options)
    source, target = source_rows(*SENTENCES), target_rows(*TARGETS)
    memory = model.encode(source)
    state, found = model.start(memory), []
    for tokens in target.tokens.split(1, 1):
        logits, state = model.step(tokens, memory, state)
        found.append(logits)
    real = target.segments != 0
    torch.testing.assert_close(torch.cat(found, 1)[real], model(source, target)[real])


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_neighbours_padding_and_the_future_do_not_matter(options: dict) -> None:
    model = small(**options)
    together = model(source_rows(*SENTENCES), target_rows(*TARGETS))
    for i, (sentence, target) in enumerate(zip(SENTENCES, TARGETS, strict=True)):
        alone = model(source_rows(sentence), target_rows(target))[0]
        torch.testing.assert_close(together[i, : len(alone)], alone)
    source, target = source_rows(*SENTENCES), target_rows(*TARGETS)
    tokens = torch.where(source.segments == 0, 17, source.tokens)  # other padding
    assert torch.equal(model(source._replace(tokens=tokens), target), together)
    later = target.tokens.clone()
    later[:, 2:] = PAD
    assert torch.equal(model(source, target._replace(tokens=later))[:, :2], together[:, :2])


@pytest.mark.parametrize("score", ["additive", "dot", "scaled", "bilinear"])
def test_attention_is_that_of_the_notes(score: str) -> None:
    """c_t = Σ softmax(s(h_i, h_{t-1})) h_i into the cell beside the word, step by step, one sentence."""
    model = small(score=score, bidirectional=False, cell="gru")
    source, target = source_rows(SENTENCES[0]), target_rows(TARGETS[0])
    h, u = model.encoder(model.source(source.tokens) * model.scale)
    state, logits, weights = u, [], []
    for token in target.tokens[0]:
        a = torch.stack([model.score(state[-1], h_i.unsqueeze(0))[0, 0] for h_i in h[0]]).softmax(0)
        c = sum(weight * h_i for weight, h_i in zip(a, h[0], strict=True))
        word = model.target(token) * model.scale
        out, state = model.decoder(torch.cat([word, c]).view(1, 1, -1), state)
        logits.append(model.projection(out[0, 0]))
        weights.append(a)
    torch.testing.assert_close(model(source, target)[0], torch.stack(logits))
    maps = model.attention(source, target)
    torch.testing.assert_close(maps.cross[0][0, 0], torch.stack(weights))
    assert not maps.encoder
    assert not maps.decoder


def test_without_attention_u_is_all_the_decoder_knows() -> None:
    model = small(attention=False)
    source = source_rows(*SENTENCES)
    memory = model.encode(source)
    other = memory._replace(states=torch.randn_like(memory.states))
    tokens = torch.tensor([[3], [4], [5]])
    assert torch.equal(*(model.step(tokens, seen, model.start(seen))[0] for seen in (memory, other)))
    assert not model.attention(source, target_rows(*TARGETS)).cross


@pytest.mark.parametrize("options", EVERY[:3], ids=str)
def test_search_works_unchanged(options: dict) -> None:
    model = small(**options)
    requests = [Request(sentence, limit) for sentence, limit in zip(SENTENCES, [9, 5, 12], strict=True)]
    roles = Roles(4, penalty=Penalty(0.6))
    for request, found in zip(requests, search(model, requests, roles, "cpu"), strict=True):
        (alone,) = search(model, [request], roles, "cpu")
        assert alone[0].tokens == found[0].tokens
        assert alone[0].score == pytest.approx(found[0].score, abs=1e-5)


@pytest.mark.parametrize("options", EVERY[:2], ids=str)
def test_training_and_resuming_work_unchanged(options: dict, tmp_path: Path) -> None:
    """A run that is stopped and goes on ends with the weights of one that is not."""

    def run(name: str, *steps: int) -> dict[str, Tensor]:
        for last in steps:
            settings = quick_settings(
                model={"kind": "rnn", "d_model": 32, "dropout": 0.1, **options}, training={"steps": last}
            )
            fit(tmp_path / name, ListCorpus(bundled_pairs()), ListCorpus(bundled_pairs(20, seed=2)), settings)
        return dict(Model.load(tmp_path / name, weights="last").model.named_parameters())

    straight, resumed = run("straight", 8), run("resumed", 4, 8)
    assert all(torch.equal(weight, resumed[name]) for name, weight in straight.items())


def test_it_learns(tmp_path: Path) -> None:
    """To copy, in some steps."""
    pairs = [(text, text) for text in (" ".join("abcdefgh"[(i * k) % 8] for k in range(1, 5)) for i in range(1, 200))]
    settings = quick_settings(
        model={"kind": "rnn", "layers": 1, "d_model": 64, "score": "additive"},
        text={"tokenizer": "words"},
        optimizer={"rate": 1e-2},
        training={"steps": 120, "validate_every": 120},
    )
    outcome = fit(tmp_path / "run", ListCorpus(pairs), ListCorpus(pairs[:20]), settings)
    assert outcome.score is not None
    assert outcome.score > 90


def test_settings_are_checked() -> None:
    for model, batch, words in (
        ({"kind": "rnn"}, {"layout": "packed"}, "batch.layout=packed needs model.kind=transformer: an rnn reads one"),
        ({"kind": "rnn", "d_model": 15}, {}, "model.d_model=15 must be even for model.bidirectional=true"),
        ({"kind": "rnn", "scale": "projection"}, {}, "model.scale=projection needs model.kind=transformer; for an rnn"),
    ):
        with pytest.raises(SettingsError, match=words):
            compose({"model": model, "batch": batch})
    compose({"model": {"kind": "rnn", "d_model": 18}})  # heads do not matter to it
