"""fastText's job from the command line and from Python: train, label, evaluate, explain, convert, ask vectors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_vectors import topics

import transduce
from transduce.cli import main
from transduce.errors import ArgumentError, DataError, ModelError, SettingsError
from transduce.fasttext.labelled import labelled_lines, split_labels
from transduce.fasttext.labeller import Labeller
from transduce.fasttext.measure import calibration, confusion, measure
from transduce.fasttext.word_vectors import load_vectors
from transduce.models.load import load
from transduce.training.carried import fitted

QUICK = ["--vectors.dimension", "12", "--vectors.buckets", "2000", "--vectors.threads", "1"]


def write(path: Path, lines: list[tuple[list[str], str]]) -> str:
    path.write_text("".join(" ".join(f"__label__{label}" for label in given) + f" {line}\n" for given, line in lines))
    return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier, word vectors, and their text."""
    folder = tmp_path_factory.mktemp("fasttext")
    train, _ = write(folder / "train.txt", topics(400)), write(folder / "test.txt", topics(60, seed=8))
    (folder / "plain.txt").write_text("".join(f"{line}\n" for _, line in topics(400)))
    words = ["train", str(folder / "run"), "--task", "classify", "--preset", "fasttext", "--source", train, *QUICK]
    assert main(words) == 0
    words = ["vectors", "train", str(folder / "words"), "--source", str(folder / "plain.txt"), *QUICK]
    assert main([*words, "--vectors.min_count", "1", "--vectors.epochs", "3"]) == 0
    return folder


def said(words: list[object], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(map(str, words)))
    out = capsys.readouterr()
    return code, out.out, " ".join(out.err.split())


# ---- labels


def test_labels_are_given_without_loading_pytorch(place: Path) -> None:
    """It takes two seconds, which is longer than the work."""
    code = f"""
import sys, transduce
from transduce.cli import main
print(transduce.load({str(place / "run")!r}).translate("the bread and the soup").text)
assert main(["translate", {str(place / "run")!r}, {str(place / "plain.txt")!r}, "-o", {str(place / "out.txt")!r}]) == 0
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["food", "False"]


def test_lines_get_labels(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("the bread and the soup\n\nxyzzy\nsong of the choir\n")
    code, out, err = said(["translate", place / "run", tmp_path / "in.txt"], capsys)
    assert (code, out.splitlines()[0], out.splitlines()[1], out.splitlines()[3]) == (0, "food", "", "music")
    assert "status unknown" in err
    _, out, _ = said(["translate", place / "run", tmp_path / "in.txt", "--json"], capsys)
    first = json.loads(out.splitlines()[0])
    assert first["translation"] == "food"
    assert 0.5 < first["confidence"] <= 1
    _, out, _ = said(["translate", place / "run", tmp_path / "in.txt", "--n-best", "2"], capsys)
    assert [line.split("\t")[0] for line in out.splitlines()] == ["1", "1", "2", "3", "3", "4", "4"]


def test_below_the_threshold_there_is_no_label(place: Path) -> None:
    labeller = transduce.load(place / "run", threshold=0.999999)
    answer = labeller.translate("the a of with")
    assert (answer.text, answer.status, answer.candidates) == ("", "doubtful", ())


def test_evaluate_gives_precision_recall_f1_and_calibration(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "confusion.png"
    code, out, _ = said(
        ["evaluate", place / "run", "--source", place / "test.txt", "--json", "--confusion", picture], capsys
    )
    found = json.loads(out)
    assert code == 0
    assert found["scores"]["P@1"] > 0.95
    assert set(found["labels"]) == {"food", "sport", "music"}
    assert picture.stat().st_size > 1000
    _, out, _ = said(["evaluate", place / "run", "--source", place / "test.txt", "--k", "2"], capsys)
    assert "P@2" in out
    assert "so many were right" in out


def test_two_models_are_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", place / "run", "--source", place / "test.txt", "--against", place / "run"]
    code, out, err = said(words, capsys)
    assert code == 0, err
    assert "the same accuracy" in out


def test_inspect_names_what_spoke_for_a_label(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    code, out, _ = said(["inspect", place / "run", "the <b>bread</b> and bread soup", "-o", page], capsys)
    assert code == 0
    loudest = out.splitlines()[1].split(maxsplit=1)
    assert float(loudest[0]) > 0
    assert loudest[1] in ("bread", "soup", "bread soup", "and bread", "soup </s>")
    assert "<b>bread" not in page.read_text()
    labeller = Labeller.load(place / "run")
    scores = labeller.network.U @ labeller.network.hidden(labeller.network.rows_of_line("bread and song"))
    voices = labeller.explain("bread and song", "music")
    target = labeller.labels.index("music")
    assert sum(voice.weight for voice in voices) == pytest.approx(scores[target] - scores.mean(), abs=1e-4)


def test_settings_are_searched_within_a_time(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", tmp_path / "run", "--task", "classify", "--preset", "fasttext", "--source", place / "train.txt"]
    code, _, err = said([*words, "--valid-source", place / "test.txt", "--autotune-minutes", "0.02", *QUICK], capsys)
    assert code == 0, err
    assert "the best has P@1" in err
    assert transduce.load(tmp_path / "run").translate("goal of the team").text == "sport"
    code, _, err = said([*words[:1], tmp_path / "new", *words[2:], "--autotune-minutes", "1"], capsys)
    assert (code, "needs validation text" in err) == (2, True)


def test_several_labels_a_line(tmp_path: Path) -> None:
    lines = [(["food", "music"], "bread song"), (["food"], "bread soup"), (["music"], "song choir")] * 60
    settings = {"loss": "ova", "rate": 0.3, "epochs": 20, "buckets": 500, "threads": 1}
    pairs = [(line, " ".join(f"__label__{one}" for one in given)) for given, line in lines]
    model = transduce.train(tmp_path / "run", pairs, preset="fasttext", task="classify", vectors=settings)
    both = model.probabilities("bread song")
    assert both["food"] > 0.8
    assert both["music"] > 0.8
    assert model.probabilities("soup bread")["music"] < 0.3
    assert "2 labels" in repr(model)


def test_measures_of_several_labels() -> None:
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]], np.float32)
    found = measure(p, [["a"], ["a", "c"], ["x"]], ["a", "b", "c"], k=2)
    assert (found.lines, found.precision, found.recall) == (3, 2 / 6, 2 / 4)
    assert found.accuracy == pytest.approx(1 / 3)
    many = measure(p, [["a"], ["a", "c"], ["x"]], ["a", "b", "c"], k=5)  # there are but three labels to be said
    assert (many.precision, many.recall) == (3 / 9, 3 / 4)
    bins, error = calibration(np.array([0.95, 0.95], np.float32), np.array([True, False]))
    assert bins[0][1:] == (0.5, 2)
    assert error == pytest.approx(0.45)
    assert confusion(["a", "b"], ["a", "a"], ["a", "b"]).tolist() == [[1, 1], [0, 0]]


def test_labels_in_a_file_of_their_own_and_in_columns(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b\nc d\n")
    (tmp_path / "labels").write_text("two words\n__label__x __label__y\n")
    (tmp_path / "both.tsv").write_text("a b\tone\n")
    lines = labelled_lines([str(tmp_path / "text")], [str(tmp_path / "labels")])
    assert list(lines()) == [(["two words"], "a b"), (["x", "y"], "c d")]
    (tmp_path / "both.csv").write_text('source,target\na b,one\n"c, d",two\n')
    assert list(labelled_lines([str(tmp_path / "both.tsv")])()) == [(["one"], "a b")]
    assert list(labelled_lines([str(tmp_path / "both.csv")])()) == [(["one"], "a b"), (["two"], "c, d")]
    assert split_labels("a __label__x b __label__") == (["x"], "a b")


# ---- files


def test_out_to_fasttext_and_in_again(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(["convert", place / "run", tmp_path / "x.bin", "--to", "fasttext"], capsys)
    assert code == 0, err
    assert said(["convert", tmp_path / "x.bin", tmp_path / "again"], capsys)[0] == 0
    one, two = (transduce.load(folder) for folder in (place / "run", tmp_path / "again"))
    for _, line in topics(20, seed=2):
        assert one.translate(line)[:3] == two.translate(line)[:3]
    words = ["convert", place / "run", tmp_path / "x.ftz", "--to", "fasttext", "--rows", "300"]
    words += ["--retrain", place / "train.txt", "--text", place / "test.txt"]
    code, out, err = said(words, capsys)
    assert code == 0, err
    assert "P@1" in out
    assert (tmp_path / "x.ftz").stat().st_size < (tmp_path / "x.bin").stat().st_size / 3


@pytest.mark.parametrize("k", [1, 2, 5])
def test_precision_of_the_first_labels_is_that_of_fasttext(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], k: int
) -> None:
    """It divides by the labels that were said, which may be fewer than were asked for."""
    fasttext = pytest.importorskip("fasttext")
    assert said(["convert", place / "run", tmp_path / "x.bin", "--to", "fasttext"], capsys)[0] == 0
    lines, precision, recall = fasttext.load_model(str(tmp_path / "x.bin")).test(str(place / "test.txt"), k)
    code, out, err = said(["evaluate", place / "run", "--source", place / "test.txt", "--k", k, "--json"], capsys)
    assert code == 0, err
    found = json.loads(out)
    assert found["lines"] == lines
    assert found["scores"][f"P@{k}"] == pytest.approx(precision, abs=1e-4)
    assert found["scores"][f"R@{k}"] == pytest.approx(recall, abs=1e-4)


def test_words_are_looked_up_as_they_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """German nouns have capitals; a word that is known in another case only is taken in that one."""
    listed = {"Haus": "1 0", "Heim": "1 0.1", "heim": "0 1", "morgen": "0.5 1", "Morgen": "-1 0"}
    vectors = "".join(f"{word} {numbers}\n" for word, numbers in listed.items())
    (tmp_path / "x.vec").write_text(f"{len(listed)} 2\n{vectors}", encoding="utf-8")
    (tmp_path / "pairs").write_text("Haus Heim 9\nHaus heim 2\nmorgen heim 8\nMorgen HAUS 0\nhaus Heim 9\n")
    code, out, err = said(["vectors", "similarity", tmp_path / "x.vec", "--file", tmp_path / "pairs"], capsys)
    assert code == 0, err
    assert "both words are known in 5" in out  # HAUS and haus are in the list as Haus
    assert "correlation 1.0000 on 5 pairs" in out
    (tmp_path / "questions").write_text("Haus Heim haus Heim\nHaus Heim Morgen Unbekannt\n")
    words = ["vectors", "analogies", tmp_path / "x.vec", "--file", tmp_path / "questions"]
    assert "1 questions" in said(words, capsys)[1]


def test_vectors_are_asked_and_exported(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = place / "words"
    assert said(["vectors", "nearest", words, "bread", "breads", "--count", 3], capsys)[1].count("\n") == 2
    assert -1 <= float(said(["vectors", "similarity", words, "bread", "song"], capsys)[1]) <= 1
    assert said(["vectors", "analogies", words, "bread", "soup", "song"], capsys)[1].count("\n") == 5
    (tmp_path / "pairs").write_text("# pairs\nbread soup 9\nbread song 1\nbread\tviolins\t0.5\n")
    assert "on 3 pairs" in said(["vectors", "similarity", words, "--file", tmp_path / "pairs"], capsys)[1]
    (tmp_path / "questions").write_text(": x\nbread soup song choir\nbread soup song xyz\n")
    assert "1 questions" in said(["vectors", "analogies", words, "--file", tmp_path / "questions"], capsys)[1]
    for ending in (".vec", ".bin", ".ftz"):
        code, _, err = said(["vectors", "export", words, tmp_path / f"x{ending}"], capsys)
        assert code == 0 or (ending == ".ftz" and "at least 256" in err), err
    np.testing.assert_allclose(load_vectors(tmp_path / "x.vec")["bread"], load_vectors(words)["bread"], rtol=1e-4)
    assert said(["convert", tmp_path / "x.vec", tmp_path / "folder"], capsys)[0] == 0
    assert len(transduce.vectors(tmp_path / "folder")) == len(load_vectors(words))
    assert said(["vectors", "page", words, "-o", tmp_path / "map.html"], capsys)[0] == 0
    page = (tmp_path / "map.html").read_text()
    assert '"bread"' in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_map_of_words_in_a_browser(place: Path, tmp_path: Path, browser) -> None:
    said_nothing, asked = [], []
    assert main(["vectors", "page", str(place / "words"), "-o", str(tmp_path / "map.html")]) == 0
    page = browser.new_page(viewport={"width": 1100, "height": 800})
    page.on("console", lambda message: said_nothing.append(message.text))
    page.on("pageerror", lambda error: said_nothing.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "map.html").as_uri())
    page.fill("#search", "Bread")  # as it is written in the list
    assert page.inner_text("#word") == "bread is near to:"
    near = page.locator("#near button")
    assert near.count() >= 5
    other = near.first.locator("span").first.inner_text()
    near.first.click()
    assert page.inner_text("#word") == f"{other} is near to:"
    assert page.input_value("#search") == other
    page.fill("#search", "no such word")
    assert near.count() == 0
    box = page.locator("#map").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -300)
    page.screenshot(path=str(tmp_path / "map.png"))
    assert said_nothing == []
    assert asked == [(tmp_path / "map.html").as_uri()]


# ---- carried over into other models


def test_embeddings_begin_with_vectors(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("de", "en"):
        (tmp_path / f"a.{side}").write_text("".join(f"{line}\n" for _, line in topics(120)))
    words = [
        "train",
        tmp_path / "run",
        "--source",
        tmp_path / "a.de",
        "--target",
        tmp_path / "a.en",
        "--preset",
        "tiny",
    ]
    words += ["--text.tokenizer", "words", "--text.vocabulary", "60", "--training.steps", "2", "--device", "cpu"]
    words += ["--model.d_model", "8", "--model.d_ff", "8", "--model.heads", "2", "--training.bleu_lines", "0"]
    words += ["--model.source_vectors", place / "words", "--training.vectors_rest", "99"]
    code, _, err = said(words, capsys)
    assert code == 0, err
    assert "begin with their vectors" in err
    assert "12 numbers become 8" in err
    model, tokenizers, _ = load(tmp_path / "run")
    table, vectors = model.source.tokens.weight.detach(), load_vectors(place / "words")  # type: ignore[union-attr]
    pieces = [piece.replace("▁", "") for piece in tokenizers.source.pieces(range(tokenizers.source.size))]
    known = [(i, piece) for i, piece in enumerate(pieces) if piece in vectors and i > 3][:12]
    rows = torch.stack([table[i] for i, _ in known])
    ours, theirs = (torch.nn.functional.normalize(x - x.mean(0)) for x in
                    (rows, torch.from_numpy(np.stack([vectors[word] for _, word in known]))))  # fmt: skip
    assert torch.corrcoef(torch.stack([(ours @ ours.T).flatten(), (theirs @ theirs.T).flatten()]))[0, 1] > 0.7


def test_an_rnn_begins_with_vectors_too(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("".join(f"{line}\n" for _, line in topics(120)))
    words = ["train", tmp_path / "run", "--source", tmp_path / "a", "--target", tmp_path / "a", "--device", "cpu"]
    words += [
        "--preset",
        "rnn-attention",
        "--text.tokenizer",
        "words",
        "--text.vocabulary",
        "60",
        "--training.steps",
        "2",
    ]
    words += ["--model.d_model", "12", "--model.target_vectors", place / "words", "--training.vectors_rest", "99"]
    code, _, err = said(words, capsys)
    assert code == 0, err
    assert "target: " in err
    assert "begin with their vectors" in err
    model, tokenizers, _ = load(tmp_path / "run")
    table, vectors = model.target.weight.detach(), load_vectors(place / "words")  # type: ignore[union-attr]
    pieces = [piece.replace("▁", "") for piece in tokenizers.target.pieces(range(tokenizers.target.size))]
    word, row = next((piece, table[i]) for i, piece in enumerate(pieces) if piece in vectors and i > 3)
    centre = np.mean([vectors[piece] for i, piece in enumerate(pieces) if piece and i > 3], axis=0)
    assert torch.cosine_similarity(row, torch.from_numpy(vectors[word] - centre), 0) > 0.9


def test_vectors_are_turned_to_the_width_of_a_table() -> None:
    torch.manual_seed(0)
    vectors, table = torch.randn(50, 6) @ torch.randn(6, 20), torch.randn(10, 8) * 0.1
    narrow = fitted(vectors, table)
    assert narrow.shape == (50, 8)
    centred = vectors - vectors.mean(0)
    cosines = [torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(x).T for x in (centred, narrow)]
    torch.testing.assert_close(*cosines, atol=1e-4, rtol=0)  # they have rank 6, so nothing is lost
    assert narrow.std() == pytest.approx(float(table.std()), rel=1e-4)
    assert fitted(vectors, torch.randn(10, 30)).shape == (50, 30)


# ---- what is refused


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["train", "new", "--preset", "fasttext", "--source", "train.txt"], "needs --task classify"),
        (["train", "new", "--preset", "fasttext", "--task", "classify"], "needs --source"),
        (["train", "new", "--preset", "fasttext", "--task", "classify", "--source", "none"], "no file none"),
        (["train", "new", "--preset", "fasttext", "--task", "classify", "--source", "plain.txt"], "no labels"),
        (["train", "new", "--preset", "fasttext", "--task", "classify", "--source", "train.txt", "--minutes", "1"],
         "takes no --minutes"),
        (["train", "new", "--source", "train.txt", "--task", "classify", "--autotune-minutes", "1"],
         "goes with --preset fasttext"),
        (["train", "run", "--preset", "fasttext", "--task", "classify", "--source", "train.txt"], "trained to its end"),
        (["train", "new", "--model.kind", "fasttext", "--preset", "tiny", "--device", "cpu"], "--preset fasttext"),
        (["translate", "words", "plain.txt"], "word vectors, which give no labels"),
        (["translate", "run", "plain.txt", "--beam", "3"], "has no search.beam"),
        (["translate", "run", "plain.txt", "--alignments"], "takes no glossary, prefix, alignment"),
        (["score", "run", "--source", "plain.txt", "--target", "plain.txt"], "is of the kind fasttext"),
        (["evaluate", "run", "--source", "plain.txt"], "has no labels to compare with"),
        (["convert", "run", "x.txt", "--to", "fasttext"], "must end in .bin"),
        (["convert", "run", "x.bin", "--to", "fasttext", "--rows", "9"], "are for a quantised .ftz"),
        (["vectors", "nearest", "none", "x"], "there is no file or folder none"),
        (["vectors", "analogies", "words", "x"], "give three words"),
        (["vectors", "similarity", "words"], "give two words"),
        (["vectors", "export", "words", "x.npy"], "end its name in"),
        (["vectors", "train", "new", "--source", "plain.txt", "--model.layers", "3"], "section vectors only"),
        (["vectors", "train", "new", "--source", "plain.txt", "--vectors.objective", "labels"], "--preset fasttext"),
    ],
)  # fmt: skip
def test_wrong_usage_gets_a_sentence(
    words: list[str], complaint: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    code, _, err = said(words, capsys)
    assert code == 2, err
    assert complaint in err
    assert not (place / "new").exists()


def test_wrong_types_from_python_are_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="path must be"):
        transduce.vectors(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a word is text"):
        transduce.vectors(place / "words")[3]  # type: ignore[index]
    with pytest.raises(ArgumentError, match='needs task="classify"'):
        transduce.train(tmp_path / "x", [("a", "b")], preset="fasttext")
    with pytest.raises(ArgumentError, match="count must be 1 or more"):
        transduce.vectors(place / "words").nearest("bread", 0)
    with pytest.raises(DataError, match="holds no word vectors"):
        transduce.vectors(tmp_path)
    with pytest.raises(SettingsError, match="there is no label"):
        transduce.load(place / "run").explain("bread", "nothing")
    with pytest.raises(ModelError, match="no model of the kind fasttext"):
        from transduce.commands.fasttext_files import send_fasttext
        from transduce.report import SILENT

        send_fasttext(tmp_path, tmp_path / "x.bin", None, None, None, SILENT)


def test_labels_that_stand_in_blocks_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What comes last is learned best, as in fastText: 0.79 instead of 1.00 on one's own text."""
    lines = topics(400)
    for name, text, warned in (("mixed", lines, False), ("sorted", sorted(lines), True)):
        words = ["train", tmp_path / name, "--task", "classify", "--preset", "fasttext"]
        code, _, err = said([*words, "--source", write(tmp_path / f"{name}.txt", text), *QUICK], capsys)
        assert code == 0
        assert ("lines of one label stand together" in err) == warned


def test_words_need_spaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zh.txt").write_text("我想喝啤酒\n他喜欢狗和猫\n" * 100, encoding="utf-8")
    words = ["vectors", "train", tmp_path / "words", "--source", tmp_path / "zh.txt", *QUICK]
    _, _, err = said([*words, "--vectors.epochs", "1"], capsys)
    assert "the text has no spaces between words; take --vectors.tokens characters" in err
    _, _, err = said([*words[:2], tmp_path / "more", *words[3:], "--vectors.tokens", "characters"], capsys)
    assert "no spaces" not in err


def test_a_word_of_which_nothing_is_known_has_no_neighbours(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = load_vectors(place / "words")
    monkeypatch.setattr(type(vectors), "__getitem__", lambda self, word: np.zeros(12, np.float32))
    with pytest.raises(DataError, match="there is no vector for 'xqz': no part of it is known"):
        vectors.nearest("xqz")
