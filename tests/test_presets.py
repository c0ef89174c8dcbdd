"""Every preset trains; those of the notes are as the notes have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import bundled_pairs

from transduce.data.corpus import ListCorpus
from transduce.model import Model
from transduce.settings.compose import compose
from transduce.settings.presets import PRESETS
from transduce.training.setup import fit

SMALL = {
    "model": {"layers": 1, "d_model": 32, "d_ff": 48, "heads": 2},
    "text": {"vocabulary": 200},
    "batch": {"tokens": 512},
    "training": {"steps": 2, "validate_every": 2, "bleu_lines": 2, "device": "cpu"},
}


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "fasttext"])  # tests/test_fasttext_commands.py
def test_a_preset_trains(name: str, tmp_path: Path) -> None:
    """With fewer weights and steps, everything else as it is."""
    settings = compose(PRESETS[name].settings, SMALL)
    fit(tmp_path / "run", ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(5, seed=2)), settings)
    assert Model.load(tmp_path / "run", "cpu").translate("ich möchte ein bier").status in ("ok", "length")


def test_the_four_of_the_notes_differ_as_they_should() -> None:
    models = {
        name: compose(PRESETS[f"notes-{name}"].settings).model
        for name in ("tutorial", "annotated", "seq2seq", "pytorch")
    }
    assert [m.attention_bias for m in models.values()] == [True, True, True, False]
    assert [(m.positions, m.max_positions) for m in models.values()] == [
        ("sinusoid", 5000),
        ("sinusoid", 5000),
        ("learned", 100),
        ("sinusoid", 200),
    ]
    assert [m.eps for m in models.values()] == [1e-5, 1e-6, 1e-5, 1e-6]
    assert [m.output_bias for m in models.values()] == [False, True, True, False]
    assert [m.tie_output for m in models.values()] == [False, False, False, True]
    assert [m.scale for m in models.values()] == ["none", "embedding", "embedding", "projection"]
    assert [m.embedding_norm for m in models.values()] == [False, False, False, True]
