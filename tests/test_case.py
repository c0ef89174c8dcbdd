"""Lines in capitals, which hardly any text has and people type all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import bundled_pairs

import transduce
from transduce.decoding.sentences import sentences_of
from transduce.decoding.trust import Usual
from transduce.settings.sections import TextSettings
from transduce.text.case import is_shouted
from transduce.text.subwords import SubwordTokenizer

LINE = "DER HUND SIEHT DIE KATZE"


@pytest.mark.parametrize("text", [LINE, "ICH TRINKE 3 BIER!", "ÄPFEL ÖLEN"])
def test_a_whole_text_in_capitals_is_shouted(text: str) -> None:
    assert is_shouted(text)


@pytest.mark.parametrize(
    "text", ["", "USA", "ICH 3", "ICH bin", "我们 你们", "3 4", "I A", "美国国家篮球协会 (NBA) 暂停", "NBA 和 CBA"]
)
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


def usual_of(text: list[str], tokenizer: SubwordTokenizer) -> Usual:
    ids = tokenizer.encode(text)
    begins = np.cumsum([0, *map(len, ids)])[:-1]
    return Usual.learn(np.concatenate([np.array(some) for some in ids]), begins, tokenizer.size)


@pytest.mark.parametrize(
    ("typed", "read", "shouted"),
    [
        ("HABEN SIE DAS BIER?", "Haben Sie das Bier?", True),
        ("ICH SAGE, DASS SIE DAS BIER HABEN", "Ich sage, dass sie das Bier haben", True),
        ("SIE HABEN DAS GELD DER USA", "Sie haben das Geld der USA", True),
        ("haben sie das bier?", "Haben Sie das Bier?", False),
        ("ich sage, dass sie das bier haben", "Ich sage, dass sie das Bier haben", False),
        ("Haben sie das bier?", "Haben sie das bier?", False),  # somebody chose these letters
    ],
)
def test_words_without_case_are_read_as_they_stand_beside_each_other(typed: str, read: str, shouted: bool) -> None:
    text = [
        *("Haben Sie das Bier?", "Ich sage, dass sie das Bier haben", "Sie haben das Geld", "Das Geld der USA"),
        *("Ich weiß, dass sie das Geld haben", "A E I N R S T"),
    ] * 30  # fmt: skip
    tokenizer = SubwordTokenizer.train(text, TextSettings(vocabulary=70))
    (found,) = sentences_of([typed], tokenizer, 100, False, usual=usual_of(text, tokenizer))
    assert (found.hidden.text, found.shouted) == (read, shouted)
    assert found.source == tokenizer.encode([read])[0]


def test_text_in_small_letters_gets_capitals_and_nothing_else() -> None:
    """Who types `in massen` means no `Maßen`; and a form that the vocabulary cannot spell is none."""
    text = [*("Ich trinke Bier in Maßen", "Er trinkt Wasser in Maßen", "Er mag Quark", "A E I N R S T quer")] * 30
    tokenizer = SubwordTokenizer.train(text, TextSettings(vocabulary=60))
    usual = usual_of(text, tokenizer)
    found = sentences_of(["ich trinke bier in massen", "er mag xylo", "ICH TRINKE BIER IN MASSEN"], tokenizer, 100, False,
                         usual=usual)  # fmt: skip
    assert found[0].hidden.text.lower() == "ich trinke bier in massen"
    assert found[1].source.count(1) <= tokenizer.encode(["er mag xylo"])[0].count(1)
    assert found[2].hidden.text == "Ich trinke Bier in Maßen"
    assert [one.asked for one in found[:2]] == [
        "ich trinke bier in massen",
        "er mag xylo",
    ]  # where terms are looked for


def test_a_long_line_in_capitals_is_read_in_good_time() -> None:
    text = ["Haben Sie das Bier?", "A E I N R S T"] * 50
    tokenizer = SubwordTokenizer.train(text, TextSettings(vocabulary=40))
    line = "HABEN SIE DAS BIER? " * 5000
    (found,) = sentences_of([line], tokenizer, 10**6, False, usual=usual_of(text, tokenizer))
    assert found.hidden.text.startswith("Haben Sie das Bier? ")
    assert found.shouted


def test_a_shouted_line_is_answered_in_capitals(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    usual, loud = model.translate([LINE.lower(), LINE])  # its text has no capitals at all
    assert loud.text == usual.text.upper() != ""
    assert loud.source == LINE
    assert loud.candidates[0].text == loud.text


def test_a_shouted_pair_is_scored_as_it_is_translated(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    target = model.translate(LINE).text
    loud, usual = model.score([(LINE, target), (LINE.lower(), target.lower())])
    assert loud == usual


def test_what_passes_through_keeps_its_letters(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    assert model.translate("sieht die katze https://example.org/Hund").status  # nothing in capitals: as always
    hidden = sentences_of([f"{LINE} https://example.org/a"], model.tokenizers.source, 100, False)[0]
    assert not hidden.shouted  # without protection an address is text like any other
