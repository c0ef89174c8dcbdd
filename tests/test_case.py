"""Lines in capitals, which hardly any text has and people type all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import bundled_pairs

import transduce
from transduce.decoding.sentences import sentences_of
from transduce.settings.sections import TextSettings
from transduce.text.case import is_shouted
from transduce.text.subwords import SubwordTokenizer

LINE = "DER HUND SIEHT DIE KATZE"


@pytest.mark.parametrize("text", [LINE, "ICH TRINKE 3 BIER!", "ÄPFEL ÖLEN"])
def test_a_whole_text_in_capitals_is_shouted(text: str) -> None:
    assert is_shouted(text)


@pytest.mark.parametrize("text", ["", "USA", "ICH 3", "ICH bin", "我们 你们", "3 4", "I A"])
def test_other_texts_are_not(text: str) -> None:
    assert not is_shouted(text)


def test_what_is_shouted_is_read_in_letters_that_the_vocabulary_knows() -> None:
    text = [source for source, _ in bundled_pairs(500)]
    small, large = (
        SubwordTokenizer.train([form(line) for line in text], TextSettings(vocabulary=200))
        for form in (str.capitalize, str.upper)
    )
    read, as_it_is = (sentences_of([LINE], tokenizer, 100, False)[0] for tokenizer in (small, large))
    assert read.shouted
    assert read.source == small.encode([read.hidden.text])[0]
    assert [word.lower() for word in read.hidden.text.split()] == LINE.lower().split()
    assert not as_it_is.shouted
    assert as_it_is.source == large.encode([LINE])[0]
    assert read.text == as_it_is.text == LINE


def test_nouns_keep_their_capital_where_the_vocabulary_knows_them_so() -> None:
    text = ["Der Hund sieht die Katze", "Er sieht die Katze und den Hund"] * 50
    tokenizer = SubwordTokenizer.train(text, TextSettings(vocabulary=40))
    assert sentences_of([LINE], tokenizer, 100, False)[0].hidden.text == "Der Hund sieht die Katze"


def test_two_s_may_have_been_a_sharp_one() -> None:
    """Capitals have no ß: what the vocabulary knows decides."""
    text = ["Ich weiß, dass er die Straße nass macht", "Wer weiß, dass die Straße nass ist"] * 50
    tokenizer = SubwordTokenizer.train(text, TextSettings(vocabulary=60))
    (read,) = sentences_of(["ICH WEISS, DASS DIE STRASSE NASS IST"], tokenizer, 100, False)
    assert read.hidden.text == "Ich weiß, dass die Straße nass ist"


def test_a_shouted_line_is_answered_in_capitals(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    usual, loud = model.translate([LINE.lower(), LINE])  # its text has no capitals at all
    assert loud.text == usual.text.upper() != ""
    assert loud.source == LINE
    assert loud.candidates[0].text == loud.text


def test_what_passes_through_keeps_its_letters(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    assert model.translate("sieht die katze https://example.org/Hund").status  # nothing in capitals: as always
    hidden = sentences_of([f"{LINE} https://example.org/a"], model.tokenizers.source, 100, False)[0]
    assert not hidden.shouted  # without protection an address is text like any other
