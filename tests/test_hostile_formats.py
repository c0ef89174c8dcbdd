"""Some of the mutated models of hostile_formats.py, which makes any number of them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="random models of Hugging Face's are made with transformers")
pytest.importorskip("ctranslate2", reason="and those of CTranslate2 with ctranslate2")
from hostile_formats import run  # noqa: E402
from hostile_vectors import attack  # noqa: E402


def test_mutated_models_come_in_right_or_are_refused_in_a_sentence() -> None:
    told: list[str] = []
    ends = run(60, seed=7, say=told.append)
    assert told == []
    assert ends["right"] > 3
    assert ends["refused"] > 20


def test_mutated_vectors_load_right_or_are_refused_in_a_sentence(tmp_path: Path) -> None:
    ends = attack(80, seed=7, folder=tmp_path)
    assert set(ends) == {"right", "refused"}, ends
