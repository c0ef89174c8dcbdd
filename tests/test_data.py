"""Reading, filtering, storing, batching: nothing lost, nothing mixed, everything counted."""

from __future__ import annotations

import copy
import gzip
import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import bundled_pairs, quick_settings

from transduce.core.layout import lay_out
from transduce.core.loss import cross_entropy
from transduce.core.special import BEGIN, END, MADE, PAD, UNKNOWN
from transduce.data import build, pool
from transduce.data.batches import Batch, Batches
from transduce.data.build import Part, build_store, build_stores
from transduce.data.comma import CommaFile
from transduce.data.corpus import Joined, ListCorpus, Pair, TwoFiles, suspicious_line
from transduce.data.lines import read_lines
from transduce.data.one_file import JsonLines, TabFile
from transduce.data.open import open_corpus, remarks
from transduce.data.survey import HoldOut, survey
from transduce.data.tokenize import Chunk, Job, Sampling
from transduce.errors import DataError
from transduce.settings.sections import BatchSettings, DataSettings, TextSettings
from transduce.text.tokenizers import Tokenizers
from transduce.training.validate import guess_loss

PAIRS = [("eins", "one"), ("zwei drei", "two three"), ("", "four"), ("fünf", "fünf")]


def write(path: Path, lines: list[str]) -> str:
    content = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


# ---- reading


def test_four_kinds_of_files_give_the_same_pairs(tmp_path: Path) -> None:
    source, target = [s for s, _ in PAIRS], [t for _, t in PAIRS]
    json_lines = [json.dumps({"source": s, "target": t}) for s, t in PAIRS]
    for gz in ("", ".gz"):
        two = (write(tmp_path / f"a.de{gz}", source), write(tmp_path / f"a.en{gz}", target))
        tab = write(tmp_path / f"a.tsv{gz}", [f"{s}\t{t}\tmore" for s, t in PAIRS])
        jsonl = write(tmp_path / f"a.jsonl{gz}", json_lines)
        for found in (open_corpus(*two), open_corpus(tab, None), open_corpus(jsonl, None)):
            assert [(pair.source, pair.target) for pair in found] == PAIRS
            assert [pair.line for pair in found] == [1, 2, 3, 4]  # more than once
            assert str(tmp_path) in found.name


def test_a_line_ends_at_a_line_feed_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("\ufeffa\u2028b\x0cc\r\n\n\ufeffx\ry".encode())
    assert list(read_lines(tmp_path / "a")) == ["a\u2028b\x0cc", "", "\ufeffx\ry"]


def test_unequal_files_name_counts_and_place(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).integers(5, 80, 200)
    source = ["x" * n for n in lengths]
    target = ["y" * (n + n // 10) for n in lengths]
    del target[120]
    found = TwoFiles(write(tmp_path / "a.de", source), write(tmp_path / "a.en", target))
    with pytest.raises(DataError) as caught:
        list(found)
    message = str(caught.value)
    assert "a.de has 200 lines but" in message
    assert "a.en has 199" in message
    line = int(message.rsplit("near line ", 1)[1])
    assert abs(line - 121) <= 2
    assert suspicious_line(np.array([], int), np.array([3])) == (1, False)
    assert suspicious_line(np.array([3, 9, 30]), np.array([3, 9, 30, 4]))[0] == 4
    many = np.random.default_rng(1).integers(5, 80, 20_000)
    line, sure = suspicious_line(many, np.delete(many, 19_600))  # one in the last lines of many
    assert sure
    assert abs(line - 19_601) <= 2
    noise = np.sort(many) + np.random.default_rng(2).integers(0, 3, 20_000)  # sorted by length: nothing can be told
    assert not suspicious_line(np.sort(many)[:-10], noise)[1]


def test_a_spreadsheet_has_its_columns_by_number_or_by_name(tmp_path: Path) -> None:
    name = write(
        tmp_path / "a.csv", ["id,de,en", '1,"Brot, bitte","Bread, ""please"""', "", '2,"zwei', 'Zeilen",two lines']
    )
    pairs = [("Brot, bitte", 'Bread, "please"'), ("zwei Zeilen", "two lines")]
    by_name, by_number = open_corpus(name, None, columns=("de", "en")), open_corpus(name, None, columns=("2", "3"))
    assert [(pair.source, pair.target) for pair in by_name] == pairs
    assert [pair.line for pair in by_name] == [1, 2]  # without a gap, whatever lies between
    assert [(pair.source, pair.target) for pair in by_number] == [("de", "en"), *pairs]
    assert not list(remarks(by_name))
    assert "a.csv: the first row is a pair; if it has names: --columns de en" in next(remarks(by_number))
    plain = open_corpus(write(tmp_path / "b.csv", ["Brot;bread", "zwei, drei;two, three"]), None)
    assert [(pair.source, pair.target) for pair in plain] == [("Brot", "bread"), ("zwei, drei", "two, three")]
    assert "b.csv: its two columns, and the first row is a pair; if it has names: --columns" in next(remarks(plain))
    named = open_corpus(write(tmp_path / "c.csv", ["target,source", "bread,Brot"]), None)
    assert [(pair.source, pair.target) for pair in named] == [("Brot", "bread")]
    assert not list(open_corpus(write(tmp_path / "empty.csv", []), None))
    assert not list(remarks(open_corpus(write(tmp_path / "empty.csv", [""]), None)))


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        (["Brot, bitte;bread", "Tee, heiß;tea"], [("Brot, bitte", "bread"), ("Tee, heiß", "tea")]),  # two each way
        (["Ja, gut, danke;yes", "nein;no"], [("Ja, gut, danke", "yes"), ("nein", "no")]),
        (["Brot\tbread, butter", "a;b\tc"], [("Brot", "bread, butter"), ("a;b", "c")]),
        (["sep=|", "Brot, ja;gut|bread"], [("Brot, ja;gut", "bread")]),
        (["", '"id', 'x",source,target', "1,Brot,bread"], [("Brot", "bread")]),  # the first row is not the first line
        (["a,b", '"c', "", 'd",e'], [("a", "b"), ("c  d", "e")]),
        (["a;b", ";", "", "c;"], [("a", "b"), ("", ""), ("c", "")]),  # empty sides are counted, not lost
    ],
)
def test_what_stands_between_columns_is_found(tmp_path: Path, lines: list[str], pairs: list[tuple[str, str]]) -> None:
    found = list(open_corpus(write(tmp_path / "a.csv", lines), None))
    assert [(pair.source, pair.target) for pair in found] == pairs
    assert [pair.line for pair in found] == list(range(1, len(pairs) + 1))


def test_a_spreadsheet_holds_out_what_the_survey_saw(tmp_path: Path) -> None:
    """Pairs are numbered without a gap, names and empty lines or not."""
    rows = [f"quelle {i},target {i}" for i in range(300)]
    corpus = open_corpus(write(tmp_path / "a.csv", ["source,target", "", *rows]), None)
    plain = open_corpus(write(tmp_path / "a.tsv", [row.replace(",", "\t") for row in rows]), None)
    assert list(corpus) == list(plain)


def test_complaints_about_files(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"ok\nna\xefve\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"hello\n" * 99)[:-20])
    (tmp_path / "not.gz").write_bytes(b"plain text")
    write(tmp_path / "a.tsv", ["a\tb", "c d"])
    write(tmp_path / "a.jsonl", ['{"source": "a", "target": "b"}', '{"source": "a"}'])
    write(tmp_path / "b.jsonl", ['{"source": "a", "target": 3}'])
    write(tmp_path / "deep.jsonl", ["[" * 100_000])
    write(tmp_path / "a.csv", ["de,en", "Brot", 'Tee,"tea'])
    os.mkfifo(tmp_path / "pipe")
    cases = [
        (
            lambda: list(read_lines(tmp_path / "bad")),
            r"bad, line 2: not valid UTF-8 \(byte 3 of the line\); it may be ",
        ),
        (lambda: list(read_lines(tmp_path / "none")), "there is no file .*none"),
        (lambda: list(read_lines(tmp_path)), "is a folder, not a text file"),
        (lambda: list(read_lines(write(tmp_path / "a.XLSX", ["PK"]))), r"a.XLSX is a spreadsheet; save it as .csv"),
        (lambda: list(read_lines(tmp_path / "cut.gz")), "cut.gz is not a complete gzip file"),
        (lambda: list(read_lines(tmp_path / "not.gz")), "not.gz is not a complete gzip file"),
        (
            lambda: list(TabFile(str(tmp_path / "a.tsv"))),
            "a.tsv, line 2: no tab between source and target; without such lines: awk",
        ),
        (lambda: list(CommaFile(str(tmp_path / "a.csv"))), "a.csv, line 2: it has 1 columns, and number 2 is wanted"),
        (
            lambda: list(CommaFile(write(tmp_path / "c.csv", ["a,b", "c,d,e"]))),
            "line 2: it has 3 columns, and the first",
        ),
        (
            lambda: list(CommaFile(write(tmp_path / "d.csv", ["a,b\rc,d"]))),
            "line 1: it has line ends of old Macintoshes",
        ),
        (
            lambda: list(CommaFile(write(tmp_path / "e.csv", [f"{'a' * 140_000},b"]))),
            "a text of more than 131,072 charac",
        ),
        (
            lambda: list(CommaFile(str(tmp_path / "a.csv"), ("de", "fr"))),
            "line 1: no column is called fr; there are: de, en",
        ),
        (
            lambda: list(CommaFile(write(tmp_path / "b.csv", ["a,b", 'c,"d']))),
            "b.csv, line 2: a quote is opened that is never closed",
        ),
        (
            lambda: list(CommaFile(write(tmp_path / "i.csv", ["source;target", "", "a"]))),
            "i.csv, line 3: it has 1 columns",
        ),
        (
            lambda: list(CommaFile(write(tmp_path / "f.csv", ["id,de,en", "1,a,b"]))),
            r"there are 3 columns: choose two .* 2 \(d",
        ),
        (
            lambda: list(CommaFile(write(tmp_path / "g.csv", ["a;b", '"c;d', *["e;f"] * 9, 'g;h";i']))),
            "g.csv, line 2: a text of 11 lines with a ';' in most: its quote is probably not closed",
        ),
        (lambda: list(CommaFile(write(tmp_path / "h.csv", ["a;b", 'c;"d" e']))), "line 2: text stands behind a quote"),
        (lambda: list(JsonLines(str(tmp_path / "a.jsonl"))), 'a.jsonl, line 2: expected {"source": "...", "target"'),
        (lambda: list(JsonLines(str(tmp_path / "b.jsonl"))), "b.jsonl, line 1: source and target must be strings"),
        (lambda: list(JsonLines(str(tmp_path / "deep.jsonl"))), "deep.jsonl, line 1: expected"),
        (lambda: open_corpus(str(tmp_path / "pipe"), "x"), "pipe is a pipe, which can be read only once"),
        (lambda: open_corpus("a.de", None), r"a.de holds one side only: give the other too \(--target, or --reference"),
        (lambda: survey(ListCorpus([])), "there are no sentence pairs in the given pairs"),
    ]
    for action, message in cases:
        with pytest.raises(DataError, match=message):
            action()


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, mode: str = "r") -> None:
        raise PermissionError(13, "Permission denied")

    write(tmp_path / "a", ["x"])
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="cannot read .*a: Permission denied"):
        list(read_lines(tmp_path / "a"))


def test_holding_out_takes_every_pair_once() -> None:
    pairs = [(str(i), str(i)) for i in range(1000)]
    hold_out = survey(ListCorpus(pairs)).hold_out(30)
    train, valid = ([line for line in range(1, 1001) if takes(line)] for takes in (hold_out.leaves, hold_out.takes))
    assert sorted([*train, *valid]) == list(range(1, 1001))
    assert 28 <= len(valid) <= 30
    assert survey(ListCorpus(pairs[:10])).hold_out(30) == HoldOut(None)


@pytest.mark.parametrize("period", [2, 3, 4, 5, 10, 20])
def test_what_is_held_out_knows_no_period(period: int) -> None:
    """Of lines that take turns, as when two files were interleaved, each kind has its share."""
    hold_out = survey(ListCorpus([(str(i), str(i)) for i in range(20_000)])).hold_out(500)
    held = hold_out.lines(20_000)
    assert held == [line for line in range(1, 20_001) if hold_out.takes(line)]
    kinds = [sum(line % period == kind for line in held) for kind in range(period)]
    assert sum(kinds) == 500
    assert kinds == pytest.approx([500 / period] * period, abs=4 * (500 / period) ** 0.5)  # as if they were thrown


def test_what_a_model_has_made_is_not_held_out() -> None:
    pairs = [(f"{MADE} {i}" if i % 3 else str(i), str(i)) for i in range(1500)]
    surveyed = survey(ListCorpus(pairs))
    hold_out = surveyed.hold_out(25)
    held = hold_out.lines(1500)
    assert held == [line for line in range(1, 1501) if hold_out.takes(line)]
    assert 18 <= len(held) <= 32
    assert not any(pairs[line - 1][0].startswith(MADE) for line in held)
    assert all(hold_out.leaves(line) for line in range(1, 1501) if line not in held)


def test_nothing_is_held_out_of_a_file_with_a_tag() -> None:
    """Whatever the tag is, if not every file has one; a mark of a language is none, nor what few lines begin with."""
    real = ListCorpus([(f"s{i} x", f"t{i}") for i in range(400)])

    def held(*parts: ListCorpus) -> list[int]:
        surveyed = survey(Joined(parts))
        lines = surveyed.hold_out(30).lines(surveyed.pairs)
        assert 20 <= len(lines) <= 40
        return lines

    def tagged(tag: str, count: int = 600) -> ListCorpus:
        return ListCorpus([(f"{tag} m{i} x" if i % 7 else "", f"n{i}") for i in range(count)])

    made = tagged("<BT>")
    assert max(held(real, made)) <= 400 < min(held(made, real)) - 200
    assert max(held(real, tagged("of a model"))) <= 400
    for also_real in (tagged(">>fra<<"), ListCorpus([*made.pairs, ("s x", "t")])):
        assert max(held(real, also_real)) > 400
    assert max(held(real, *[tagged(f"<{i}>", 90) for i in range(3)])) > 400
    assert min(held(tagged("<A>"), made)) < 600 < max(held(tagged("<A>"), made))
    surveyed = survey(Joined([real, made]))
    assert surveyed.first(1).hold_out(30) == survey(real).hold_out(30)
    assert [told.tags for told in surveyed.as_told()] == [["", "<BT>"], ["", ""]]
    assert len([*survey(real).as_told()]) == 1
    assert survey(Joined([real, made]), labels=True).tags == ["", ""]


def test_what_is_held_out_is_not_learned_from_a_copy() -> None:
    """As in distillation, where a source stands twice, with the teacher's translation and the real one."""
    once = [(f"s{i}", f"t{i}") for i in range(995)]
    both = [*once, *once]
    hold_out = survey(ListCorpus([*once, *((source, target * 2) for source, target in once)])).hold_out(30)
    lines = range(1, len(both) + 1)
    held, learned = (
        {both[line - 1][0] for line in lines if takes(line)} for takes in (hold_out.takes, hold_out.leaves)
    )
    assert 28 <= len(hold_out.copies) == len(held) <= 30
    assert len(learned) == 995 - len(held)
    repeats = survey(ListCorpus(once[:7] * 130))
    assert not repeats.hold_out(30).copies  # nothing would be left
    assert len(repeats.copies_of(repeats.hold_out(30))) > 800


# ---- storing


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return Tokenizers.train(bundled_pairs(), TextSettings(vocabulary=300, coverage=1.0))


@pytest.mark.parametrize("layout", ["buckets", "packed"])
def test_what_the_vocabulary_cannot_write_is_not_counted(tmp_path: Path, layout: str) -> None:
    """Neither in the tokens that a loss is divided by, nor in what a guess by frequency is worth."""
    pairs = bundled_pairs(200)
    few = Tokenizers.train(pairs, TextSettings(tokenizer="words", vocabulary=40))
    store = build_store(ListCorpus(pairs), few, DataSettings(), tmp_path)
    lists = [[i for i in ids if i != UNKNOWN] + [END] for ids in few.target.encode([target for _, target in pairs])]
    assert store.learned_tokens.tolist() == list(map(len, lists))
    written = np.concatenate(lists)
    assert 200 < len(written) < 0.7 * store.counts.target_tokens  # much of it is unknown
    batches = Batches(store, BatchSettings(tokens=512, layout=layout), seed=1)
    counts = [(batch.tokens, int(loss_tokens(batch))) for batch in batches.epoch(0)]
    assert counts == [(tokens, tokens) for _, tokens in counts]
    assert sum(tokens for tokens, _ in counts) == len(written)
    shares = np.bincount(written)[np.bincount(written) > 0] / len(written)
    assert guess_loss(store) == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-3)


def test_a_store_that_says_something_else_than_was_asked_for_is_made_again(
    tmp_path: Path, tokenizers: Tokenizers
) -> None:
    """How many segmentations it has of each pair is no matter of its checksums, and training would go other ways."""
    corpus = ListCorpus(bundled_pairs(120))
    folder = build_store(corpus, tokenizers, DataSettings(), tmp_path).folder
    facts = json.loads((folder / "store.json").read_text(encoding="utf-8"))
    (folder / "store.json").write_text(json.dumps({**facts, "variants": 3}), encoding="utf-8")
    again = build_store(corpus, tokenizers, DataSettings(), tmp_path)
    assert (again.variants, len(again)) == (1, 120)


def test_text_of_a_store_that_is_no_text_is_said(tmp_path: Path, tokenizers: Tokenizers) -> None:
    part = Part(Job(tokenizers, DataSettings(), None), text=True)
    corpus = ListCorpus(bundled_pairs(60))
    store = build_stores(corpus, survey(corpus).digest, [part], tmp_path)[0]
    assert len(store.text(10)) == 10
    (store.folder / "text.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(DataError, match=r"text.jsonl is damaged; remove .* and it is made again"):
        store.text(10)


def loss_tokens(batch: Batch) -> torch.Tensor:
    return cross_entropy(torch.zeros(*batch.target_out.shape, 40), batch.target_out).tokens


def test_a_store_gives_back_the_text(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = bundled_pairs(200)
    built = build_store(ListCorpus(pairs), tokenizers, DataSettings(), tmp_path)
    assert len(built) == built.counts.kept == 200
    for i in (0, 7, 199):
        found = (
            tokenizers.source.decode(built.source.sentence(i).tolist()),
            tokenizers.target.decode(built.target.sentence(i).tolist()),
        )
        assert found == pairs[i]
    assert built.lines(np.array([0, 7, 199])).tolist() == [1, 8, 200]
    assert built.counts.target_tokens == built.target.lengths.sum()


def test_every_dropped_pair_is_counted_by_reason(tmp_path: Path, tokenizers: Tokenizers) -> None:
    good = ("ich trinke ein bier", "i am drinking a beer")
    pairs = [good, ("", "x"), ("x", " \t"), good, ("das", "das"), ("ich " * 99, "i"), ("ja", "no " * 12), ("du", "you")]
    filters = DataSettings(drop_identical=True, drop_duplicates=True, max_tokens=60, max_ratio=4.0)
    built = build_store(ListCorpus(pairs), tokenizers, filters, tmp_path)
    assert built.counts.dropped == {"empty": 2, "too long": 1, "length ratio": 1, "identical": 1, "duplicate": 1}
    assert (built.counts.read, built.counts.kept) == (8, 2)
    assert built.lines(np.arange(2)).tolist() == [1, 8]
    assert str(built.counts).startswith("2 of 8 pairs kept (")
    assert "1 length ratio" in str(built.counts)
    kept_all = build_store(ListCorpus(pairs), tokenizers, DataSettings(drop_empty=False), tmp_path)
    assert len(kept_all) == 8
    nothing = build_store(ListCorpus([("", "")]), tokenizers, DataSettings(), tmp_path)
    assert len(nothing) == 0


def test_a_store_is_reused_while_nothing_changes(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = bundled_pairs(20)
    first = build_store(ListCorpus(pairs), tokenizers, DataSettings(), tmp_path)
    stamp = (first.folder / "store.json").stat().st_mtime_ns
    again = build_store(ListCorpus(pairs), tokenizers, DataSettings(max_tokens=256), tmp_path)
    assert again.folder == first.folder
    assert (again.folder / "store.json").stat().st_mtime_ns == stamp
    other_text = build_store(ListCorpus(pairs[:-1]), tokenizers, DataSettings(), tmp_path)
    other_filter = build_store(ListCorpus(pairs), tokenizers, DataSettings(max_tokens=30), tmp_path)
    assert len({first.folder, other_text.folder, other_filter.folder}) == 3


@pytest.mark.parametrize("name", ["source.tokens", "index", "store.json"])
def test_a_store_that_is_not_whole_is_built_again(tmp_path: Path, tokenizers: Tokenizers, name: str) -> None:
    first = build_store(ListCorpus(bundled_pairs(20)), tokenizers, DataSettings(), tmp_path)
    whole = (first.folder / name).read_bytes()
    (first.folder / name).write_bytes(whole[:-3])
    again = build_store(ListCorpus(bundled_pairs(20)), tokenizers, DataSettings(), tmp_path)
    assert (again.folder / name).read_bytes() == whole


def test_parallel_and_serial_stores_are_equal(tmp_path: Path, tokenizers: Tokenizers, monkeypatch) -> None:
    pairs = [*bundled_pairs(250), ("", "x"), *bundled_pairs(40, seed=3)]
    settings = DataSettings(drop_duplicates=True)
    serial = build_store(ListCorpus(pairs), tokenizers, settings, tmp_path / "serial")
    monkeypatch.setattr(build, "CHUNK", 37)
    parallel = build_store(ListCorpus(pairs), tokenizers, settings, tmp_path / "parallel")
    for name in ("source.tokens", "target.tokens", "index", "store.json"):
        assert (serial.folder / name).read_bytes() == (parallel.folder / name).read_bytes()


def test_a_store_that_cannot_be_written(tmp_path: Path, tokenizers: Tokenizers, monkeypatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(DataError, match="cannot write the token store .*: No space left on device"):
            build_store(ListCorpus(PAIRS), tokenizers, DataSettings(), tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write the token store .*: Not a directory"):
        build_store(ListCorpus(PAIRS), tokenizers, DataSettings(), tmp_path / "file")


def test_two_commands_may_build_one_store(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one cache, at the same time: what is there first stays, as others may be reading it."""
    replace, pairs, number = os.replace, ListCorpus(bundled_pairs(30)), os.getpid()
    faster: list[tuple[Path, int]] = []

    def after_another(*given: Path) -> None:
        if not faster:
            faster.append((Path(), 0))
            monkeypatch.setattr(os, "getpid", lambda: number + 1)
            store = build_store(pairs, tokenizers, DataSettings(), tmp_path)
            faster[0] = store.folder, (store.folder / "index").stat().st_ino
        replace(*given)

    monkeypatch.setattr(os, "replace", after_another)
    monkeypatch.setattr(build, "_is_alive", lambda process: True)
    store = build_store(pairs, tokenizers, DataSettings(), tmp_path)
    assert [(store.folder, (store.folder / "index").stat().st_ino)] == faster
    assert [path.name for path in tmp_path.iterdir()] == [store.folder.name]


def test_text_is_kept_of_all_lines(tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text may be sorted, so that its first lines would tell little; and always the same are kept."""
    monkeypatch.setattr(build, "TEXT_KEPT", 30)
    monkeypatch.setattr(build, "CHUNK", 37)
    pairs = [(f"satz {i}", f"sentence {i}") for i in range(600)]
    parts = [Part(Job(tokenizers, DataSettings()), lambda line: line % 2 == 0, rule="even", text=True)]

    def kept(name: str, pairs: list[tuple[str, str]]) -> list[int]:
        (store,) = build_stores(ListCorpus(pairs), "digest", parts, tmp_path / name)
        return [int(source.split()[1]) for source, _ in store.text(10_000)]

    numbers = kept("one", pairs)
    assert numbers == sorted(numbers) == kept("two", pairs)
    assert len(set(numbers)) == 30
    assert all(number % 2 == 1 for number in numbers)  # lines count from 1
    assert all(sum(first <= number < first + 200 for number in numbers) >= 5 for first in (0, 200, 400))
    assert kept("few", pairs[:60]) == list(range(1, 60, 2))


# ---- batching


def batches(
    tmp_path: Path, tokenizers: Tokenizers, count: int = 300, sampling: float = 0.0, **settings: object
) -> Batches:
    drawn = Sampling(sampling, variants=3, seed=1) if sampling else None
    built = build_store(ListCorpus(bundled_pairs(count)), tokenizers, DataSettings(), tmp_path, sampling=drawn)
    return Batches(built, BatchSettings(**settings), seed=3)  # type: ignore[arg-type]


LAYOUTS = [{"layout": "buckets", "tokens": 256}, {"layout": "packed", "tokens": 512, "row": 64}]


@pytest.mark.parametrize("settings", LAYOUTS, ids=["buckets", "packed"])
def test_an_epoch_holds_every_pair_once_within_the_budget(
    tmp_path: Path, tokenizers: Tokenizers, settings: dict
) -> None:
    found = batches(tmp_path, tokenizers, **settings)
    seen = []
    for batch in found.epoch(0):
        seen += batch.pairs.tolist()
        for rows in (batch.source, batch.target_in):
            assert rows.tokens.numel() <= settings["tokens"]
            assert ((rows.segments == 0) == (rows.tokens == PAD)).all()
        assert ((batch.target_out == PAD) == (batch.target_in.tokens == PAD)).all()
    assert sorted(seen) == list(range(300))


@pytest.mark.parametrize("settings", LAYOUTS, ids=["buckets", "packed"])
def test_a_batch_holds_the_right_words(tmp_path: Path, tokenizers: Tokenizers, settings: dict) -> None:
    found = batches(tmp_path, tokenizers, **settings)
    pairs = bundled_pairs(300)
    batch = next(iter(found.epoch(1)))
    texts = set()
    for r in range(batch.source.tokens.size(0)):
        for segment in range(1, int(batch.source.segments[r].max()) + 1):
            source = batch.source.tokens[r, batch.source.segments[r] == segment]
            mine = batch.target_in.segments[r] == segment
            target_in, target_out = batch.target_in.tokens[r, mine], batch.target_out[r, mine]
            assert source[-1] == END
            assert target_in[0] == BEGIN
            assert target_out[-1] == END
            assert torch.equal(target_in[1:], target_out[:-1])
            assert batch.target_in.positions[r, mine].tolist() == list(range(len(target_in)))
            texts.add((tokenizers.source.decode(source.tolist()), tokenizers.target.decode(target_out.tolist())))
    assert texts == {pairs[i] for i in batch.pairs}


@pytest.mark.parametrize("settings", LAYOUTS, ids=["buckets", "packed"])
def test_the_order_depends_on_seed_and_epoch_alone(tmp_path: Path, tokenizers: Tokenizers, settings: dict) -> None:
    one, two = (batches(tmp_path, tokenizers, **settings) for _ in range(2))
    order = [batch.pairs.tolist() for batch in one.epoch(4)]
    assert order == [batch.pairs.tolist() for batch in two.epoch(4)]
    assert order != [batch.pairs.tolist() for batch in one.epoch(5)]
    assert order[3:] == [batch.pairs.tolist() for batch in one.epoch(4, skip=3)]


def test_empty_slots_are_reported(tmp_path: Path, tokenizers: Tokenizers) -> None:
    for settings in LAYOUTS:
        found = batches(tmp_path, tokenizers, **settings)
        parts = [rows for batch in found.epoch(0) for rows in (batch.source, batch.target_in)]
        empty = sum(int((rows.segments == 0).sum()) for rows in parts) / sum(rows.tokens.numel() for rows in parts)
        assert found.fill(0).empty == pytest.approx(empty)
        assert empty < 0.3


@pytest.mark.parametrize("settings", LAYOUTS, ids=["buckets", "packed"])
def test_subword_sampling_changes_tokens_and_not_text(
    tmp_path: Path, tokenizers: Tokenizers, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "CHUNK", 128)  # several workers
    sampled, again = (batches(tmp_path / name, tokenizers, sampling=0.2, **settings) for name in ("one", "two"))
    pairs, tokens = bundled_pairs(300), {line: set() for line in range(1, 301)}
    for epoch in range(6):  # twice every variant
        lines = []
        for batch, same in zip(sampled.epoch(epoch), again.epoch(epoch), strict=True):
            assert torch.equal(batch.source.tokens, same.source.tokens)  # decided by the seed alone
            lines += sampled.store.lines(batch.pairs).tolist()
        assert sorted(lines) == list(range(1, 301))  # every pair once
        for place in sampled.store.places(np.arange(300), epoch):
            source, target = (side.sentence(place).tolist() for side in sampled.store.sides)
            line = int(sampled.store.lines(place))
            text = tokenizers.source.decode(source), tokenizers.target.decode(target)
            assert text == pairs[line - 1]
            tokens[line].add((*source, 0, *target))
    assert all(len(variants) <= 3 for variants in tokens.values())
    assert sum(len(variants) for variants in tokens.values()) > 600


def test_a_variant_that_grew_too_long_gives_way(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = bundled_pairs(100)
    longest = max(len(ids) for side in zip(*pairs, strict=True) for ids in tokenizers.source.encode(side)) + 1
    corpus, limit = ListCorpus(pairs * 2), DataSettings(max_tokens=longest, drop_duplicates=True)
    built = build_store(corpus, tokenizers, limit, tmp_path, sampling=Sampling(0.9, variants=2, seed=1))
    assert (len(built), built.counts.kept, built.counts.dropped["duplicate"]) == (100, 100, 100)
    assert built.longest < longest
    assert built.lines(np.arange(4)).tolist() == [1, 1, 2, 2]


def test_a_sentence_that_fits_no_batch(tmp_path: Path, tokenizers: Tokenizers) -> None:
    with pytest.raises(DataError, match=r"a sentence of \d+ tokens does not fit: raise batch.tokens=4 or lower"):
        batches(tmp_path, tokenizers, tokens=4)
    with pytest.raises(DataError, match="raise batch.row=5 or lower data.max_tokens"):
        batches(tmp_path, tokenizers, layout="packed", row=5)
    with pytest.raises(DataError, match="a row of 128 slots does not fit: raise batch.tokens=100, or set batch.layout"):
        batches(tmp_path, tokenizers, layout="packed", tokens=100)


def test_lay_out() -> None:
    rows = lay_out([[[5, 6], [7]], [[8]]])
    assert rows.tokens.tolist() == [[5, 6, 7], [8, PAD, PAD]]
    assert rows.segments.tolist() == [[1, 1, 2], [1, 0, 0]]
    assert rows.positions.tolist() == [[0, 1, 0], [0, 0, 0]]


SLOW = """
import time
from dataclasses import replace
from pathlib import Path
from conftest import bundled_pairs, quick_settings
from transduce.data import build, pool
from transduce.data.corpus import ListCorpus
from transduce.text.tokenizers import Tokenizers

settings = quick_settings()
pairs = bundled_pairs(200)
tokenizers = Tokenizers.train(pairs, settings.text)
build.CHUNK, tokenize = 20, pool.tokenize
pool.tokenize = lambda *given: (time.sleep(1), tokenize(*given))[1]
print("ready", flush=True)
build.build_store(ListCorpus(pairs), tokenizers, settings.data, Path("cache"))
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_workers_end_with_their_parent_and_what_it_left_goes(tmp_path: Path) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here.parent}:{here}"}
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    until = time.monotonic() + 60
    workers: list[str] = []
    while not workers:
        assert time.monotonic() < until
        workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    process.kill()
    process.wait()
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < until, "the workers have outlived their parent"
        time.sleep(0.1)
    (left,) = (tmp_path / "cache").glob("*.part")
    settings, pairs = quick_settings(), bundled_pairs(30)
    build_store(ListCorpus(pairs), Tokenizers.train(pairs, settings.text), settings.data, tmp_path / "cache")
    assert not left.exists()


def test_stores_of_two_languages_are_two(tmp_path: Path) -> None:
    """The mark of a language is one of the tokens that are stored."""
    settings, pairs = quick_settings(), bundled_pairs(30)
    plain = Tokenizers.train(pairs, settings.text)
    names = set()
    for language in (None, "de", "fr"):
        tokenizers = copy.copy(plain)
        tokenizers.settings = replace(settings.text, source_language=language)
        names.add(build.store_name("text", Part(Job(tokenizers, settings.data, None), lambda _: True)))
    assert len(names) == 3


def test_other_processes_of_the_caller_are_left_alone(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "CHUNK", 5)
    mine = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    mine.start()
    pairs = [Pair(*pair, line) for line, pair in enumerate(bundled_pairs(60), 1)]
    chunks = pool.tokenize_all(
        (Chunk(0, number, pairs[5 * number : 5 * number + 5]) for number in range(12)),
        [Job(tokenizers, DataSettings())],
    )
    next(chunks)
    chunks.close()  # as an error would
    time.sleep(0.3)
    assert mine.is_alive()
    mine.kill()
