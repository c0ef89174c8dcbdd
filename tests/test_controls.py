"""What people ask of a translation: terms, what stays, what is forbidden, beginnings, samples, long text, going on."""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from conftest import bundled_pairs
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

import transduce
from transduce import cli
from transduce.cli import main
from transduce.core.ensemble import mean_of
from transduce.decoding import similarity
from transduce.decoding.batches import PlainEngine
from transduce.decoding.results import Translation, join
from transduce.decoding.sentences import sentences_of
from transduce.decoding.wishes import Wishes
from transduce.decoding.wording import Wording
from transduce.engine import loop_search
from transduce.errors import ArgumentError, DataError, ModelError, SettingsError
from transduce.files.atomic import parts_beside
from transduce.files.output import find_kept, write_lines
from transduce.model import Model
from transduce.report import Progress
from transduce.text.glossary import Glossary
from transduce.text.sentences import halve, is_east_asian, split_sentences

SENTENCE = "ich möchte ein bier trinken"


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Model:
    return transduce.load(model_folder)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


# ---- terms ---------------------------------------------------------------------------------------------------------


def test_a_glossary_finds_whole_words_longest_first() -> None:
    lines = ["# words", "bier\tale|ales", "", "ein bier\ta pint", "中国\tChina"]
    glossary = Glossary.from_lines(lines, "words.tsv")
    assert [entry.translations for entry in glossary.find("ein bier und noch bier, kein bierchen")] == [
        ("a pint",),
        ("ale", "ales"),
    ]
    assert [entry.source for entry in glossary.find("我在中国住")] == ["中国"]
    for wrong in ("bier", "bier\t", "\tbeer", "bier\t | "):
        with pytest.raises(DataError, match=r"words\.tsv, line 1: a glossary entry is a word, a tab"):
            Glossary.from_lines([wrong], "words.tsv")


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["hund\tdog", "hund\thound"], r"line 2: 'hund' is in line 1 already; .* write one line with 'dog\|hound'"),
        (["hund\tdog\tnoun"], "line 1: two columns are read, and there are more"),
    ],
)
def test_a_glossary_line_that_would_be_misread_is_refused(lines: list[str], complaint: str) -> None:
    with pytest.raises(DataError, match=rf"words, {complaint}"):
        Glossary.from_lines(lines, "words")
    assert len(Glossary.from_lines([lines[0].removesuffix("\tnoun")] * 2, "words").entries) == 1


def test_a_text_in_small_letters_finds_any_entry() -> None:
    glossary = Glossary.from_lines(["Hund\tdog", "iPhone 5\tphone"], "words")
    assert [e.translations[0] for e in glossary.find("der hund und das iphone 5", is_small=True)] == ["dog", "phone"]
    assert not glossary.find("Der hund und das iphone 5")
    lines = ["polish\tpolieren", "Polish\tpolnisch", "IT\tEDV", "US\tUSA"]
    found = Glossary.from_lines(lines, "words").find("give it to us, polish it", is_small=True)
    assert [entry.translations for entry in found] == [("polieren",)]  # as written first, and no acronyms


def test_a_text_in_small_letters_with_a_model(model: Model) -> None:
    """Also where an entry has a sentence's end, or what would be hidden."""
    for words_of_line, entry in (
        ("ich kaufe brot. bier trinke ich.", "Brot. Bier"),
        ("ich habe das iphone 5", "iPhone 5"),
    ):
        assert "garden" in words(model.translate(words_of_line, glossary={entry: "garden"}).text)
        assert model.translate(f"Ja, {words_of_line}", glossary={entry: "garden"}).status != "unmet"


def test_a_large_glossary_is_soon_built() -> None:
    """Of 20,000 entries few are tried at a place: it was minutes."""
    entries = {f"{a}{b}{c}{number}": "x" for number, (a, b, c) in enumerate(itertools.product("abcdefghij", repeat=3))}
    entries |= {f"{source} {n}": "y" for source in entries for n in range(20)}
    begin = time.process_time()
    glossary = Glossary.of(entries)
    assert [e.source for e in glossary.find("Wir sahen Aab1 3 und aab1 und aab1x")] == ["aab1 3", "aab1"]
    assert len(glossary.entries) == 21_000
    assert time.process_time() - begin < 20


def test_a_glossary_of_a_dict_has_no_comments() -> None:
    assert Glossary.of({"#1": "number one|first", "a b": "c"}).find("a b is #1")[0].source == "a b"
    assert Glossary.of({"#1": "number one|first"}).entries["#1"].translations == ("number one", "first")
    with pytest.raises(DataError, match=r"glossary\['haus'\]: a glossary entry is a word"):
        Glossary.of({"haus": " | "})


def test_a_glossary_finds_words_with_a_capital() -> None:
    glossary = Glossary.from_lines(["dog\tköter|Hund", "Bill\tRechnung", "éclair\tGebäck", "ß\tx"], "words")
    (dog,) = glossary.find("Dog or hotdog")
    assert dog.translations == ("köter", "Hund", "Köter")
    assert glossary.find("a dog")[0].translations == ("köter", "Hund")
    assert not glossary.find("DOG bill")
    assert glossary.find("Éclair")
    both = Glossary.from_lines(["march\tMarsch", "March\tMärz"], "words")
    assert [entry.translations for entry in both.find("March and march")] == [("März",), ("Marsch",)]


def test_terms_are_in_every_translation(model: Model) -> None:
    sources = [source for source, _ in bundled_pairs(40, seed=8)]
    first = sorted({word for source in sources for word in words(source) if len(word) > 4})
    glossary = Glossary.from_lines([f"{word}\tgarden|water" for word in first], "all")
    expected = model.translate(sources[:3], glossary=glossary)
    for forms in ("garden|water", ["garden", "water"]):
        assert model.translate(sources[:3], glossary=dict.fromkeys(first, forms)) == expected
    for translation in model.translate(sources, glossary=glossary):
        wanted = len(glossary.find(translation.source))
        said = words(translation.text)
        assert sum(word in ("garden", "water") for word in said) >= wanted, translation
        assert translation.status in ("ok", "length")


def test_what_is_kept_stays(model: Model) -> None:
    text = "ich trinke the bier"  # a word that the vocabulary can write
    found = model.translate(text, keep=r"\bthe\b")
    assert words(found.text).count("the") >= 1
    shouted = model.translate("ICH TRINKE THE BIER", keep=r"\bTHE\b")  # whose letters are read as small ones
    assert "THE" in shouted.text or shouted.status == "unmet"
    lines = model.translate(["ich trinke 漢 bier", "ich trinke bier"], keep="漢")  # one line does not end all others
    assert [t.status for t in lines] == ["unmet", "ok"]
    with pytest.raises(SettingsError, match=r"--keep=\( is no regular expression"):
        model.translate(text, keep="(")


def test_forbidden_words_do_not_come(model: Model) -> None:
    sources = [source for source, _ in bundled_pairs(40, seed=9)]
    said = Counter(word for t in model.translate(sources) for word in words(t.text) if len(word) > 1)
    often = [word for word, _ in said.most_common(2)]
    for translation in model.translate(sources, forbidden=often):
        assert not set(often) & set(words(translation.text))
    with pytest.raises(DataError, match="nothing to forbid"):
        model.translate(SENTENCE, forbidden=["漢"])


def test_every_way_to_cut_a_forbidden_word(model: Model) -> None:
    wording = Wording(Wishes(forbidden=["the"]), model.tokenizers.target)
    spelled = {"".join(wording.pieces[i] for i in way) for way in wording.forbid.sequences()}
    assert spelled == {"▁the"}
    assert len(wording.forbid.sequences()) > 1


def test_many_and_long_forbidden_words(model: Model) -> None:
    """However many there are, they are looked for together; a word in all its letters, whatever way it is cut."""
    tokenizer = model.tokenizers.target
    many = [f"{word}{number}".strip("0") for word in ("house", "garden", "water") for number in range(1000)]
    some = Wording(Wishes(forbidden=["the"]), tokenizer).forbid
    letters = [tokenizer.pieces(range(tokenizer.size)).index(letter) for letter in ("▁", "t", "h", "e")]
    assert some.is_in([7, *letters, 9])
    assert not some.is_in([7, *letters[:-1], 9, letters[-1]])
    all_ = Wording(Wishes(forbidden=[word for word in many if some.can_write(f"▁{word}")]), tokenizer).forbid
    assert len(all_.ending) < 40 * len(many)
    with pytest.raises(
        DataError, match=r"'aaaaaaaaaaaaaaaaaaaa\.\.\.' has 100,000 letters, and a word or phrase of at most"
    ):
        model.translate(SENTENCE, forbidden=["a" * 100_000])


def test_a_translation_begins_as_asked(model: Model) -> None:
    begins = ["we", "", "the garden"]
    found = list(model.stream([SENTENCE] * 3, prefixes=begins))
    assert [words(t.text)[: len(words(begin))] for t, begin in zip(found, begins, strict=True)] == [
        words(begin) for begin in begins
    ]
    assert found[1].text == model.translate(SENTENCE).text


@pytest.mark.parametrize(
    ("search", "wishes", "begin"),
    [
        ({"no_repeat": 1}, {}, "the the the"),
        ({}, {"forbidden": ["the"]}, "the garden"),
        ({}, {"glossary": Glossary.from_lines(["bier\tgarden"], "words")}, "gardener"),
    ],
)
def test_a_prefix_is_stronger_than_what_forbids_it(model: Model, search: dict, wishes: dict, begin: str) -> None:
    (found,) = model.with_search(**search).stream([SENTENCE], Wishes(**wishes), prefixes=[begin])
    assert found.text.startswith(begin)
    assert found.status in (["unmet"] if "forbidden" in wishes else ["ok", "length"])  # one of two wishes is not met


def test_a_prefix_that_cannot_be_written_is_told(model: Model) -> None:
    for begin in ("we 漢", "漢"):
        (found,) = model.stream([SENTENCE], prefixes=[begin])
        assert found.text.startswith(begin.rstrip(" 漢"))
        assert found.status == "unmet"
        assert "▁" not in found.candidates[0].tokens[: len(begin.split())]


@pytest.mark.parametrize(
    ("prefixes", "complaint"),
    [
        (["we"], "there are 1 prefixes, and more lines than that"),
        (["we"] * 3, "there are 2 lines, and more prefixes than that"),
    ],
)
def test_prefixes_are_as_many_as_lines(model: Model, prefixes: list[str], complaint: str) -> None:
    """One that is missing would move all that follow to other lines."""
    with pytest.raises(DataError, match=complaint):
        list(model.stream([SENTENCE] * 2, chunk=1, prefixes=prefixes))


@pytest.mark.parametrize("search", [{"method": "sample"}, {"beam": 4, "groups": 2}])
def test_terms_need_a_plain_beam_and_that_is_said_at_once(model: Model, search: dict) -> None:
    with pytest.raises(SettingsError, match="need a plain beam"):
        model.with_search(**search).translate(SENTENCE, keep="nothing that is in it")


def test_what_is_wanted_and_forbidden(model: Model) -> None:
    """Another form is written; where there is none, it is refused, or for a single line told."""
    (found,) = model.translate([SENTENCE], glossary={"bier": "garden|water"}, forbidden=["garden"])
    assert "water" in words(found.text)
    assert "garden" not in words(found.text)
    with pytest.raises(DataError, match=r"the glossary wants 'garden\|gardens', which --forbid forbids"):
        model.translate([SENTENCE], glossary={"bier": "garden|gardens"}, forbidden=["garden", "gardens"])
    assert model.translate("ich trinke water", keep="water", forbidden=["water"]).status == "unmet"


def test_nothing_that_is_asked_for_is_cut(model: Model) -> None:
    line = "Er kauft Brot. Bier trinkt er"
    never = Wording(Wishes(keep=r"Brot\. Bier"), model.tokenizers.target).protection.within(line)
    assert split_sentences(line, never) == [line] != split_sentences(line)
    found = model.translate("ich kaufe brot. bier trinke ich.", glossary={"brot. bier": "garden"})
    assert "garden" in words(found.text)


def test_a_limit_holds_for_what_it_cuts(model: Model) -> None:
    for most in (1, 3):
        found = model.with_search(max_length=most, beam=4).translate([SENTENCE, "ich"], n_best=4)
        for t in found:
            assert all(len(c.tokens) <= most for c in t.candidates)
            assert len({c.tokens for c in t.candidates}) == len(t.candidates)
        assert found[0].status == "length"


def test_a_glossary_that_cannot_be_written_is_refused_at_once(model: Model) -> None:
    with pytest.raises(DataError, match="the vocabulary cannot write '漢', '字'; leave it out"):  # all that it cannot
        model.translate(SENTENCE, glossary=Glossary.from_lines(["elefant\t漢", "hund\tdog", "katze\t字"], "words"))


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"forbidden": "house"}, "forbidden must be several texts, not one"),
        ({"glossary": [("haus", "house")]}, "glossary must be a dict or a Glossary, not"),
        ({"glossary": {"haus": 3}}, r"glossary\[0\]\[1\] must be str, not 3"),
        ({"beam": 4}, r"beam is a setting of the search: model.with_search\(beam="),
        ({"keep": 3}, "keep must be str, not 3"),
        ({"alternatives": 2.0}, "alternatives must be a whole number, not 2.0"),
        ({"alternatives": -1}, "alternatives=-1 must be 0 or more"),
        ({"n_best": None}, "n_best must be a whole number, not None"),
    ],
)
def test_wishes_of_a_wrong_type_are_refused(model: Model, wish: dict, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        model.translate(SENTENCE, **wish)


def test_alternatives_have_probabilities(model: Model) -> None:
    found = model.translate(SENTENCE, alternatives=3)
    assert len(found.alternatives) == len(found.candidates[0].tokens) + 1  # END too
    for row in found.alternatives:
        chances = [p for _, p in row]
        assert len(row) == 3
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) <= 1.0001


# ---- several models ------------------------------------------------------------------------------------------------


def test_models_write_together(model_folder: Path, model: Model) -> None:
    sources = [source for source, _ in bundled_pairs(20, seed=3)]
    for search in ({"beam": 1}, {"beam": 3, "coverage_penalty": 0.2}):
        alone = transduce.load(model_folder, **search).translate(sources)
        twice = transduce.load(model_folder, together=[model_folder], **search)  # the mean of two that agree
        found = twice.translate(sources)
        assert [t.text for t in found] == [t.text for t in alone]
        assert [t.score for t in found] == pytest.approx([t.score for t in alone], abs=1e-4)
        assert twice.engine.name == "ensemble of 2 on cpu"


def test_the_mean_of_probabilities() -> None:
    logits = [torch.randn(2, 3, 7) for _ in range(3)]
    expected = torch.stack([one.softmax(-1) for one in logits]).mean(0).log()
    torch.testing.assert_close(mean_of(logits), expected)


def test_models_of_other_vocabularies_do_not_write_together(model_folder: Path, tmp_path: Path) -> None:
    pairs = bundled_pairs(60, seed=2)
    settings = {"training": {"steps": 2, "validate_every": 2}, "text": {"tokenizer": "words"}}
    transduce.train(tmp_path / "other", pairs, preset="tiny", **settings)
    with pytest.raises(ModelError, match="has another vocabulary; models that write together must share one"):
        transduce.load(model_folder, together=[tmp_path / "other"])


# ---- samples -------------------------------------------------------------------------------------------------------


def test_samples_can_be_repeated(model: Model) -> None:
    warm = model.with_search(method="sample", temperature=2.0)
    one = [c.text for c in warm.translate(SENTENCE, n_best=4).candidates]
    again = [c.text for c in warm.translate(["wir schlafen", SENTENCE], n_best=4)[1].candidates]
    other = [c.text for c in warm.with_search(seed=2).translate(SENTENCE, n_best=4).candidates]
    assert one == again
    assert one != other
    assert len(set(one)) > 1


def test_all_pairs_are_compared_as_sacrebleu_compares_two() -> None:
    words = ["a", "the", "dog", "cat's", "runs", "!", "ö", "一", "x.y"]
    rng = random.Random(1)
    texts = [" ".join(rng.choices(words, k=rng.randrange(14))) for _ in range(20)]
    for ours, theirs in ((similarity.chrf, CHRF()), (similarity.bleu, BLEU(effective_order=True))):
        scores = ours(texts)
        for (i, text), (j, right) in itertools.product(enumerate(texts), repeat=2):
            assert scores[i, j] == pytest.approx(theirs.sentence_score(text, [right]).score, abs=1e-9), (text, right)


def test_minimum_bayes_risk_takes_what_is_most_like_the_others(model: Model) -> None:
    from transduce.decoding.mbr import most_like_the_others

    texts = ["a cat sat", "the cat sat", "the cat sat", "dogs", "the cat sat"]
    for measure in ("chrf", "bleu"):
        order = most_like_the_others(texts, measure)
        assert texts[order[0]] == "the cat sat"
        assert texts[order[-1]] == "dogs"
        assert len(order) == 3  # each text once
    found = model.with_search(method="sample", mbr="chrf", candidates=6).translate(SENTENCE, n_best=2)
    assert len(found.candidates) <= 2
    assert model.with_search(mbr="chrf", beam=4).translate(SENTENCE).status == "ok"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"top_k": 3}, "search.top_k=3 needs search.method=sample"),
        ({"temperature": 0.5}, "search.temperature=0.5 needs search.method=sample"),
        ({"method": "sample", "groups": 2}, "search.groups=2 needs search.method=beam"),
        ({"method": "sample", "coverage_penalty": 0.1}, "search.coverage_penalty=0.1 needs search.method=beam"),
        ({"beam": 4, "groups": 3}, "search.beam=4 must be a multiple of search.groups=3"),
        ({"min_length": 9, "max_length": 4}, "search.min_length=9 must be below search.max_length=4"),
        ({"min_ratio": 3.0, "max_ratio": 2.0}, "search.min_ratio=3.0 must not exceed search.max_ratio=2.0"),
        ({"mbr": "chrf", "beam": 1}, "search.mbr=chrf chooses among candidates"),
    ],
)
def test_combinations_without_sense_are_refused(model: Model, changes: dict, complaint: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(complaint)):
        model.with_search(**changes)


def test_terms_want_a_plain_beam(model: Model) -> None:
    glossary = Glossary.from_lines(["bier\twater"], "words")
    with pytest.raises(SettingsError, match="a glossary and --keep need a plain beam"):
        model.with_search(method="sample").translate(SENTENCE, glossary=glossary)


def test_lengths_are_kept(model: Model) -> None:
    long = model.with_search(min_length=12).translate(SENTENCE)
    assert len(long.candidates[0].tokens) >= 12
    short = model.with_search(max_length=2).translate(SENTENCE)
    assert len(short.candidates[0].tokens) <= 2
    (source,) = model.tokenizers.source.encode([SENTENCE])
    half = model.with_search(max_ratio=0.5).translate(SENTENCE).candidates[0].tokens
    assert len(half) <= (len(source) + 1) // 2 + 1  # END has a place of its own


# ---- long and messy text -------------------------------------------------------------------------------------------


def test_sentences_are_found_and_their_white_space_kept() -> None:
    assert split_sentences("Hello there!  How are you?") == ["Hello there!  ", "How are you?"]
    assert split_sentences("你好！今天天气怎么样？") == ["你好！", "今天天气怎么样？"]
    assert split_sentences("我走了。3个人来了。") == ["我走了。", "3个人来了。"]
    for whole in ("他来了（真的！）但是走了。", "Yahoo！是公司。", "《怎么办？》是一本书。", "他在U.S.A.工作。"):
        assert split_sentences(whole) == [whole]
    assert split_sentences("我用Python.它很好。") == ["我用Python.", "它很好。"]
    assert split_sentences("他说：『我走了。』她在U.S.A.工作。 真的！！") == [
        "他说：『我走了。』",
        "她在U.S.A.工作。 ",
        "真的！！",
    ]
    assert split_sentences("Half \ud800 a letter. Then more.") == ["Half \ud800 a letter. ", "Then more."]
    assert split_sentences("Dr. Smith went home.") == ["Dr. Smith went home."]
    assert halve("one, two three") == ("one, ", "two three")
    assert halve("abcd") == ("ab", "cd")
    assert is_east_asian("。")
    assert not is_east_asian("a.")


def test_parts_of_a_line_are_joined_with_what_was_between_them() -> None:
    def part(text: str, status: str = "ok") -> Translation:
        return Translation(text, text, status, ())

    joined = join("x", [part("A."), part("B.", "length"), part("", "empty"), part("C.")], ["", "  ", "\t", " "])
    assert joined.text == "A.  B. C."
    assert joined.status == "length"
    assert join("x", [part("你好。"), part("再见。")], ["", " "]).text == "你好。再见。"
    assert join("x", [part("Hello."), part("Bye.")], ["", ""]).text == "Hello. Bye."


def test_a_line_of_several_sentences(model: Model) -> None:
    line = "ich trinke ein bier.  wir schlafen heute! "
    model = model.with_search(min_length=3, max_length=6)
    found = model.translate(line)
    alone = [model.translate(text).text for text in ("ich trinke ein bier.", "wir schlafen heute!")]
    assert found.text == "  ".join(alone)
    assert found.source == line
    assert [part.text for part in found.parts] == alone
    several = model.translate(line, n_best=3).candidates
    assert several[0].text == found.text
    assert len({candidate.text for candidate in several}) == 3
    whole = model.with_search(split=False).translate(line)
    assert not whole.parts


def test_a_huge_line_is_read_a_few_times_only(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halved before it is read where it is far too long, and the bar tells how many of its pieces are done."""
    line = "ich trinke bier, und du " * 2000
    tokenizer, read = model.tokenizers.source, list[int]()
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda texts: read.append(sum(map(len, texts))) or encode(texts))
    pieces = sentences_of([line], tokenizer, 60, True)
    assert sum(read) < 6 * len(line)
    assert " ".join(piece.text for piece in pieces) == line.strip()
    assert all(15 < len(piece.source) <= 60 for piece in pieces)
    told: list[str] = []

    class Bar(Progress):
        def update(self, done: float, **facts: str) -> None:
            told.append(facts["sentences"])

    found = next(model.stream([" ".join(["ich trinke bier."] * 40)], progress=Bar()))
    assert len(found.parts) == 40
    assert told[-1] == "40 of 40"
    found = join("x" * 9, [Translation("a.", "b", "ok", ())] * 20_000, [" "] * 20_000)
    assert found.text == " ".join("b" * 20_000)


def test_what_is_too_long_is_translated_in_pieces(model: Model) -> None:
    line = "ich trinke ein bier und " * 40
    pieces = sentences_of([line], model.tokenizers.source, model.lengths.longest, split=True)
    assert len(pieces) > 1
    assert all(piece.long and piece.whole and len(piece.source) <= model.lengths.longest for piece in pieces)
    assert " ".join(piece.text for piece in pieces).split() == line.split()
    assert model.translate(line).status in ("long", "length")


# ---- going on ------------------------------------------------------------------------------------------------------


def test_the_lines_that_are_left_are_whole(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    part = tmp_path / "out.txt.abcd1234.part"
    part.write_bytes(b"one\ntwo\nthr")
    (tmp_path / "out.txt.abcd9999.part").write_bytes(b"one\n")
    kept = find_kept(output, "abcd", 1)
    assert kept is not None
    assert (kept.part, kept.lines) == (part, 2)
    assert write_lines(output, ["three"], "abcd", kept) == 3
    assert output.read_text() == "one\ntwo\nthree\n"
    (tmp_path / "out.txt.abcd9999.part").unlink()
    with pytest.raises(DataError, match="is finished, there is nothing to resume"):
        find_kept(output, "abcd", 1)


def test_what_another_command_still_writes_is_left_to_it(tmp_path: Path) -> None:
    """A second one, with --resume or without, would tear its lines or replace what it makes."""
    output = tmp_path / "out.txt"
    program = (
        "import sys; from pathlib import Path; from transduce.files.output import write_lines\n"
        "def lines():\n"
        "    yield 'one'; yield 'x' * 100_000; print('writes', flush=True); sys.stdin.readline(); yield 'three'\n"
        f"print(write_lines(Path({str(output)!r}), lines(), 'abcd'))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "writes\n"
        with pytest.raises(DataError, match=r"another command is still writing .*out.txt; wait until it ends"):
            find_kept(output, "abcd", 1)
        with pytest.raises(DataError, match=r"another command is still writing .*out.txt; wait until it ends"):
            write_lines(output, ["mine"], "1234")
        first.communicate("\n")
    assert output.read_text() == "one\n" + "x" * 100_000 + "\nthree\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    assert write_lines(output, ["mine"], "1234") == 1


def test_resume_repeats_and_loses_nothing(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte: it goes on with a whole chunk, so that even the last digits of a score have the same company."""
    monkeypatch.setattr(PlainEngine, "chunk", 24)
    monkeypatch.setattr(loop_search, "is_compiled", lambda: True)
    text, output = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [source for source, _ in bundled_pairs(150, seed=6)]
    lines[40:100] = [line if i % 5 == 0 else "" for i, line in enumerate(lines[40:100])]  # chunks with few sentences
    text.write_text("".join(f"{line}\n" for line in lines))
    command = ["translate", str(model_folder), str(text), "--json", "-o", str(output)]
    assert main([*command, "--resume"]) == 0  # nothing is left of an earlier run: from the beginning
    expected = output.read_bytes()
    # as a kill would leave it: some lines, the last one cut
    before = set(tmp_path.iterdir())
    broken = tmp_path / "broken.txt"
    broken.write_bytes(text.read_bytes()[:200] + b"\xff\n")
    output.unlink()
    assert main(["translate", str(model_folder), str(broken), "--json", "-o", str(output)]) == 2
    assert set(tmp_path.iterdir()) - before <= {broken, *parts_beside(output)}
    capsys.readouterr()
    from transduce.commands.lines import mark_of

    loaded = transduce.load(model_folder)
    asked = (1, None, None, 0, False, True, None, None, None, (None, None), None)
    mark = mark_of(model_folder, [str(text)], loaded.search, *asked, 24)
    for cut in (1, 9000, len(expected) // 2, len(expected) - 5):
        for left in parts_beside(output):
            left.unlink()
        (tmp_path / f"out.txt.{mark}0123.part").write_bytes(expected[:cut])
        assert main([*command, "--resume"]) == 0
        done = expected[:cut].count(10) // 24 * 24
        told = f"going on after {done} lines" if done else "this one begins with the first line"
        assert told in capsys.readouterr().err
        assert output.read_bytes() == expected
        output.unlink()
    assert main(["translate", str(model_folder), str(text), "--resume"]) == 2
    assert "--resume goes on with a file" in capsys.readouterr().err


def test_flags_of_the_command(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text, glossary, begins = tmp_path / "in.txt", tmp_path / "words.tsv", tmp_path / "begins.txt"
    text.write_text(f"{SENTENCE}\n")
    glossary.write_text("bier\twater\n")
    begins.write_text("we\n")

    def said(*flags: str) -> str:
        assert main(["translate", str(model_folder), str(text), *flags]) == 0
        return capsys.readouterr().out

    assert "water" in words(said("--glossary", str(glossary)))
    assert words(said("--prefix", str(begins)))[0] == "we"
    assert "the" not in words(said("--forbid", "the", "--forbid", "a"))
    assert len(said("--sample", "--n-best", "3", "--search.temperature", "1.5").splitlines()) == 3
    record = json.loads(said("--alternatives", "2", "--json"))
    assert len(record["alternatives"][0]) == 2
    for flags, complaint in (
        (["--alternatives", "2"], "--alternatives needs --json"),
        (["--engine", "fastest"], "search.engine=fastest must be one of auto, plain, ctranslate2"),
        (["--glossary", str(tmp_path / "none")], "there is no file"),
    ):
        assert main(["translate", str(model_folder), str(text), *flags]) == 2
        assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("Er kam am 3. Oktober 1990. Er blieb.", ["Er kam am 3. Oktober 1990. ", "Er blieb."]),
        ("3,5 Mio. Einwohner, bzw. Leute. Ja.", ["3,5 Mio. Einwohner, bzw. Leute. ", "Ja."]),
        ("I have 3. He has 4.", ["I have 3. ", "He has 4."]),
        ("das ist gut. es ist alt.", ["das ist gut. ", "es ist alt."]),
    ],
)
def test_german_is_not_cut_by_english_rules(line: str, sentences: list[str]) -> None:
    assert split_sentences(line) == sentences


def test_a_glossary_finds_latin_words_beside_chinese() -> None:
    glossary = Glossary.of({"iPhone": "phone", "12": "twelve"})
    found = [entry.source for entry in glossary.find("我用iPhone上网，有12只狗，iPhones和120没有。")]
    assert found == ["iPhone", "12"]


def test_dash_is_standard_input() -> None:
    for words, moved in (
        ("translate m - --beam 2", "translate m --beam 2 -- -"),
        ("translate m --json -", "translate m --json -- -"),
        ("translate m a.de -o -", "translate m a.de -o -"),
    ):
        assert cli._with_dash_last(words.split(), cli.make_app()) == moved.split()
