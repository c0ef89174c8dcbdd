"""Words of every script: marks belong to them, and what has no spaces between words is found all the same."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from transduce.inspect.words import joined, words
from transduce.text.glossary import Glossary
from transduce.text.lists import WordTokenizer
from transduce.text.scripts import COMBINING, SCRIPTS, SPACED, UNSPACED_SCRIPTS, WORD, is_unspaced
from transduce.text.words import count_words, words_of_pieces

HINDI, THAI = "नमस्ते दुनिया", "ผมอยากดื่มเบียร์"


def test_marks_are_those_of_unicode() -> None:
    pattern = re.compile(f"[{COMBINING}]")
    for code in range(sys.maxunicode + 1):
        assert bool(pattern.match(chr(code))) == unicodedata.category(chr(code)).startswith("M"), hex(code)


def test_a_word_is_whole_in_every_script() -> None:
    assert re.findall(f"[{WORD}]+", f"{HINDI}, weiß! a\u0301b") == [*HINDI.split(), "weiß", "a\u0301b"]
    assert WordTokenizer.split(HINDI) == [" नमस्ते", " दुनिया"]
    assert WordTokenizer.split("ein Bier, bitte") == [" ein", " Bier", ",", " bitte"]


@pytest.mark.parametrize(
    ("word", "text", "times"),
    [
        ("कम", "कमाल है", 0),  # the vowel sign behind it belongs to a longer word
        ("कम", "यह कम है, कम", 2),
        ("ल", "कमाल", 0),
        ("เบียร์", THAI, 1),  # no spaces say where a word ends
        ("ビール", "ビールを飲む", 1),
        ("啤酒", "我想喝啤酒", 1),
        ("ເບຍ", "ຂ້ອຍຢາກດື່ມເບຍ", 1),
        ("Bier", "Bierglas", 0),
        ("Bier", "ein Bier.", 1),
        ("맥주", "맥주를", 0),  # Korean has spaces
    ],
)
def test_glossary_entries_are_whole_words(word: str, text: str, times: int) -> None:
    assert len(Glossary.of({word: "beer"}).find(text)) == times


def test_scripts_without_spaces_are_one_notion() -> None:
    for name, ranges in SCRIPTS.items():
        first = ord(ranges[0])
        letter = next(c for c in map(chr, range(first, first + 100)) if c.isalpha())
        assert is_unspaced(letter) == (name in UNSPACED_SCRIPTS), name
        assert (re.match(SPACED, letter) is None) == (name in UNSPACED_SCRIPTS), name


def test_marks_are_counted_with_their_letters() -> None:
    assert count_words(HINDI) == 2
    assert count_words("ดื่ม") == 2  # two letters; two marks stand on the first
    assert words_of_pieces(["▁ดื", "่ม"]) == [[0], [0, 1]]
    assert count_words("我 想 喝") == count_words("我想喝") == 3


def test_a_piece_that_is_a_vowel_sign_belongs_to_its_word() -> None:
    tokens = ["▁कम", "ा", "ल", "▁है", "."]
    assert joined(tokens, words(tokens)) == ("कमाल", "है", ".")
