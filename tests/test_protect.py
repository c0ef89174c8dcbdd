"""What passes through unchanged, and case as marks: text comes back to the letter, and a model moves it to its place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from conftest import bundled_pairs, quick_settings

import transduce
from transduce.data.build import Part, store_name
from transduce.data.corpus import ListCorpus, Pair
from transduce.data.tokenize import Chunk, Job, Sampling, tokenize
from transduce.decoding.sentences import sentences_of
from transduce.decoding.shortlist import learn
from transduce.decoding.wishes import Wishes
from transduce.decoding.wording import Wording
from transduce.errors import SettingsError
from transduce.inspect.words import joined, words
from transduce.model import Model
from transduce.models.kinds import new_model
from transduce.settings.compose import compose
from transduce.settings.pattern import Pattern
from transduce.settings.sections import PROTECTED, DataSettings, TextSettings
from transduce.text import case, protect
from transduce.text.glossary import Glossary
from transduce.text.normalise import normalise
from transduce.text.protect import LOST, MARKS, Hidden, Protection
from transduce.text.sentences import halve, split_sentences
from transduce.text.tokenizers import Tokenizers
from transduce.training.setup import fit

ALL = ",".join(PROTECTED)
EVERYTHING = Protection(TextSettings(protect=ALL))
M1, M2, M3, *_ = MARKS


def items(text: str, kinds: str = ALL) -> list[str]:
    hidden = Protection(TextSettings(protect=kinds)).hide(normalise(text))
    return [item.text for item in (hidden.items or {}).values()]


# ---- what is hidden ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("urls", "see https://a.b/c?d=1&e=(2), or (www.x.de/y).", ["https://a.b/c?d=1&e=(2", "www.x.de/y"]),
        ("urls", "见http://a.b/c。谢谢", ["http://a.b/c"]),
        ("emails", "to a.b+c@d-e.co.uk. Not a@b", ["a.b+c@d-e.co.uk"]),
        ("numbers", "12 of 1,234.5 or -3% (2024-03-12, 12:30)", ["12", "1,234.5", "-3%", "2024-03-12", "12:30"]),
        ("numbers", "B2B, 5th and x86 stay; COVID-19 费用12美元", ["19", "12"]),
        ("numbers", "2019年11月6日，210万美元，20世纪，3亿，7点45分", ["2019", "6", "45"]),  # 2.1 million, November
        ("numbers", "3万5千，1万2,345円，3~5万人，3到5 亿，5千，24時間，工业4.0时代", ["24", "4.0"]),
        ("numbers", "2.1 million, 5 Milliarden", ["2.1", "5"]),
        ("tags", '<b>a</b><br/> <a href="x y">1 < 2 &amp; 3', ["<b>", "</b>", "<br/>", '<a href="x y">', "&amp;"]),
        ("placeholders", "{name} {{x y}} %s %(n)d %1$s ${HOME} $USER %.2f", None),
        ("placeholders", "100% sure, 50%discount, $5, 5 % so, {a b}", []),
        ("emoji", "good 😀👍🏽 and ❤️.", ["😀👍🏽", "❤️"]),
    ],
)
def test_kinds(kind: str, text: str, found: list[str] | None) -> None:
    assert items(text, kind) == (re.findall(r"\{\{.*?\}\}|\S+", text) if found is None else found)
    assert items(text, ",".join(other for other in PROTECTED if other != kind)) != found or not found


def test_every_kind_has_its_pattern() -> None:
    assert tuple(protect.PATTERNS) == PROTECTED


def test_a_pattern_of_ones_own() -> None:
    own = Protection(TextSettings(protect="numbers", protect_pattern=r"(?i)(ab)-\1|\b(?=x)"))
    hidden = own.hide("AB-ab 12 x ab-12")
    assert [item.text for item in hidden.items.values()] == ["AB-ab", "12", "12"]  # type: ignore[union-attr]
    assert own.hide("x").items == {}  # it can match nothing at all here, and nothing is hidden


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("see <b>12</b> files.", f"see {M1} {M2} {M3} files."),
        ("<b>Haus</b>tür (12), 12!", f"{M1} Haus {M2} tür ({M3}), {MARKS[3]}!"),
        ("费用12美元", f"费用{M1}美元"),
        ("nothing here", "nothing here"),
        (f"a {M3}{M1} b 7", f"a {M1} {M2} b {M3}"),
    ],
)
def test_marks_touch_no_word(text: str, hidden: str) -> None:
    assert EVERYTHING.hide(text).text == hidden
    assert EVERYTHING.hide(text).restore(hidden) == text


def test_any_text_comes_back() -> None:
    draw = Random(1)
    parts = [
        "<b>",
        "</i>",
        "12",
        "-1,5%",
        "https://a.b/c",
        "a@b.de",
        "{x}",
        "%s",
        "😀",
        "Haus",
        "x",
        "中",
        "。",
        *MARKS[:3],
    ]
    parts += [" ", " ", " ", ".", ",", "(", ")", "'", "‹", "é", "\u0301", "ß", "\U0001f3fd", "_", "⇧"]
    for _ in range(5000):
        text = normalise(normalise("".join(draw.choice(parts) for _ in range(draw.randrange(20)))))
        if len(EVERYTHING.spans(text)) <= len(MARKS):
            hidden = EVERYTHING.hide(text)
            assert hidden.restore(hidden.text) == text, text
            pieces = re.findall(r" ?\w+| ?[^\w\s]", hidden.text)
            shown = hidden.restore_pieces([piece.replace(" ", "▁") for piece in pieces])
            assert "".join(shown).replace("▁", " ").strip() == text
            assert len(shown) == len(pieces)


def test_more_items_than_marks_stay_as_text() -> None:
    text = " ".join(map(str, range(20)))
    hidden = EVERYTHING.hide(text)
    assert hidden.text == " ".join([*MARKS, "16", "17", "18", "19"])
    assert hidden.restore(hidden.text) == text
    typed = EVERYTHING.hide(f"{text} {M1}")  # a mark that was typed is hidden before any number
    assert typed.restore(typed.text) == f"{text} {M1}"
    assert EVERYTHING.hide(M1 * 17).text.endswith(LOST)


def test_the_gap_is_that_of_the_source() -> None:
    bold = EVERYTHING.hide("ein <b>Haus</b>, 12 Uhr")
    assert bold.restore(f"{M3} o'clock, a {M1} house {M2} here") == "12 o'clock, a <b>house</b> here"
    assert bold.restore(f"a{M1}house{M2}{M3}") == "a <b>house</b> 12"
    assert bold.restore(f"({M3})，{M1}屋{M2}在") == "(12)，<b>屋</b>在"
    assert EVERYTHING.hide("12 34").restore(f"{M2}{M1}") == "34 12"  # numbers never run together


def test_marks_that_are_not_the_sentences_never_come_out() -> None:
    hidden = EVERYTHING.hide("am 12. Mai")
    assert hidden.restore(f"{M2} on May {M1} {M1}{M3}") == "on May 12"
    assert Hidden("am 12.").restore(f"a{M1}b") == f"a{M1}b"  # a model without marks: nothing but a character


def test_pairs_share_marks_for_what_stands_on_both_sides_as_often() -> None:
    source, target = EVERYTHING.hide_pair("12 und 3, 12 und {x} 5", "{x}: 12 and 12 and 4, 5 5")
    assert source.text == f"{M1} und 3, {M2} und {M3} 5"
    assert target.text == f"{M3}: {M1} and {M2} and 4, 5 5"
    prefix = EVERYTHING.hide_known("5 12 12 12", EVERYTHING.hide("12 und 12"))
    assert prefix == f"5 {M1} {M2} 12"


def test_names_and_all_marks_are_taught() -> None:
    seen, names = set(), 0
    for seed in range(2000):
        source, target = EVERYTHING.hide_pair(
            "Anna wohnt in Bonn, Bonn 7 www.anna.de", "Anna lives in Bonn 7 Bonn", Random(seed)
        )
        marks = [c for c in source.text if c in MARKS]
        assert sorted(marks) == sorted(c for c in target.text if c in MARKS)
        seen.update(marks)
        names += "Anna" not in source.text
        assert "www" in source.text
        assert "Bonn" in source.text
    assert seen == set(MARKS)
    assert 0.02 < names / 2000 < 0.08


def test_sentences_are_not_cut_within_an_item() -> None:
    own = Protection(TextSettings(protect_pattern=r"\[.*?\]"))
    line = "Wir gehen [Nein. Doch! Oh.] heim. Du auch?"
    assert split_sentences(line, own.within(line)) == ["Wir gehen [Nein. Doch! Oh.] heim. ", "Du auch?"]
    assert halve("a [b c d e] f", own.within("a [b c d e] f")) == ("a ", "[b c d e] f")
    tokenizer = Tokenizers.train([("a b", "c d")] * 9, TextSettings(tokenizer="characters")).source
    (first, second) = sentences_of([line], tokenizer, 200, split=True, protection=own)
    assert (first.hidden.text, second.text) == (f"Wir gehen {M1} heim.", "Du auch?")


# ---- case ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("Das BIER im Haus", "das⇧ bier⇪ im haus⇧"),
        ("ich, iPhone McDonald", "ich, iPhone McDonald"),
        ("I B2B ÖL", "i⇧ b2b⇪ öl⇪"),
        ("ΟΔΟΣ Οδός ǅ Ǆ", "οδος⇪ οδός⇧ ǆ⇧ ǆ⇪"),
        ("İstanbul ẞ ﬁn", "İstanbul ẞ ﬁn"),
        ("我爱Apple公司", "我爱apple⇧公司"),
        ("⇧A⇪", "⇨⇧a⇧⇨⇪"),
    ],
)
def test_case_is_marked_behind_words(text: str, marked: str) -> None:
    assert case.mark(text) == marked
    assert case.restore(marked) == text


def test_case_of_any_text_comes_back() -> None:
    draw = Random(1)
    letters = [chr(c) for c in range(0x20, 0x2200)] + 30 * list(" .aAbBςΣσİıßẞǅǆǄ" + case.CASE_MARKS)
    letters += [chr(c) for c in (*range(0x10A0, 0x10FF), *range(0xA640, 0xA7FF), *range(0x10400, 0x10450))]
    for _ in range(20_000):
        text = normalise(normalise("".join(draw.choice(letters) for _ in range(draw.randrange(12)))))
        marked = case.mark(text)
        assert case.restore(marked) == text
        assert normalise(marked) == marked  # tokenizers change nothing about it


def test_marks_of_case_out_of_place_are_left_out() -> None:
    assert case.restore("⇧ ⇪.das⇧⇧ ⇨") == " .Das "


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words", "characters"])
def test_capitals_of_known_words_are_known_words(kind: str) -> None:
    pairs = [("Die Katze trinkt bier", "The cat drinks beer"), ("die Hunde", "the dogs")] * 50 + bundled_pairs(200)
    tokenizers = Tokenizers.train(pairs, TextSettings(tokenizer=kind, vocabulary=260, case="marks"))  # type: ignore[arg-type]
    tokenizer = tokenizers.source
    lower, capital, capitals = tokenizer.encode(["trinkt bier", "trinkt Bier", "trinkt BIER"])
    assert len({*lower}) < len(tokenizer.pieces(range(tokenizer.size)))
    assert capital[:-1] == lower == capitals[:-1]
    assert tokenizer.pieces([capital[-1], capitals[-1]]) == ["⇧", "⇪"]
    if kind in ("bpe", "unigram"):
        assert tokenizer.cut("Die")[:1] == ["▁die⇧"]  # what is frequent is one token
        drawn = tokenizer.sample(["Die Katze trinkt BIER"] * 50, 0.3, seed=1)
        assert {tokenizer.decode(ids) for ids in drawn} == {"Die Katze trinkt BIER"}
        assert len({tuple(ids) for ids in drawn}) > 1
    for text in ("Die Katze", "⇧ ⇪ ⇨", "DIE KATZE, bier"):
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text
    assert joined(["▁bier", "⇧", "▁da"], words(["▁bier", "⇧", "▁da"])) == ("bier⇧", "da")
    again = Tokenizers.from_files(tokenizers.files(), tokenizers.settings).target
    assert again.encode(["Die BIER"]) == tokenizer.encode(["Die BIER"])


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words", "characters"])
def test_a_mark_is_one_token(kind: str) -> None:
    settings = TextSettings(tokenizer=kind, vocabulary=260, protect="numbers", joint=False)  # type: ignore[arg-type]
    tokenizers = Tokenizers.train([("(ich).", "(me).")] * 50 + bundled_pairs(200), settings)
    for side in (tokenizers.source, tokenizers.target):
        text = f"({M1}) {MARKS[-1]}."
        (ids,) = side.encode([text])
        assert side.decode(ids) == text
        assert [piece for piece in side.pieces(ids) if M1 in piece] == [M1]


# ---- training text -------------------------------------------------------------------------------------------------


def job(teaches: bool, **text: object) -> Job:
    settings = TextSettings(vocabulary=300, **text)  # type: ignore[arg-type]
    return Job(Tokenizers.train(bundled_pairs(300), settings), DataSettings(), teaches=teaches)


def test_a_share_of_training_text_is_in_capitals() -> None:
    chunk = Chunk(0, 0, [Pair(*pair, line) for line, pair in enumerate(bundled_pairs(2000), 1)])
    for teaches in (False, True):
        some = job(teaches, case="marks")
        one = tokenize(chunk, some)
        assert (tokenize(chunk, some).source == one.source).all()
        sign = some.tokenizers.source.encode(["BIER"])[0][-1]
        begins, lengths = one.places[:, 0], one.places[:, 1]
        capitals = sum(sign in one.source[b : b + n] for b, n in zip(begins, lengths, strict=True))
        assert (0.01 < capitals / 2000 < 0.03) if teaches else capitals == 0


def test_what_is_hidden_makes_no_duplicates_and_goes_with_sampling() -> None:
    pairs = [Pair(f"ich habe {n} katzen", f"i have {n} cats", n) for n in range(1, 60)]
    some = job(True, protect="numbers", case="marks")._replace(sampling=Sampling(0.2, 3, 1))
    found = tokenize(Chunk(0, 0, pairs), some)
    assert len(set(found.hashes.tolist())) == len(pairs)
    begin, length = found.places[0, :2]
    assert any(mark in some.tokenizers.source.decode(found.source[begin : begin + length].tolist()) for mark in MARKS)


def test_a_store_is_named_for_what_was_done_to_its_text() -> None:
    plain = Tokenizers.train(bundled_pairs(100), TextSettings(vocabulary=200))
    names = set()
    for changes in ({}, {"case": "marks"}, {"protect": "numbers"}, {"protect": "urls"}, {"protect_pattern": "x"}):
        tokenizers = Tokenizers.from_files(plain.files(), replace(plain.settings, **changes))
        parts = [Part(Job(tokenizers, DataSettings(), teaches=teaches)) for teaches in (False, True)]
        names.update(store_name("digest", part) for part in parts)
    assert len(names) == 1 + 2 * 4  # nothing is taught where nothing is rewritten


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"protect": "url"}, "text.protect=url: url is none of urls, emails, tags, .*, did you mean urls"),
        ({"protect": "urls,"}, "text.protect=urls,: nothing is none of urls"),
        ({"protect_pattern": "("}, r"text.protect_pattern=\( is no regular expression"),
        ({"protect_pattern": "a*"}, r"text.protect_pattern=a\* matches the empty text"),
        ({"lowercase": True, "case": "marks"}, "text.lowercase=true does not go with text.case=marks"),
        (
            {"protect": "urls", "target_tokenizer": "labels"},
            "text.protect does not go with text.target_tokenizer=labels",
        ),
    ],
)
def test_impossible_settings(text: dict, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        compose({"text": text})


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing"),
        ("a{4294967295}", "counts or nests too far"),
        ("a{100001}", "counts or nests too far"),
        ("(?:(?:x{99}){99}){99}", "counts or nests too far"),  # regex would write it out
        ("(?x)(?:(?:x{9 9}){99}){99}", "counts or nests too far"),
        ("(" * 5000 + "a" + ")" * 5000, "counts or nests too far"),
        (r"(?R)", "unknown extension"),  # which re does not know
    ],
)
def test_what_is_no_regular_expression_is_told_on_both_roads(pattern: str, reason: str) -> None:
    wrong = rf"={re.escape(pattern[:100])}(\.\.\.)? is no regular expression.*: .*({reason})"
    with pytest.raises(SettingsError, match=f"text.protect_pattern{wrong}"):
        compose({"text": {"protect_pattern": pattern}})
    with pytest.raises(SettingsError, match=f"--keep{wrong}"):
        Pattern(pattern, "--keep")


@pytest.mark.parametrize("pattern", [r"(\w+\s?)+\d", "(a+)+[yz]", "(?:a|a|b)*[xy]", r"(a+)+\1[yz]", "^(a+b?)+$"])
def test_a_pattern_that_would_take_re_for_ever_ends(pattern: str) -> None:
    protection = Protection(compose({"text": {"protect_pattern": pattern}}).text)
    assert protection.hide("aab" * 20 + "!").items == {}
    assert list(Pattern(pattern, "--keep").finditer("aab" * 20 + "!")) == []


@pytest.mark.parametrize("pattern", [r"(?:a|ab|b)*\d", "(?:a|ab|b|ba)*[xy]"])
def test_a_pattern_that_would_take_for_ever_is_refused(pattern: str) -> None:
    """The time doubles with every letter."""
    text = "aab" * 30
    complaint = "=.* needs more than 1 s for a line of 90 characters; write it without repetitions"
    protection = Protection(compose({"text": {"protect_pattern": pattern}}).text)
    with pytest.raises(SettingsError, match=f"text.protect_pattern{complaint}"):
        protection.hide(text)
    with pytest.raises(SettingsError, match=f"--keep{complaint}"):
        list(Pattern(pattern, "--keep").finditer(text))


def test_a_pattern_that_long_lines_are_too_long_for() -> None:
    """Cubic in their length: a moment for a usual one, days for this."""
    pattern = Pattern(r"\s*\s*\s*[xy]", "--keep")
    with pytest.raises(SettingsError, match="needs more than 1 s for a line of 100,001 characters"):
        list(pattern.finditer(" " * 100_000 + "."))
    assert pattern.sub("-", "a  x y.") == "a--."
    assert Pattern(r"(?i)(ab)-\1", "--keep").sub(r"\1", "AB-ab ab-c") == r"\1 ab-c"


def test_nothing_is_protected_unless_asked_for() -> None:
    assert compose().text.protect is None
    assert compose({"text": {"protect": "none", "protect_pattern": "none"}}).text == TextSettings()
    assert compose({"text": {"protect": "urls, emails"}}).text.protect == "urls, emails"


# ---- a model -------------------------------------------------------------------------------------------------------

NOUNS = {"katze": "cat", "hund": "dog", "haus": "house", "tür": "door"}
VERBS = {"sieht": "sees", "kauft": "buys", "nimmt": "takes"}


def generated(
    count: int, seed: int, used: tuple[str, ...] = ("numbers", "urls", "tags", "names")
) -> list[tuple[str, str]]:
    """Sentences in another order of words, with things in them that must come through."""
    draw, pairs = Random(seed), []
    for _ in range(count):
        (noun, its), (other, others), (verb, does) = (draw.choice(list(x.items())) for x in (NOUNS, NOUNS, VERBS))
        number = str(
            draw.choice([draw.randrange(2, 1000), f"{draw.randrange(100) / 10:.1f}", f"{draw.randrange(9)},5%"])
        )
        url = f"https://{''.join(draw.sample('abcdefgh', 4))}.de/{draw.randrange(99)}"
        sentences = {
            "numbers": (f"die {noun} {verb} {number} {other}.", f"{number} {others} the {its} {does}."),
            "urls": (f"auf {url} {verb} die {noun}, {number}", f"{number}: the {its} {does} on {url}"),
            "tags": (f"die <b>{noun}</b> {verb} <i>{other}</i>", f"<i>{others}</i> the <b>{its}</b> {does}"),
            "names": (f"Anna {verb} {{x}} {noun}", f"{{x}} {its} {does} Anna"),
        }
        source, target = sentences[draw.choice(used)]
        pairs.append((source[:1].upper() + source[1:], target[:1].upper() + target[1:]))
    return pairs


def protected_items(text: str) -> list[str]:
    return sorted(text[begin:end] for begin, end in EVERYTHING.spans(text))


def train_quickly(run: Path, text: dict, pairs: list[tuple[str, str]], steps: int) -> Model:
    settings = quick_settings(
        model={"d_model": 64, "d_ff": 128, "heads": 4, "dropout": 0.0},
        text={"case": "marks", **text},
        batch={"tokens": 1024},
        optimizer={"schedule": "cosine", "rate": 5e-3, "warmup": 30},
        training={"steps": steps, "validate_every": steps, "log_every": 100, "label_smoothing": 0.0},
        search={"beam": 2, "split": False},
    )
    fit(run, ListCorpus(pairs), ListCorpus(pairs[:40]), settings)
    return transduce.load(run)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    run = tmp_path_factory.mktemp("runs") / "marks"
    return train_quickly(run, {"vocabulary": 150, "protect": ALL}, generated(4000, seed=1), steps=400)


def test_what_is_protected_comes_through(model: Model) -> None:
    pairs = generated(200, seed=5)
    found = model.translate([source for source, _ in pairs])
    kept = [protected_items(t.text) == protected_items(target) for t, (_, target) in zip(found, pairs, strict=True)]
    assert sum(kept) / len(kept) >= 0.99
    right = [t.text == target for t, (_, target) in zip(found, pairs, strict=True)]
    assert sum(right) / len(right) >= 0.8  # it has learned where they belong, with the gaps around them
    assert {t.status for t in found} == {"ok"}


def test_what_a_caller_keeps_is_hidden_too(model: Model) -> None:
    """So it comes through whatever it is made of, in CAPITALS too, and where an item is a part of it."""
    for source, keep in (
        ("Die katze sieht 漢字 haus.", "漢字"),
        ("DIE KATZE SIEHT AB-12 HAUS.", r"AB-\d+"),
        ("Die katze sieht AB-12 haus.", r"AB-\d+"),
    ):
        found = model.translate(source, keep=keep)
        assert re.search(keep, found.text), found
        assert found.status == "ok"
    source, target = model.tokenizers.source, model.tokenizers.target
    (sentence,) = sentences_of(["Die katze, 12 haus"], source, 60, False, EVERYTHING)
    terms, _ = Wording(Wishes(keep=r"[^\w\s]+"), target).terms(sentence)
    assert len(terms) == 1  # the comma, and not the mark of the number


@pytest.fixture(scope="module")
def ignorant(model: Model) -> Model:
    """The same with weights that have learned nothing."""
    tokenizers = model.tokenizers
    torch.manual_seed(3)
    weights = new_model(model.settings.model, tokenizers.source.size, tokenizers.target.size).eval()
    return Model(weights, tokenizers, model.settings, "cpu")


@pytest.mark.parametrize(
    "search",
    [
        {"beam": 1},
        {"beam": 3},
        {"beam": 4, "groups": 2},
        {"beam": 3, "mbr": "chrf"},
        {"method": "sample"},
        {"beam": 2, "no_repeat": 2, "max_length": 2},
        {"beam": 2, "engine": "plain"},
    ],
)
def test_whatever_the_model_each_item_comes_once(ignorant: Model, search: dict) -> None:
    sources = [source for source, _ in generated(12, seed=6)]
    for translation in ignorant.with_search(**search).translate(sources, n_best=min(search.get("beam", 2), 2)):
        wanted = protected_items(translation.source)
        for candidate in translation.candidates:
            assert all(candidate.text.count(item) >= wanted.count(item) for item in wanted), candidate.text
            assert not any(mark in candidate.text for mark in MARKS)
            assert sum(token in wanted for token in candidate.tokens) == len(wanted)
        assert translation.status in ("ok", "length")


def test_where_there_is_no_room_the_status_says_so(model: Model) -> None:
    (found,) = model.stream(["Die katze sieht 12 haus."], prefixes=["the dog " * 40])
    assert found.status == "unmet"
    assert "12" not in found.text


def test_ctranslate2_searches_what_it_lost_again(model: Model, ignorant: Model) -> None:
    pytest.importorskip("ctranslate2")
    sources = [source for source, _ in generated(20, seed=7)]
    for one in (model, ignorant):
        for translation in one.with_search(engine="ctranslate2", stop="usual").translate(sources):
            wanted = protected_items(translation.source)
            assert all(translation.text.count(item) >= wanted.count(item) for item in wanted)
    with_ours = [t.text for t in model.with_search(stop="usual").translate(sources)]
    assert [t.text for t in model.with_search(engine="ctranslate2", stop="usual").translate(sources)] == with_ours


def test_prefix_glossary_and_forbidden_words_go_with_it(model: Model) -> None:
    source = "Die katze sieht 3,5% haus."
    (found,) = model.stream([source], prefixes=["3,5% Dog"])
    assert found.text.startswith("3,5% Dog")
    assert found.text.count("3,5%") == 1
    glossary = Glossary.from_lines(["haus\tdoor", "3,5%\tthe House"], "words")  # an entry goes before protection
    found = model.translate(source, glossary=glossary)
    assert "the House" in found.text
    assert "door" in found.text
    assert "3,5%" not in found.text
    assert "Dog" not in model.translate("Die Hund sieht Hund", forbidden=["Dog"]).text
    assert "dog" not in model.translate("Die hund sieht hund", forbidden=["dog"]).text


def test_alignments_count_the_words_of_the_text(model: Model) -> None:
    found = model.translate("Die <b>katze</b> sieht 12 <i>haus</i>", alignment=True, alternatives=2)
    assert max(i for i, _ in found.alignment) < len(found.source.split())
    assert max(j for _, j in found.alignment) < len(found.text.split())
    assert len(found.alternatives) == len(found.candidates[0].tokens) + 1
    assert {"<b>", "</b>", "12"} <= set(found.candidates[0].tokens)


def test_every_sentence_of_a_line_has_its_own_marks(model: Model) -> None:
    line = "Die katze sieht 12 haus.  Die hund kauft 7,5% tür."
    found = model.with_search(split=True).translate(line, n_best=2, alignment=True)
    assert len(found.parts) == 2
    for text in (found.text, *(candidate.text for candidate in found.candidates)):
        assert [item for item in ("12", "7,5%") if text.count(item) == 1] == ["12", "7,5%"]
    assert max(j for _, j in found.alignment) < len(found.text.split())


def test_a_shortlist_leaves_marks_in(model: Model) -> None:
    tokenizers = model.tokenizers
    pairs = [(tokenizers.source.encode([s])[0], tokenizers.target.encode([t])[0]) for s, t in generated(300, seed=8)]
    shortlist = learn(pairs, tokenizers, partners=5, frequent=20)
    for translation in model.translate([source for source, _ in generated(20, seed=9)], shortlist=shortlist):
        wanted = protected_items(translation.source)
        assert all(translation.text.count(item) >= wanted.count(item) for item in wanted)


def test_scores_and_traces_see_marks(model: Model) -> None:
    pairs = generated(30, seed=10)
    right = list(model.score(pairs))
    wrong = list(model.score((source, re.sub(r"\d", "7", target)) for source, target in pairs))
    assert sum(s.log_probability for s in right) > sum(s.log_probability for s in wrong)
    source, target = "Die <b>katze</b> sieht <i>haus</i>", "<i>house</i> the <b>cat</b> sees"
    trace = model.trace(source)
    assert trace.text == source
    assert trace.translation == model.translate(source).text
    assert {"<b>", "</i>"} <= set(trace.source) & set(trace.target)
    given = model.trace(source, target[:1].upper() + target[1:])
    assert given.translation == target
    assert given.merged().source[-1] == "</s>"
    struck = model.trace("Die <s>katze</s> sieht")
    assert "‹s›" in struck.source  # not taken for the special tokens of that name
    assert "‹/s›" in struck.source


# ---- capitals ------------------------------------------------------------------------------------------------------


def test_capitals_in_capitals_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a larger share of them than usual: the text is small."""
    monkeypatch.setattr("transduce.data.tokenize.ALL_CAPS", 0.3)
    nouns, verbs = list(NOUNS.items()), list(VERBS.items())
    every = [
        (f"Die {a} {v} {b} und {c}.", f"The {x} {w} {y} and {z}.")
        for a, x in nouns
        for v, w in verbs
        for b, y in nouns
        for c, z in nouns
    ]
    model = train_quickly(tmp_path / "run", {"vocabulary": 75}, every * 10, steps=400)
    for form in (str, str.upper):
        found = model.translate([form(source) for source, _ in every[::3]])
        right = [t.text == form(target) for t, (_, target) in zip(found, every[::3], strict=True)]
        assert sum(right) / len(right) > 0.9


def test_what_to_translate_into_is_no_name() -> None:
    """`es` stands once on each side, and is still no word that could be hidden."""
    for seed in range(300):
        source, _ = EVERYTHING.hide_pair(">>es<< this is the house", "esta es la casa", Random(seed))
        assert source.text.startswith(">>es<< ")
