"""Tokenizers: text comes back as it was typed."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from conftest import bundled_pairs

from transduce.core.special import BEGIN, END, PAD, SPECIAL, UNKNOWN
from transduce.errors import ModelError, SettingsError
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise
from transduce.text.tokenizers import Tokenizers

PAIRS = [
    ("Das ist, ein gutes Buch.", "This is a good book!"),
    ("我要一杯啤酒，谢谢。", "I'd like a beer, thanks…"),
    ("„Komm mit“, sagte er", "“come along”, he said (twice)"),
]
KINDS = ("bpe", "unigram", "words", "characters")


@cache
def trained(kind: str, **more: object) -> Tokenizers:
    settings = TextSettings(**{"tokenizer": kind, "vocabulary": 220, "coverage": 1.0, **more})  # type: ignore[arg-type]
    return Tokenizers.train(PAIRS * 90 + bundled_pairs(), settings)


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_back(kind: str) -> None:
    tokenizer = trained(kind).source
    for pair in PAIRS:
        for text in pair:
            (ids,) = tokenizer.encode([text])
            assert UNKNOWN not in ids
            assert tokenizer.decode([BEGIN, *ids, END, PAD]) == text
            assert len(tokenizer.pieces(ids)) == len(ids)
    assert tokenizer.pieces(range(4)) == list(SPECIAL)


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_is_shown_and_not_lost(kind: str) -> None:
    tokenizer = trained(kind).source
    (ids,) = tokenizer.encode(["gutes 😀 Buch"])
    assert tokenizer.decode(ids).replace(" ", "") == "gutes⁇Buch"


def test_bytes_spell_what_the_vocabulary_lacks() -> None:
    tokenizer = trained("bpe", byte_fallback=True, vocabulary=500).source
    assert tokenizer.decode(tokenizer.encode(["gutes 😀 Buch"])[0]) == "gutes 😀 Buch"


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "words"])
def test_kept_in_files(kind: str, joint: bool, tmp_path: Path) -> None:
    tokenizers = trained(kind, joint=joint)
    for name, content in tokenizers.files().items():
        (tmp_path / name).write_bytes(content)
    again = Tokenizers.load(tmp_path, tokenizers.settings)
    for side in ("source", "target"):
        one, two = getattr(tokenizers, side), getattr(again, side)
        assert one.encode(["a good Buch"]) == two.encode(["a good Buch"])
    assert (tokenizers.source is tokenizers.target) == joint == (again.source is again.target)
    (tmp_path / next(iter(tokenizers.files()))).unlink()
    with pytest.raises(
        ModelError, match="is damaged: its tokenizer .* is missing or cannot be read; copy the folder again"
    ):
        Tokenizers.load(tmp_path, tokenizers.settings)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sampling_varies_by_seed_and_only_by_seed(kind: str) -> None:
    tokenizer = trained(kind).source
    text = ["Das ist, ein gutes Buch."] * 300
    one = tokenizer.sample(text, 0.3, seed=1)
    assert one == tokenizer.sample(text, 0.3, seed=1)
    assert one != tokenizer.sample(text, 0.3, seed=2)
    assert all(tokenizer.decode(ids) == text[0] for ids in one)
    assert trained("words").source.sample(text, 0.3, 1) == trained("words").source.encode(text)


@pytest.mark.parametrize(("kind", "amount"), [("bpe", 0.0), ("unigram", 60.0)])
def test_sampling_without_chance_is_encoding(kind: str, amount: float) -> None:
    """No merge dropped; or the likeliest segmentation a thousand times likelier. Unknown characters and all."""
    tokenizer = trained(kind).source
    texts = ["Das ist, ein gutes Buch.", "", "ein ☃ Buch ☃☃", "Buch"]
    assert tokenizer.sample(texts, amount, 1) == tokenizer.encode(texts)


def test_sampling_is_the_same_in_every_process() -> None:
    """SentencePiece's own is not."""
    program = (
        "from test_tokenizer import trained; print(trained('bpe').source.sample(['Das ist ein Buch.'] * 50, 0.5, 7))"
    )
    where = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{Path(__file__).parent.parent}"}
    one, two = (
        subprocess.run([sys.executable, "-c", program], env=where, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert one == two


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("joint", [True, False])
def test_lower_case_on_request(kind: str, joint: bool, tmp_path: Path) -> None:
    tokenizers = trained(kind, joint=joint, lowercase=True)
    for name, content in tokenizers.files().items():
        (tmp_path / name).write_bytes(content)
    loaded = Tokenizers.load(tmp_path, tokenizers.settings)
    text = "Das ist, ein GUTES Buch."
    for one in (tokenizers.source, loaded.source):
        assert one.decode(one.encode([text])[0]) == text.lower()
        assert one.decode(one.sample([text], 0.1, 1)[0]) == text.lower()
    vocabulary = "".join(tokenizers.source.pieces(range(len(SPECIAL), tokenizers.source.size)))
    assert vocabulary == vocabulary.lower()


def test_normalisation_changes_little() -> None:
    assert normalise(" a\t b\u00a0c\u3000d ") == "a b c d"
    assert normalise("u\u0308ber") == normalise("u\u200b\u0308ber") == "über"
    assert normalise("\ufeffx\x00y\u200bz\ud800") == "xyz"
    assert normalise("Ａ１，。“”…") == "Ａ１，。“”…"
    assert normalise("👩\u200d👩\u200d👧") == "👩\u200d👩\u200d👧"
    assert normalise(" \n\t\ufeff") == ""


def test_text_without_words() -> None:
    for pairs in ([], [("", "")] * 5):
        with pytest.raises(SettingsError, match="the training text has no words: it is empty, or all its lines are"):
            Tokenizers.train(pairs, TextSettings())


def test_a_vocabulary_the_text_does_not_support() -> None:
    with pytest.raises(SettingsError, match=r"text.vocabulary=9000 is larger than .* supports; set it to \d+ or less"):
        trained("bpe", vocabulary=9000)
    with pytest.raises(
        SettingsError, match=r"text.vocabulary=9 is too small for the characters .* set it to \d+ or more"
    ):
        trained("bpe", vocabulary=9)
    with pytest.raises(SettingsError, match="SentencePiece could not learn a vocabulary"):
        trained("bpe", coverage=1e-9, vocabulary=5)


def test_a_piece_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """SentencePiece itself takes it, and complains when it comes up."""
    tokenizers = trained("bpe", joint=True)
    content = tokenizers.files()["tokenizer.model"]
    piece = max(tokenizers.source.pieces(range(tokenizers.source.size)), key=len).encode()
    assert content.count(piece) == 1
    (tmp_path / "tokenizer.model").write_bytes(content.replace(piece, b"\xff" * len(piece)))
    with pytest.raises(ModelError, match=r"its tokenizer \(tokenizer.model\) is missing or cannot be read"):
        Tokenizers.load(tmp_path, tokenizers.settings)


def test_a_word_of_a_hundred_thousand_letters_ends_nothing() -> None:
    """SentencePiece alone would abort the process."""
    pairs = [*bundled_pairs(100), ("ab" * 50_000, "x")]
    tokenizers = Tokenizers.train(pairs, TextSettings(tokenizer="bpe", vocabulary=200))
    assert tokenizers.source.decode(tokenizers.source.encode([pairs[-1][0]])[0]) == pairs[-1][0]
