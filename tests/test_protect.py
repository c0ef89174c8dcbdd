"""What passes through unchanged, and case as marks: text comes back to the letter, and a model moves it to its place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from conftest import bundled_pairs, quick_settings

import transduce
from transduce.data.build import Part, _folder_name
from transduce.data.corpus import ListCorpus, Pair
from transduce.data.tokenize import Chunk, Job, Sampling, tokenize
from transduce.decoding.sentences import sentences_of
from transduce.errors import SettingsError
from transduce.inspect.words import joined, words
from transduce.model import Model
from transduce.settings.compose import compose
from transduce.settings.sections import PROTECTED, DataSettings, TextSettings
from transduce.text import case, protect
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
        names.update(_folder_name("digest", part) for part in parts)
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "marks"
    settings = quick_settings(
        model={"layers": 1, "d_model": 64, "d_ff": 128, "heads": 4, "dropout": 0.0},
        text={"vocabulary": 150, "protect": ALL, "case": "marks"},
        batch={"tokens": 1024},
        optimizer={"schedule": "cosine", "rate": 5e-3, "warmup": 30},
        training={"steps": 400, "validate_every": 200, "log_every": 100, "label_smoothing": 0.0},
        search={"beam": 2, "split": False},
    )
    fit(run, ListCorpus(generated(4000, seed=1)), ListCorpus(generated(60, seed=2)), settings)
    return run


@pytest.fixture(scope="module")
def model(trained: Path) -> Model:
    return transduce.load(trained)
