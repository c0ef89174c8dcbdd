"""Settings: three layers, one name each, complaints that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.errors import SettingsError
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.settings.entries import entries
from transduce.settings.presets import PRESETS, find
from transduce.settings.sections import Settings
from transduce.training.resolve import resolve


def test_flags_are_stronger_than_the_file_and_the_file_than_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model:\n  layers: 5\n  heads: 2\noptimizer:\n  rate: 1e-4\n")
    settings = compose(find("tiny").settings, config_file.read(file), {"model": {"heads": "4"}})
    assert (settings.model.d_model, settings.model.layers, settings.model.heads) == (128, 5, 4)
    assert settings.optimizer.rate == 1e-4  # YAML reads 1e-4 as text


def test_written_settings_read_back_the_same(tmp_path: Path) -> None:
    settings = compose(find("small").settings, {"model": {"d_k": 3, "final_norm": "no"}, "data": {"source": "ü.de"}})
    (tmp_path / "c.yaml").write_text(config_file.write(settings), encoding="utf-8")
    assert compose(config_file.read(tmp_path / "c.yaml")) == settings


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_possible(name: str) -> None:
    assert isinstance(compose(PRESETS[name].settings), Settings)


def test_the_defaults_are_the_papers() -> None:
    s = compose()
    assert (s.model.layers, s.model.d_model, s.model.d_ff, s.model.heads, s.model.dropout) == (6, 512, 2048, 8, 0.1)
    assert (s.optimizer.beta1, s.optimizer.beta2, s.optimizer.eps, s.optimizer.warmup) == (0.9, 0.98, 1e-9, 4000)
    assert (s.training.label_smoothing, s.search.beam, s.search.length_penalty, s.search.extra) == (0.1, 4, 0.6, 50)
    big = compose(find("paper-big").settings)
    assert (big.model.d_model, big.model.d_ff, big.model.heads, big.model.dropout) == (1024, 4096, 16, 0.3)
    assert (big.training.average, s.training.average) == (20, 5)


def test_every_setting_has_help() -> None:
    assert all(len(entry.help) > 8 for entry in entries())


COMPLAINTS = [
    ({"model": {"layer": 3}}, "unknown setting model.layer, did you mean model.layers"),
    ({"modle": {"layers": 3}}, "unknown setting modle.layers, did you mean model.layers"),
    ({"layers": 3}, "unknown setting layers, did you mean model.layers"),
    ({"model": 3}, "model is a section: write model.key with one of its keys, not model=3"),
    ({"model": {"layers": "three"}}, "model.layers=three must be a whole number"),
    ({"model": {"layers": 2.5}}, "model.layers=2.5 must be a whole number"),
    ({"model": {"layers": "2.0"}}, "model.layers=2.0 must be a whole number"),
    ({"model": {"layers": "9" * 5000}}, "999... (5,000 characters) must be a whole number"),
    ({"model": {"layers": True}}, "model.layers=True must be a whole number"),
    ({"model": {"layers": None}}, "model.layers=None must be a whole number"),
    ({"model": {"eps": "inf"}}, "model.eps=inf must be a number"),
    ({"model": {"d_k": "x"}}, "model.d_k=x must be a whole number or none"),
    ({"text": {"joint": "maybe"}}, "text.joint=maybe must be true or false"),
    ({"data": {"source": 3}}, "data.source=3 must be text or a list of texts or none"),
    ({"model": {"norm": "befor"}}, "model.norm=befor must be one of after, before, did you mean before"),
    ({"model": {"d_model": 10, "heads": 4}}, "model.d_model=10 must be a multiple of model.heads=4"),
    ({"model": {"d_model": 9, "heads": 3}}, "model.d_model=9 must be even for sin/cos positions"),
    ({"model": {"layers": 0}}, "model.layers=0 must be at least 1"),
    ({"model": {"dropout": 1}}, "model.dropout=1.0 must be at least 0 and below 1"),
    ({"optimizer": {"rate": 0}}, "optimizer.rate=0.0 must be above 0"),
    ({"text": {"joint": False}}, "model.tie_source=true needs text.joint=true"),
    ({"text": {"tokenizer": "words", "sampling": 0.1}}, "text.sampling=0.1 needs text.tokenizer bpe or unigram"),
    ({"text": {"variants": 0}}, "text.variants=0 must be at least 1"),
    ({"optimizer": {"name": "schedule_free"}, "training": {"ema": 0.9}}, "training.ema=0.9 does not go with"),
    ({"training": {"ema": 1.0}}, "training.ema=1.0 must be at least 0 and below 1"),
    ({"text": {"tokenizer": "words", "byte_fallback": True}}, "text.byte_fallback=true needs text.tokenizer"),
    ({"text": {"coverage": 0}}, "text.coverage=0.0 must be above 0 and at most 1"),
    ({"model": {"max_positions": 10}}, "data.max_tokens=256 must not exceed model.max_positions=10"),
    ({"data": {"max_ratio": 0.5}}, "data.max_ratio=0.5 must be at least 1"),
    ({"data": {"hold_out": -1}}, "data.hold_out=-1 must be at least 0"),
    ({"training": {"seed": "1e30"}}, "training.seed=1e30 must be a whole number"),
    ({"optimizer": {"name": "schedule_free", "beta1": 0}}, "optimizer.beta1=0 must be above 0 for"),
    ({"batch": {"layout": "packed", "row": 128, "tokens": 100}}, "batch.row=128 must not exceed batch.tokens=100"),
    ({"optimizer": {"schedule": "cosine"}, "training": {"steps": None, "epochs": 1}}, "cosine needs training.steps"),
    ({"training": {"steps": "none"}}, "one of training.steps, training.epochs and training.minutes must be set"),
    ({"search": {"extra": -1, "length_penalty": -2}}, "at least 0 and at most 100; search.extra=-1 must be at least 0"),
    ({"search": {"length_penalty": 1e9}}, "search.length_penalty=1000000000.0 must be at least 0 and at most 100"),
]


@pytest.mark.parametrize(("layer", "message"), COMPLAINTS, ids=[message[:40] for _, message in COMPLAINTS])
def test_complaints(layer: dict, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compose(layer)
    assert message in str(caught.value)


def test_a_word_like_none_has_no_suggestion() -> None:
    with pytest.raises(SettingsError) as caught:
        compose({"search": {"foo": 3}})
    assert str(caught.value) == "unknown setting search.foo"


def test_all_complaints_at_once() -> None:
    with pytest.raises(SettingsError, match=r"model.layers=0 .*; model.dropout=2.0 .*; one of training.steps"):
        compose({"model": {"layers": 0, "dropout": 2}, "training": {"steps": None}})


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read the settings file .*nope.yaml: it is missing"):
        config_file.read(tmp_path / "nope.yaml")
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="it is not UTF-8 text"):
        config_file.read(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("model:\n  layers: [1\n")
    with pytest.raises(SettingsError, match="is not valid YAML near line 3"):
        config_file.read(tmp_path / "b.yaml")
    (tmp_path / "c.yaml").write_text("- 1\n")
    with pytest.raises(SettingsError, match="must hold sections such as 'model:', not a list"):
        config_file.read(tmp_path / "c.yaml")
    for hostile, words in (
        ("text: {}\nmodel: &a\n  layers: 2\n", "is not valid YAML near line 2"),
        ("text: *a\n", "is not valid YAML near line 1"),  # aliases unfold without end
        ("model:\n  layers: " + 40 * "[" + 40 * "]", "is not valid YAML"),
        ("#" * 2_000_000, "it has 2,000,000 bytes, more than the 1,000,000 it may have"),
    ):
        (tmp_path / "e.yaml").write_text(hostile)
        with pytest.raises(SettingsError, match=words):
            config_file.read(tmp_path / "e.yaml")
    for value in ("!!int abc", "!!timestamp 7", "!!python/object:os.system x"):
        (tmp_path / "f.yaml").write_text(f"model:\n  layers: {value}\n")
        with pytest.raises(SettingsError, match="is not valid YAML near line 2"):
            config_file.read(tmp_path / "f.yaml")
    for value in ("2001-99-99", "9" * 5000, "[1, 2]"):
        (tmp_path / "f.yaml").write_text(f"model:\n  layers: {value}\n")
        with pytest.raises(SettingsError, match="model.layers=.* must be a whole number"):
            compose(config_file.read(tmp_path / "f.yaml"))
    (tmp_path / "d.yaml").write_text("model:\n  # nothing yet\n")
    assert compose(config_file.read(tmp_path / "d.yaml")) == Settings()


def test_unknown_preset() -> None:
    with pytest.raises(SettingsError, match="unknown preset smal, did you mean small; there are: auto, tiny, small"):
        find("smal")


def test_what_has_no_effect_is_refused_for_new_runs(tmp_path: Path) -> None:
    for flags, words in (
        ({"model": {"cell": "lstm"}}, "model.cell=lstm has no effect with model.kind=transformer; leave it out"),
        ({"model": {"kind": "rnn", "decoder_layers": 2}}, "model.decoder_layers=2 has no effect with model.kind=rnn"),
        (
            {"model": {"kind": "rnn", "attention": False, "score": "dot"}},
            "model.score=dot has no effect with model.att",
        ),
    ):
        with pytest.raises(SettingsError, match=words):
            resolve(tmp_path / "run", None, None, flags)
    resolve(tmp_path / "run", "rnn", None, {"model": {"cell": "lstm", "bidirectional": False}})
    resolve(tmp_path / "run", "tiny", None, {"model": {"d_model": 100}})  # fits the preset's heads
    with pytest.raises(SettingsError, match=r"model.score_rank=99 must not exceed 64, the width of what is compared"):
        compose({"model": {"score": "bilinear", "score_rank": 99}})
