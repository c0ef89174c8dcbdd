"""The data doctor: planted faults are found where they were planted, and good text is left in peace."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from conftest import bundled_pairs, quick_settings

from transduce import cli
from transduce.data import doctor
from transduce.data.corpus import ListCorpus, TwoFiles
from transduce.data.doctor import FAULTS, examine
from transduce.data.open import open_corpus
from transduce.data.store import Store
from transduce.training.setup import fit


def write(folder: Path, name: str, lines: list[str | bytes]) -> str:
    path = folder / name
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return str(path)


@pytest.fixture
def clean_text() -> tuple[list[str], list[str]]:
    """Two hundred good pairs, no two alike."""
    pairs = list(dict.fromkeys(bundled_pairs(300, seed=3)))[:200]
    return [source for source, _ in pairs], [target for _, target in pairs]


PLANTED: dict[str, tuple[str | bytes, str | bytes]] = {
    "empty": ("", "nothing stands there"),
    "identical": ("das ist gleich", "das ist gleich"),
    "not UTF-8": (b"gr\xfc\xdfe aus k\xf6ln", "greetings from cologne"),
    "encoding damage": ("er ist mÃ¼de", "he is tired"),
    "control characters": ("ein\x07 hund", "a dog"),
    "entities": ("er sagt &quot;ja&quot;", "he says &quot;yes&quot;"),
    "markup": ("<b>ein hund</b> schläft", "a dog is sleeping"),
    "numbers differ": ("er ist 1989 geboren", "he was born in 1998"),
    "too long": ("wort " * 250, "word " * 250),
    "other script": ("ein hund schläft", "собака спит"),
    "other language": ("the friend has a good dog in the office", "der freund hat einen guten hund im büro"),
    "length ratio": ("ja", "this is a very long answer to a very short question, and nobody asked for it"),
}


def test_planted_faults_are_found(clean_text: tuple[list[str], list[str]], tmp_path: Path) -> None:
    """Each at its line, and nothing else of its kind."""
    source, target = ([*side] for side in clean_text)
    expected = {}
    for place, (name, (left, right)) in zip(range(10, 200, 12), PLANTED.items(), strict=False):
        source[place], target[place] = left, right
        expected[name] = [place + 1]
    source[150], target[150] = source[3], target[3]
    expected["duplicate"] = [151]
    expected["leak"] = [8]
    held = (
        write(tmp_path, "dev.de", [source[7], "etwas neues"]),
        write(tmp_path, "dev.en", [target[7], "something new"]),
    )
    found = examine(
        TwoFiles(write(tmp_path, "train.de", source), write(tmp_path, "train.en", target)), [TwoFiles(*held)]
    )
    assert {name: lines.tolist() for name, lines in found.faults.items() if len(lines)} == expected
    assert found.samples[151] == (source[3], target[3])
    assert found.lines == (200, 200)


def test_good_text_has_no_fault(clean_text: tuple[list[str], list[str]], tmp_path: Path) -> None:
    found = examine(TwoFiles(write(tmp_path, "a.de", clean_text[0]), write(tmp_path, "a.en", clean_text[1])))
    assert not any(len(lines) for lines in found.faults.values())
    assert found.scripts == ("Latin", "Latin")


def test_a_missing_line_spoils_all_behind_it_and_empty_sides_spoil_nothing() -> None:
    random = np.random.default_rng(4)
    length = random.integers(10, 90, 800)
    both = np.stack([length, length + random.integers(0, 5, 800)], 1)
    some = both.copy()
    some[random.choice(800, 40, replace=False), 1] = 0
    assert not doctor._misaligned(some, [(800, 800)]).any()
    shifted = np.stack([both[:799, 0], np.delete(both[:, 1], 400)], 1)
    found = doctor._misaligned(shifted, [(800, 799)])
    assert found[400:].all()
    assert not found[:330].any()
    again = doctor._misaligned(np.concatenate([shifted, both]), [(800, 799), (800, 800)])
    assert again[400:799].all()
    assert not again[860:].any()


def test_a_line_that_is_no_pair_ends_nothing(
    clean_text: tuple[list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{source}\t{target}" for source, target in zip(*clean_text, strict=True)]
    text = write(tmp_path, "a.tsv", [*lines[:50], "", "one side", *lines[50:]])
    assert cli.main(["doctor", "--source", text, "--preset", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "empty: 2 of 202 pairs" in out
    assert "a.tsv, line 51: no tab between source and target; without such lines: awk" in out
    assert "training would refuse this text as it is; mend it, or let --clean" in out
    copy = tmp_path / "copy"
    assert cli.main(["doctor", "--source", text, "--preset", "tiny", "--clean", str(copy)]) == 0
    assert (copy / "a.source").read_text(encoding="utf-8").splitlines() == clean_text[0]
    assert "transduce train runs/mine" in capsys.readouterr().out


def test_bytes_that_are_no_text_have_one_fault(
    clean_text: tuple[list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chinese = [f"他有{number}只狗和一只猫".encode("gb18030") for number in range(200)]
    files = write(tmp_path, "a.zh", chinese), write(tmp_path, "a.en", clean_text[1])
    assert cli.main(["doctor", "--source", files[0], "--target", files[1]]) == 0
    out = capsys.readouterr().out
    assert out.count("of 200 pairs") == 1
    assert "it may be GB18030; convert it: iconv -f GB18030 -t UTF-8" in out
    assert "transduce train" not in out


def test_a_copy_has_characters_for_entities_and_is_not_made_of_another_encoding(
    clean_text: tuple[list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = ([*side] for side in clean_text)
    source[7] = "M&uuml;ller &amp; S&ouml;hne&#10;"
    left, right = write(tmp_path, "train.de", source), write(tmp_path, "train.en", target)
    words = ["doctor", "--source", left, "--target", right, "--preset", "tiny", "--clean"]
    assert cli.main([*words, str(tmp_path / "clean")]) == 0
    assert "entities such as &uuml; are characters there" in capsys.readouterr().out
    assert (tmp_path / "clean" / "train.de").read_text().splitlines()[7] == "Müller & Söhne"
    Path(left).write_bytes("\n".join(f"für {line}" for line in source).encode("cp1252") + b"\n")
    assert cli.main([*words, str(tmp_path / "other")]) == 2
    shown = capsys.readouterr()
    assert "--clean would leave out 200 pairs that are not UTF-8; convert the text first" in shown.err.replace(
        "\n", " "
    )
    assert "iconv -f CP1252" in shown.out
    assert not (tmp_path / "other").exists()


def test_sides_that_slipped_are_found(tmp_path: Path) -> None:
    """A line is lost on one side and made up for later: counts agree, but what is between does not."""
    pairs = bundled_pairs(600, seed=4)
    source, target = [source for source, _ in pairs], [target for _, target in pairs]
    del target[200]
    target.insert(420, "made up")
    found = examine(TwoFiles(write(tmp_path, "a.de", source), write(tmp_path, "a.en", target))).faults["misaligned"]
    between = set(range(201, 421))
    assert len(between & set(found.tolist())) > 150
    assert len(set(found.tolist()) - between) < 60


def test_numbers_are_compared_as_numbers() -> None:
    assert doctor._numbers_differ("im jahr 1989", "in 1998")
    assert not doctor._numbers_differ("3.000 euro", "3,000 euros")
    assert not doctor._numbers_differ("3 euro", "three euros")
    assert not doctor._numbers_differ("von 9 bis 17", "from 9 to 17")


def test_scripts() -> None:
    names = ["none", *doctor.SCRIPTS]
    for text, name in (
        ("abc", "Latin"),
        ("über", "Latin"),
        ("собака", "Cyrillic"),
        ("狗在睡觉", "Chinese or Japanese"),
    ):
        assert names[doctor._script(text)] == name
    assert doctor._script("12 !") == 0


def test_the_command_reports_cleans_and_draws(
    clean_text: tuple[list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = ([*side] for side in clean_text)
    source[4], target[5] = "", "er\x07 ist"
    left, right = write(tmp_path, "train.de", source), write(tmp_path, "train.en", target)
    words = ["--source", left, "--target", right, "--clean", str(tmp_path / "clean")]
    words += ["--report-to", str(tmp_path / "report.json"), "--picture", str(tmp_path / "lengths.png")]
    assert cli.main(["doctor", *words, "--preset", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "empty: 1 of 200 pairs" in out
    assert r"er\x07 ist" in out  # what cannot be seen is shown
    assert "target tokens, about" in out
    assert "tokens a second by a short try" in out
    assert cli.main(["doctor", "--source", left, "--target", right, "--model.layers", "0"]) == 2
    assert "model.layers=0 must be at least 1" in capsys.readouterr().err.replace("\n", " ")
    kept = (tmp_path / "clean" / "train.de").read_text().splitlines()
    assert kept == [line for i, line in enumerate(source) if i not in (4, 5)]
    dropped = [line.split("\t") for line in (tmp_path / "clean" / "dropped.tsv").read_text().splitlines()]
    assert [(line[0], line[1].split(", ")[0]) for line in dropped] == [("5", "empty"), ("6", "control characters")]
    nothing = write(tmp_path, "nothing.en", [""] * 200)
    assert cli.main(["doctor", "--source", left, "--target", nothing, "--clean", str(tmp_path / "none")]) == 2
    assert "no pair of" in capsys.readouterr().err
    facts = json.loads((tmp_path / "report.json").read_text())
    assert facts["faults"]["empty"] == {"count": 1, "lines": [5], "samples": [["", target[4]]]}
    assert set(facts["faults"]) == set(FAULTS)
    assert (tmp_path / "lengths.png").stat().st_size > 5000


def test_held_out_words_are_counted(tmp_path: Path) -> None:
    train = write(tmp_path, "a.de", ["ein hund", "eine katze"]), write(tmp_path, "a.en", ["a dog", "a cat"])
    dev = write(tmp_path, "b.de", ["ein pferd"]), write(tmp_path, "b.en", ["a dog"])
    found = examine(TwoFiles(*train), [TwoFiles(*dev)])
    assert found.coverage == {dev[0]: 0.5, dev[1]: 1.0}


def test_unequal_sides_and_packed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"line {'x' * (i * 7 % 40)}" for i in range(60)]
    (tmp_path / "a.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    right = write(tmp_path, "b", [*lines[:20], *lines[21:]])
    assert cli.main(["doctor", "--source", str(tmp_path / "a.gz"), "--target", right]) == 0
    out = capsys.readouterr().out
    assert "a.gz has 1 line more than the other side; by their lengths, the sides stop matching near line 2" in out
    assert "no fault found" not in out
    assert out.splitlines()[-1].startswith("training would refuse this text")  # and not a command that it refuses


def test_of_lines_that_are_missing_at_the_end_no_other_line_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"line {'x' * (i * 7 % 40)}" for i in range(60)]
    left, right = write(tmp_path, "a", lines[:-3]), write(tmp_path, "b", lines)
    assert cli.main(["doctor", "--source", left, "--target", right]) == 0
    assert "the last ones of the shorter side seem to be missing" in capsys.readouterr().out
    alike = write(tmp_path, "c", ["abc"] * 57), write(tmp_path, "d", ["abc"] * 60)  # lengths that tell nothing
    assert cli.main(["doctor", "--source", alike[0], "--target", alike[1]]) == 0
    assert "near line" not in capsys.readouterr().out


def test_complaints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, empty = write(tmp_path, "good", ["a"]), write(tmp_path, "empty", [])
    for words, message in (
        (["--source", good, "--target", empty], "have no line in common: a side is empty"),
        (["--source", good, "--target", "nowhere"], "there is no file nowhere"),
        (
            ["--source", good, "--target", good, "--held-out", good],
            "--held-out takes files in twos, source and target; 1",
        ),
        (["--source", good, "--target", good, "--clean", good], "cannot write the cleaned copy to"),
        (["--source", good, "--target", good, "--preset", "tinny"], "unknown preset tinny, did you mean tiny"),
    ):
        assert cli.main(["doctor", *words]) == 2
        assert message in capsys.readouterr().err.replace("\n", " ")


def test_text_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right = write(tmp_path, "a.de", ["eins", "zwei"]), write(tmp_path, "a.en", ["one", "two"])
    for words in (["--clean", str(tmp_path)], ["--report-to", left], ["--picture", right]):
        assert cli.main(["doctor", "--source", left, "--target", right, *words]) == 2
        assert "is an input and cannot be the output too" in capsys.readouterr().err.replace("\n", " ")
    assert Path(left).read_text() == "eins\nzwei\n"
    assert Path(right).read_text() == "one\ntwo\n"


def test_one_file_with_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = bundled_pairs(30, seed=3)
    tab = write(tmp_path, "a.tsv", ["\t".join(pair) for pair in pairs])
    records = [json.dumps({"source": source.replace(" ", "\n", 1), "target": target}) for source, target in pairs]
    found = [examine(open_corpus(path, None)) for path in (tab, write(tmp_path, "a.jsonl", records))]
    assert found[0].lines == found[1].lines == (30, 30)
    assert np.array_equal(found[0].lengths, found[1].lengths)
    assert cli.main(["doctor", "--source", tab, "--preset", "tiny", "--clean", str(tmp_path / "clean")]) == 0
    assert (tmp_path / "clean/a.source").read_text().splitlines()[0] == pairs[0][0]
    assert cli.main(["doctor", "--source", write(tmp_path, "a.de", ["eins"])]) == 2
    assert "holds one side only" in capsys.readouterr().err.replace("\n", " ")


def test_packed_files_that_are_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = gzip.compress("\n".join(source for source, _ in bundled_pairs(300)).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    good = write(tmp_path, "good", ["one"] * 300)
    assert cli.main(["doctor", "--source", str(tmp_path / "cut.gz"), "--target", good]) == 2
    assert "cut.gz is not a complete gzip file" in capsys.readouterr().err.replace("\n", " ")


def test_nothing_is_noted_of_nothing() -> None:
    assert not len(doctor._unusual_ratio(np.zeros((0, 2))))


# ---- what training would do, and what is advised


def last_line(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    assert cli.main(["doctor", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    return shlex.split(lines[-1]), "\n".join(lines)


def test_advice_is_flags_that_train_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Followed, it leaves out what was found; a second look at what is advised advises nothing more."""
    pairs = list(dict.fromkeys(bundled_pairs(400, seed=7)))
    noisy = [*pairs, *pairs[:5], ("gleich hier", "gleich hier"), ("ja", "and so on " * 12)]
    left, right = write(tmp_path, "a.de", [s for s, _ in noisy]), write(tmp_path, "a.en", [t for _, t in noisy])
    text = ["--source", left, "--target", right]
    words, out = last_line(capsys, *text, "--text.vocabulary", "400", "--preset", "tiny", "--data.hold_out", "0")
    assert words[:7] == ["transduce", "train", "runs/mine", *text]
    flags = dict(zip(words[7::2], words[8::2], strict=True))
    assert flags.pop("--data.max_ratio").isdecimal()
    expected = {"--data.drop_duplicates": "true", "--data.drop_identical": "true"}
    assert flags == {"--preset": "tiny", "--text.vocabulary": "400", "--data.hold_out": "0", **expected}
    assert "length ratio: 1 of" in out
    assert last_line(capsys, *words[3:])[0] == words
    run = tmp_path / "run"
    small = ["--training.steps", "1", "--training.device", "cpu", "--training.bleu_lines", "0"]
    assert cli.main(["train", str(run), *words[3:], *small]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "1 length ratio, 1 identical, 5 duplicate" in said


@pytest.mark.parametrize("holds_out", [True, False])
def test_tokens_are_those_of_training(holds_out: bool, tmp_path: Path) -> None:
    """With what is set aside for validation, and without."""
    from transduce.commands.cost import epoch_tokens, tokens_of_training

    corpus = ListCorpus(bundled_pairs(700, seed=8))
    valid = None if holds_out else ListCorpus(bundled_pairs(30, seed=9))
    settings = quick_settings(training={"steps": 1})
    fit(tmp_path / "run", corpus, valid, settings)
    stores = [Store(folder) for folder in (tmp_path / "run/data").iterdir()]
    counts = max((store.counts for store in stores), key=lambda counts: counts.kept)
    lengths, used = tokens_of_training(corpus, not holds_out, settings)
    assert used == settings
    assert epoch_tokens(lengths, [700], used) == (counts.source_tokens, counts.target_tokens)


def test_weights_count(tmp_path: Path) -> None:
    from transduce.commands.cost import epoch_tokens
    from transduce.data.count import Lengths

    lengths = Lengths(np.array([1, 2, 4]), np.array([[1, 10], [2, 20], [3, 30]]))
    settings = quick_settings(data={"source": ["a", "b"], "weight": [1, 5]})
    assert epoch_tokens(lengths, [2, 2], settings) == (1 + 2 + 5 * 3, 10 + 20 + 5 * 30)


def test_a_vocabulary_that_the_text_supports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = list(dict.fromkeys(bundled_pairs(200, seed=3)))
    left, right = write(tmp_path, "a.de", [s for s, _ in pairs]), write(tmp_path, "a.en", [t for _, t in pairs])
    words, out = last_line(
        capsys, "--source", left, "--target", right, "--preset", "small", "--text.vocabulary", "100000"
    )
    assert "this text supports a vocabulary of" in out
    assert int(words[words.index("--text.vocabulary") + 1]) < 100_000
    assert words.count("--text.vocabulary") == 1
    many = write(tmp_path, "many", ["".join(map(chr, range(0x4E00, 0x4E80)))] * len(pairs))
    assert (
        cli.main(["doctor", "--source", many, "--target", right, "--preset", "small", "--text.vocabulary", "64"]) == 0
    )
    assert "training would stop here: text.vocabulary=64 is too small for the characters" in capsys.readouterr().out
    assert (
        cli.main(["doctor", "--source", left, "--target", right, "--preset", "small", "--text.vocabulary", "20"]) == 0
    )
    assert "text.vocabulary=20 is too small to be tried; set it to 32 or more" in capsys.readouterr().out
    words, out = last_line(capsys, "--source", left, "--target", right)
    assert "text.joint=True: both sides are Latin" in out
    assert "--preset" not in words


def test_several_texts_are_examined_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines are named by their file; a copy needs no filters, and is what is advised to be trained on."""
    pairs = list(dict.fromkeys(bundled_pairs(200, seed=3)))
    tab = write(tmp_path, "a.tsv", ["\t".join(pair) for pair in pairs[:90]])
    left = write(tmp_path, "b.de", [*(s for s, _ in pairs[90:]), "", "zuviel"])
    right = write(tmp_path, "b.en", [*(t for _, t in pairs[90:]), "nothing"])
    held = write(tmp_path, "dev.tsv", ["\t".join(pairs[2]), "neu\tnew"])
    words = ["--source", tab, "--source", left, "--target", right, "--weight", "1", "--weight", "2", "--preset", "tiny"]
    words += ["--text.vocabulary", "300", "--held-out", held]
    last, out = last_line(capsys, *words)
    assert f"source of 2 texts: {len(pairs) + 2:,} lines" in out
    assert f"{tab}: 90 pairs" in out
    assert f"{left} has 1 line more than the other side" in out
    assert f"    {tab}, line 3: {pairs[2][0][:60]}" in out  # leak
    assert f"    {left} and {right}, line {len(pairs) - 90 + 1}:   |||  nothing" in out
    assert "no setting leaves out: leak; --clean FOLDER writes a copy without them" in out
    assert " ".join(last).startswith("training would refuse this text")
    found, _ = last_line(capsys, *words, "--clean", str(tmp_path / "clean"))
    copy = [str(tmp_path / f"clean/joined.{side}") for side in ("source", "target")]
    assert found[3:] == ["--source", copy[0], "--target", copy[1], "--valid-source", held, *words[10:14]]
    assert len((tmp_path / "clean/joined.source").read_text().splitlines()) == len(pairs) - 1
    places = [line.split("\t")[0] for line in (tmp_path / "clean/dropped.tsv").read_text().splitlines()]
    assert places == [f"{tab}, line 3", f"{left} and {right}, line {len(pairs) - 90 + 1}"]


def test_characters_where_words_have_no_spaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = (
        write(tmp_path, "a.zh", ["我喜欢狗", "他喜欢猫"] * 8),
        write(tmp_path, "a.en", ["i like dogs", "he likes cats"] * 8),
    )
    dev = write(tmp_path, "b.zh", ["我喜欢鸟"]), write(tmp_path, "b.en", ["i like birds"])
    assert examine(TwoFiles(*train), [TwoFiles(*dev)]).coverage == {dev[0]: 0.75, dev[1]: 2 / 3}
    held = ["--held-out", dev[0], "--held-out", dev[1], "--preset", "tiny"]
    assert cli.main(["doctor", "--source", train[0], "--target", train[1], *held]) == 0
    out = capsys.readouterr().out
    assert f"75.0% of the characters of {dev[0]}" in out
    assert f"66.7% of the words of {dev[1]}" in out


def test_entities() -> None:
    for text, has in (
        ("&quot;ja&quot;", True),
        ("&#228;", True),
        ("&#xE4;", True),
        ("a&b; c", False),
        ("?a=1&reg=2", False),
    ):
        assert doctor._has_entities(text) == has, text


def test_the_encoding_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "der müde hund schläft schön und träumt von grünen wiesen".encode("latin1")
    left, right = write(tmp_path, "a.de", [text] * 5), write(tmp_path, "a.en", ["the tired dog"] * 5)
    assert cli.main(["doctor", "--source", left, "--target", right, "--preset", "tiny"]) == 0
    assert f"it may be CP1252; convert it: iconv -f CP1252 -t UTF-8 {left} > " in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["shifted", "same"])
def test_what_no_setting_can_mend_is_not_to_be_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """The last line was the command that trains on it."""
    draw = np.random.default_rng(1)
    lines = [" ".join(["wort"] * int(n)) + f" {i}" for i, n in enumerate(draw.integers(1, 30, 400))]
    target = [lines[-1], *lines[:-1]] if kind == "shifted" else lines
    source = write(tmp_path, "a.de", lines)
    assert cli.main(["doctor", "--source", source, "--target", write(tmp_path, "a.en", target)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("most lines")
    assert "mend that first" in last
