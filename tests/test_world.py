"""Text from the world: several texts with weights, formats by file name, packed files, encodings, no folder left behind."""

from __future__ import annotations

import builtins
import gzip
import json
import lzma
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import yaml
from conftest import bundled_pairs, quick_settings
from pyarrow import parquet

from transduce import cli
from transduce.data import encoding, tmx
from transduce.data.build import Part, build_stores
from transduce.data.corpus import Joined, ListCorpus, Stretch, TwoFiles, line_name
from transduce.data.lines import decode_lines, read_lines
from transduce.data.one_file import JsonLines, TabFile
from transduce.data.open import open_corpus, open_files, remarks
from transduce.data.parquet import ParquetFile
from transduce.data.survey import survey
from transduce.data.tmx import TranslationMemory
from transduce.data.tokenize import Job
from transduce.errors import DataError, SettingsError
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.text.tokenizers import Tokenizers
from transduce.training.prepare import open_corpora
from transduce.training.setup import fit

PAIRS = [("eins", "one"), ("zwei drei", "two three"), ("", "four"), ("fünf & <sechs>", "five")]
zstd = pytest.importorskip("backports.zstd", reason="no backports.zstd, with which test texts are packed")
PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd.compress}


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def both(folder: Path, name: str, pairs: list[tuple[str, str]]) -> tuple[str, str]:
    return write(folder / f"{name}.de", [s for s, _ in pairs]), write(folder / f"{name}.en", [t for _, t in pairs])


def sides(corpus: object) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in corpus]  # type: ignore[attr-defined]


class Said:
    """A report that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


# ---- packed files


@pytest.mark.parametrize("ending", PACKERS)
def test_packed_files_are_the_same_text(ending: str, tmp_path: Path) -> None:
    """Also of several pieces one after the other, as such files may be."""
    pieces = ["eins\nzw", "ei\n" + "lang " * 50_000 + "\n"]
    (tmp_path / f"a.de{ending}").write_bytes(b"".join(PACKERS[ending](piece.encode()) for piece in pieces))
    assert list(read_lines(tmp_path / f"a.de{ending}")) == "".join(pieces).splitlines()
    tab = tmp_path / f"a.tsv{ending}"
    tab.write_bytes(PACKERS[ending](b"a\tb\n"))
    assert sides(open_corpus(str(tab), None)) == [("a", "b")]


@pytest.mark.parametrize(("ending", "kind"), [(".gz", "gzip"), (".xz", "xz"), (".zst", "zstd")])
def test_damaged_packed_files(ending: str, kind: str, tmp_path: Path) -> None:
    whole = PACKERS[ending](np.random.default_rng(0).integers(97, 122, 300_000).astype(np.uint8).tobytes())
    for damaged in (whole[: len(whole) // 2], b"plain text, not packed"):
        path = tmp_path / f"a.de{ending}"
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"a.de{ending} is not a complete {kind} file: "):
            list(read_lines(path))


def missing(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    real = builtins.__import__

    def fake(name: str, *rest: object) -> object:
        if name.split(".")[0] in names:
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", fake)


def test_extras_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "compression", "backports", "pyarrow")
    (tmp_path / "a.zst").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"a.zst needs zstd: pip install 'transduce\[zstd\]', or unpack it with: unzstd"
    ):
        list(read_lines(tmp_path / "a.zst"))
    with pytest.raises(DataError, match=r"a.parquet needs pyarrow: pip install 'transduce\[parquet\]'"):
        list(ParquetFile("a.parquet"))


# ---- columns


def test_chosen_columns(tmp_path: Path) -> None:
    tab = write(tmp_path / "a.tsv", ["7\teins\tx\tone", "8\tzwei\ty\ttwo"])
    jsonl = write(
        tmp_path / "a.jsonl", [json.dumps({"de": "eins", "en": "one"}), json.dumps({"en": "two", "de": "zwei"})]
    )
    expected = [("eins", "one"), ("zwei", "two")]
    assert sides(open_corpus(tab, None, columns=("2", "4"))) == expected
    assert sides(open_corpus(tab, None, columns=("4", "2"))) == [(t, s) for s, t in expected]
    assert sides(open_corpus(jsonl, None, columns=("de", "en"))) == expected
    assert list(remarks(Joined([TabFile(tab), TabFile(tab, ("2", "4"))]))) == [
        f"{tab}: columns 3 to 4 are ignored, see --columns"
    ]
    three = write(tmp_path / "b.tsv", ["a\tb\tc"])
    assert list(remarks(TabFile(three))) == [f"{three}: column 3 is ignored, see --columns"]
    assert list(remarks(TabFile(write(tmp_path / "c.tsv", ["a\tb"])))) == []


def test_complaints_about_columns(tmp_path: Path) -> None:
    tab = write(tmp_path / "a.tsv", ["a\tb"])
    two = both(tmp_path, "a", [("a", "b")])
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: TabFile(tab, ("de", "en")), "--columns de en: the columns of .*a.tsv are numbers from 1, such as"),
        (lambda: TabFile(tab, ("0", "1")), "--columns 0 1: the columns of"),
        (lambda: list(TabFile(tab, ("1", "3"))), "a.tsv, line 1: it has 2 columns, and --columns names number 3"),
        (lambda: list(JsonLines(tab, ("de", "en"))), r'line 1: expected {"de": "...", "en": "..."}'),
        (lambda: open_files(two[:1], two[1:], columns=("1", "2")), "--columns 1 2 has no effect: no .tsv"),
        (lambda: open_files(two[:1], two[1:], languages=("a", "b")), "--languages a b has no effect: no .tmx"),
        (lambda: compose({"data": {"columns": "1"}}), "data.columns=1 must be two, source and target, such as 1,3"),
        (lambda: compose({"data": {"languages": "a,b,c"}}), "data.languages=a,b,c must be two"),
    ]
    for action, message in cases:
        with pytest.raises((DataError, SettingsError), match=message):
            action()


# ---- .tmx


def memory(body: str, head: str = "", encoding: str = "UTF-8") -> bytes:
    return f'<?xml version="1.0" encoding="{encoding}"?>{head}<tmx version="1.4"><header/><body>{body}</body></tmx>'.encode(
        encoding
    )


def unit(**texts: str) -> str:
    return "<tu>" + "".join(f'<tuv xml:lang="{k}"><seg>{v}</seg></tuv>' for k, v in texts.items()) + "</tu>"


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


@pytest.mark.parametrize("coding", ["UTF-8", "UTF-16", "ISO-8859-1"])
def test_translation_memories(coding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tmx"
    path.write_bytes(memory("".join(unit(de=escaped(s), en=escaped(t)) for s, t in PAIRS), encoding=coding))
    assert sides(open_corpus(str(path), None)) == PAIRS
    assert sides(TranslationMemory(str(path), ("EN", "de"))) == [(t, s) for s, t in PAIRS]
    assert [pair.line for pair in TranslationMemory(str(path))] == [1, 2, 3, 4]
    assert list(remarks(TranslationMemory(str(path)))) == [f"{path}: from de to en; the other way: --languages en de"]
    assert list(remarks(TranslationMemory(str(path), ("en", "de")))) == []
    monkeypatch.setattr(tmx, "PIECE", 7)  # a piece may end anywhere
    assert sides(TranslationMemory(str(path))) == PAIRS


def test_what_stands_in_segments(tmp_path: Path) -> None:
    """Codes of formatting are no text; what is highlighted is; &nbsp; is what it is in HTML; the first of two counts."""
    path = tmp_path / "a.tmx.gz"
    body = (
        '<tu><tuv lang="de-AT"><seg><bpt i="1">&lt;b&gt;</bpt>ein <hi>hund</hi>&nbsp;<ph>\\n</ph>da</seg></tuv>'
        '<tuv lang="en_US"><prop>x</prop><seg>a\ndog</seg></tuv><tuv lang="en_US"><seg>the dog</seg></tuv></tu>'
        '<tu><tuv lang="de-AT"><seg>allein</seg></tuv></tu>'
    )
    path.write_bytes(gzip.compress(memory(body, '<!DOCTYPE tmx SYSTEM "tmx14.dtd">')))
    assert sides(TranslationMemory(str(path), ("de", "en"))) == [("ein hund\xa0da", "a\ndog"), ("allein", "")]


def test_complaints_about_translation_memories(tmp_path: Path) -> None:
    laughs = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    outside = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    contents = {
        "three": memory(unit(de="a", en="b") + unit(de="a", fr="c")),
        "none": memory(unit(de="a", en="b")),
        "laughs": memory(unit(de="&b;", en="x"), laughs),
        "outside": memory(unit(de="&a;", en="x"), outside),
        "cut": memory(unit(de="a", en="b"))[:-9],
        "html": b"<html></html>",
        "long": memory(unit(de="x" * 1_000_001, en="b")),
        "tag": memory(f'<tu x="{"y" * 1_200_000}"></tu>'),
        "deep": memory("<a>" * 200 + "</a>" * 200),
        "coding": b'<?xml version="1.0" encoding="nothing"?><tmx/>',
    }
    messages = {
        "three": "three.tmx has the languages de, en, fr; choose two, such as --languages de en",
        "none": "none.tmx has no text in fr; it has de, en",
        "laughs": r"laughs.tmx, line 1: this is no .tmx file that can be read: it declares an entity \(a\)",
        "outside": r"it declares an entity \(a\), which is not safe to read",
        "cut": "cut.tmx, line 1: this is no .tmx file that can be read: ",
        "html": "it begins with <html>, not <tmx>",
        "long": "a segment is longer than 1,000,000 characters",
        "tag": "a tag is longer than 1,000,000 bytes",
        "deep": "elements are nested too deeply",
        "coding": "coding.tmx, line 1: this is no .tmx",
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.tmx").write_bytes(content)
        with pytest.raises(DataError, match=messages[name]):
            list(TranslationMemory(str(tmp_path / f"{name}.tmx"), ("de", "fr") if name == "none" else None))


# ---- .parquet


def test_parquet(tmp_path: Path) -> None:
    source, target = [s or None for s, _ in PAIRS], [t for _, t in PAIRS]
    path = str(tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"target": target, "id": [1, 2, 3, 4], "source": source}), path)
    assert sides(open_corpus(path, None)) == PAIRS
    assert [pair.line for pair in open_corpus(path, None)] == [1, 2, 3, 4]
    nested = str(tmp_path / "b.parquet")
    parquet.write_table(pyarrow.table({"translation": [{"de": s, "en": t} for s, t in PAIRS]}), nested)
    assert sides(open_corpus(nested, None)) == PAIRS  # the only two that hold text
    assert sides(open_corpus(nested, None, columns=("translation.en", "translation.de"))) == [(t, s) for s, t in PAIRS]


def test_parquet_that_does_not_say_it_is_text(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    table = {"source": ["ähm".encode(), b"b"], "target": [b"a", b"c"]}
    parquet.write_table(pyarrow.table(table, pyarrow.schema({name: pyarrow.binary() for name in table})), path)
    assert sides(open_corpus(path, None)) == [("ähm", "a"), ("b", "c")]
    table["target"][1] = b"\xff"
    parquet.write_table(pyarrow.table(table, pyarrow.schema({name: pyarrow.binary() for name in table})), path)
    with pytest.raises(DataError, match="a.parquet, row 2: a chosen column holds bytes that are no UTF-8 text"):
        list(open_corpus(path, None))


def test_complaints_about_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"de": ["a"], "en": ["b"], "fr": ["c"], "id": [1]}), path)
    lists, numbers = tmp_path / "lists.parquet", tmp_path / "numbers.parquet"
    parquet.write_table(pyarrow.table({"source": [["a"]], "target": [{"x": ["b"]}]}), lists)
    money = pyarrow.array([Decimal("1.5")], pyarrow.decimal128(30, 2))
    parquet.write_table(pyarrow.table({"source": money, "target": ["b"]}), numbers, store_decimal_as_integer=False)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(path.read_bytes()[:-10])
    cases = [
        (ParquetFile(str(path)), "a.parquet has not two columns of text; choose two with --columns from: de, en, fr"),
        (ParquetFile(str(path), ("de", "id")), "a.parquet has no text in de and id; choose two with --columns from"),
        (ParquetFile(str(lists)), "lists.parquet has not two columns of text; .* from: none that hold text"),
        (ParquetFile(str(lists), ("source.list.element", "target.x.list.element")), "lists.parquet has no text in"),
        (ParquetFile(str(numbers)), "numbers.parquet has not two columns of text; .* from: target"),
        (ParquetFile(str(cut)), "cut.parquet is not a complete Parquet file: "),
        (ParquetFile(str(tmp_path / "none.parquet")), "there is no file .*none.parquet"),
    ]
    for corpus, message in cases:
        with pytest.raises(DataError, match=message):
            list(corpus)
    for name in ("a.parquet", "a.tmx.gz"):
        with pytest.raises(DataError, match="a.* holds both sides, and needs no other file; leave --target out"):
            open_corpus(str(tmp_path / name), "b.en")


# ---- encodings

SENTENCES = {
    "GB18030": "他在公园里看见了一只狗。今天的天气很好，我们去散步吧。",
    "BIG5": "他在公園裡看見了一隻狗。今天的天氣很好，我們去散步吧。",
    "CP932": "私は公園で犬を見ました。今日はいい天気です。",
    "CP1252": "der müde hund schläft schön und träumt von grünen wiesen",
    "CP1251": "собака спит в доме и видит сны",
    "UTF-16": "der müde hund",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_encodings_are_guessed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.de"
    path.write_bytes("".join(f"{SENTENCES[name]} {n}\n" for n in range(9)).encode(name))
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}, line 1: not valid UTF-8 (byte ")
    convert = f"iconv -f {name} -t UTF-8 {path} > {tmp_path / 'a.utf8.de'}"
    assert str(caught.value).endswith(f"of the line); it may be {name}; convert it: {convert}")


def test_a_way_out_for_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert encoding.iconv("standard input", "CP1252") == "iconv -f CP1252 -t UTF-8"
    for packed, command in (("a b.zh.gz", "gzip"), ("a b.zh.xz", "xz"), ("a b.zh.zst", "zstd")):
        assert encoding.iconv(packed, "BIG5") == f"{command} -dc '{packed}' | iconv -f BIG5 -t UTF-8 > 'a b.utf8.zh'"
    mixed = [*("grüße".encode() for _ in range(5)), b"gr\xfc\xdfe"]
    assert encoding.way_out("a", mixed).startswith("most lines are UTF-8, so mend or delete this one")
    monkeypatch.setattr(encoding, "guess", lambda text: None)
    assert encoding.way_out("a", [b"\xff"]) == "nor could its encoding be guessed; convert it to UTF-8"
    monkeypatch.undo()
    assert encoding.guess("zwei".encode("utf-32")) == "UTF-32"


def test_what_cannot_be_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    import charset_normalizer

    class Nothing:
        def best(self) -> None:
            return None

    monkeypatch.setattr(charset_normalizer, "from_bytes", lambda text, **_: Nothing())
    assert encoding.guess(b"\xe4") is None


def test_a_few_letters_with_accents_are_not_korean() -> None:
    assert encoding.guess("Grüß Gott".encode("latin1")) == "CP1252"
    assert encoding.guess("Привет".encode("cp1251")) != "CP1252"


def test_a_text_of_two_encodings_is_not_converted_as_a_whole() -> None:
    """The half that is UTF-8 would be damaged."""
    foreign = ["heiße".encode("latin1")] * 5
    assert "iconv" in encoding.way_out("a.de", foreign)
    assert "only a part of the text may be CP1252" in encoding.way_out("a.de", foreign, before=100)


def test_standard_input_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("ich heiße müller und bin müde\n".encode("latin1") * 3)
    with (tmp_path / "a").open("rb") as stream, pytest.raises(DataError, match="iconv -f CP1252 -t UTF-8$"):
        list(decode_lines(stream, "standard input"))


# ---- several texts


def test_several_texts_are_one(tmp_path: Path) -> None:
    first, second = both(tmp_path, "a", PAIRS), both(tmp_path, "b", PAIRS[::-1])
    tab = write(tmp_path / "c.tsv", ["sieben\tseven"])
    corpus = open_files((first[0], tab, second[0]), (first[1], second[1]))  # a .tsv needs no target
    assert sides(corpus) == [*PAIRS, ("sieben", "seven"), *PAIRS[::-1]]
    surveyed = survey(corpus)
    assert [stretch.lines for stretch in surveyed.stretches] == [4, 1, 4]
    assert line_name(surveyed.stretches, 5) == f"{tab}, line 1"
    assert line_name(surveyed.stretches, 7) == f"{second[0]} and {second[1]}, line 2"
    assert line_name([Stretch("a", 4)], 3) == "line 3"
    assert surveyed.digest == survey(ListCorpus(sides(corpus))).digest


def test_as_many_targets_as_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--source", "a.de", "--source", "b.de", "--target", "a.en"]
    for command in (["train", str(tmp_path / "x")], ["doctor"]):
        for name in ("a.de", "b.de", "a.en"):
            write(tmp_path / name, ["x"])
        given = [str(tmp_path / word) if word[0] != "-" else word for word in words]
        assert cli.main([*command, *given]) == 2
        assert "--source names 2 files and --target 1: give as many, in the same order" in _said(capsys)
    assert cli.main(["train", str(tmp_path / "x"), "--source", "a", "--weight", "1", "--weight", "2"]) == 2
    assert "data.weight=1,2 must have as many numbers as data.source has files, 1" in _said(capsys)
    assert cli.main(["train", str(tmp_path / "x"), "--source", "a", "--weight", "0"]) == 2
    assert "data.weight=0 must be at least 1" in _said(capsys)
    with pytest.raises(SettingsError, match="--valid-source names 2 files and --valid-target 1"):
        valid = {"valid_source": ["a", "b"], "valid_target": "c"}
        open_corpora(compose({"data": {"source": "a.tsv", **valid}}), Said())  # type: ignore[arg-type]


def _said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_lists_in_settings(tmp_path: Path) -> None:
    """One file stays plain text; several are a list; a flag's text has commas, but a file's name may have them too."""
    settings = compose({"data": {"source": ["a", "b"], "target": ["c"], "weight": "1,3", "columns": "1,3"}})
    assert settings.data.source == ("a", "b")
    assert settings.data.target == "c"
    assert settings.data.weight == (1, 3)
    assert settings.data.columns == ("1", "3")
    written = config_file.write(settings)
    assert yaml.safe_load(written)["data"]["source"] == ["a", "b"]
    assert yaml.safe_load(written)["data"]["target"] == "c"
    (tmp_path / "config.yaml").write_text(written)
    assert config_file.read_whole(tmp_path / "config.yaml") == settings
    assert compose({"data": {"source": "a,b.de"}}).data.source == "a,b.de"
    for layer, message in (
        ({"weight": "1,two"}, "data.weight=1,two must be a list of whole numbers or none"),
        ({"source": []}, r"data.source=\[\] must be text or a list of texts or none"),
        ({"columns": [["a"], "b"]}, "data.columns=.* must be a list of texts or none"),
    ):
        with pytest.raises(SettingsError, match=message):
            compose({"data": layer})


@pytest.mark.parametrize("variants", [1, 3])
def test_weights_repeat_pairs_and_not_tokens(variants: int, tmp_path: Path) -> None:
    """Also where duplicates are dropped, and some lines set aside."""
    from transduce.data.tokenize import Sampling

    pairs = list(dict.fromkeys(bundled_pairs(60, seed=5)))[:50]
    settings = quick_settings(text={"vocabulary": 200}, data={"drop_duplicates": True})
    tokenizers = Tokenizers.train(pairs, settings.text)
    corpus = Joined([ListCorpus(pairs[:20]), ListCorpus([*pairs[20:], pairs[3]])])
    sampling = Sampling(0.1, variants, 1) if variants > 1 else None
    job, digest = Job(tokenizers, settings.data, sampling), survey(corpus).digest
    plain, weighted = (
        build_stores(corpus, digest, [Part(job, lambda line: line != 7, weights=weights)], tmp_path)[0]
        for weights in ((), ((20, 1), (31, 3)))
    )
    assert plain.folder != weighted.folder
    assert plain.counts == weighted.counts
    assert plain.counts.dropped["duplicate"] == 1
    assert (plain.folder / "source.tokens").read_bytes() == (weighted.folder / "source.tokens").read_bytes()
    lines = weighted.lines(weighted.places(np.arange(len(weighted)), 0)).tolist()
    assert {line: lines.count(line) for line in set(lines)} == {n: 1 if n <= 20 else 3 for n in range(1, 51) if n != 7}


def test_training_on_several_texts_and_going_on(tmp_path: Path) -> None:
    """What is set aside is nobody's training text, the run goes on from its own settings, and says what it does."""
    pairs = bundled_pairs(240, seed=6)
    first, second = both(tmp_path, "a", pairs[:200]), both(tmp_path, "b", pairs[200:])
    data = {"source": [first[0], second[0]], "target": [first[1], second[1]], "weight": [1, 2], "max_tokens": 60}
    run, report = tmp_path / "run", Said()
    settings = quick_settings(data=data, training={"steps": 4, "validate_every": 2})
    fit(run, *open_corpora(settings, report), settings)  # type: ignore[arg-type]
    stored = config_file.read_whole(run / "config.yaml")
    assert stored.data == settings.data
    longer = compose({"training": {"steps": 6}}, base=stored)
    assert fit(run, *open_corpora(longer, report), longer).step == 6  # type: ignore[arg-type]
    other = compose({"data": {"weight": "2,1"}, "training": {"steps": 8}}, base=stored)
    with pytest.raises(DataError, match="was trained on other text, or with other filters"):
        fit(run, *open_corpora(other, report), other)  # type: ignore[arg-type]


def test_columns_nobody_chose_are_named_once(tmp_path: Path) -> None:
    tab, report = write(tmp_path / "a.tsv", ["a\tb\tc"] * 3), Said()
    open_corpora(compose({"data": {"source": tab}}), report)  # type: ignore[arg-type]
    assert report.said == [f"{tab}: column 3 is ignored, see --columns"]


# ---- nothing is left behind


def test_a_command_that_fails_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = both(tmp_path, "few", [("", "")] * 3)
    mine = tmp_path / "mine"
    mine.mkdir()
    for run in (tmp_path / "runs/deep/x", mine / "x", mine):
        for source, target in (("nosuch", "neither"), few):  # the second has no words for a vocabulary
            assert cli.main(["train", str(run), "--source", source, "--target", target]) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"few.de", "few.en", "mine"}
    assert list(mine.iterdir()) == []  # and what was there stays


def test_a_folder_with_something_in_it_stays(tmp_path: Path) -> None:
    from transduce.files.lock import locked

    with pytest.raises(KeyError), locked(tmp_path / "runs" / "x"):
        (tmp_path / "runs" / "note").write_text("mine")
        raise KeyError
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["note"]


def test_two_files_of_other_formats_are_read_as_they_are(tmp_path: Path) -> None:
    """A .tsv beside a target is text, as ever."""
    tab, text = write(tmp_path / "a.tsv", ["a\tb"]), write(tmp_path / "a.en", ["c"])
    assert isinstance(open_files((tab,), (text,)), TwoFiles)


def test_skipped_lines_are_named_by_their_file() -> None:
    from types import SimpleNamespace

    from transduce.training.setup import Setup

    store = SimpleNamespace(lines=lambda places: places + 1)
    for stretches, expected in (
        ([Stretch("a", 3)], [2, 3]),
        ([Stretch("a", 2), Stretch("b", 3)], ["a, line 2", "b, line 1"]),
    ):
        setup = SimpleNamespace(text=SimpleNamespace(training=store, stretches=stretches))
        assert Setup._line_names(setup, np.array([2, 1, 1])) == expected  # type: ignore[arg-type]
