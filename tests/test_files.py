"""Files that can be trusted, and hands that are careful: what lies on disk may come from anybody, and what is written
replaces nothing by accident. tests/hostile.py attacks the whole; here each rule has its test."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
import torch
from conftest import bundled_pairs, quick_settings
from safetensors.torch import save

import transduce
import transduce.settings.compose
from transduce.cli import main
from transduce.commands.labels import evaluate_labels
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.data.lines import LONGEST_LINE, read_lines
from transduce.data.store import Damaged, Store
from transduce.errors import DataError, ModelError, UserError
from transduce.files import metrics, strict_json
from transduce.files.atomic import clear_parts, write_file
from transduce.files.manifest import read_manifest, verify, write_folder
from transduce.files.output import check_output, write_lines
from transduce.files.run_folder import RunFolder
from transduce.inspect.ideas import masks
from transduce.inspect.side_by_side import around
from transduce.models.load import load
from transduce.models.weights import read_tensors, tensor_bytes
from transduce.settings.sections import DataSettings, TextSettings
from transduce.text.normalise import normalise
from transduce.text.tokenizers import Tokenizers
from transduce.training import checkpoint
from transduce.training.setup import fit
from transduce.training.state import read_state


@pytest.fixture
def model(model_folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(model_folder, tmp_path / "model"))


def sign(folder: Path, **names: str) -> None:
    """Make the manifest say what is there now."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["sha256"]:
        if (folder / name).is_file():
            manifest["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    manifest["sha256"].update(names)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says when it refuses."""
    assert main(list(words)) == 2
    shown = capsys.readouterr().err.replace("\n", " ")
    assert "Traceback" not in shown
    return shown


# ---- a folder from somebody else


@pytest.mark.parametrize(
    "name", ["../out.txt", "/tmp/out.txt", "a/../../b", "a\\b", "weights/../x", "", "x" * 300, "a\0b"]
)
def test_names_that_lead_elsewhere(model: Path, name: str) -> None:
    sign(model, **{name: "0" * 64})
    with pytest.raises(ModelError, match="which is no plain name in this folder"):
        read_manifest(model)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"sha256": []}', '{"sha256": {"a": 3}}', '{"sha256": {"a": "x"}}', "[" * 100_000, "\0"]
)
def test_a_manifest_that_is_none(model: Path, content: str) -> None:
    (model / "manifest.json").write_text(content)
    with pytest.raises(ModelError, match="manifest.json cannot be read; copy the folder again or train anew"):
        load(model)


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.model", "model.safetensors"])
def test_links_pipes_and_giants_are_not_opened(model: Path, tmp_path: Path, name: str) -> None:
    os.rename(model / name, tmp_path / "elsewhere")
    (model / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=f"{name} is a link; put the file itself there"):
        load(model)
    (model / name).unlink()
    os.mkfifo(model / name)
    with pytest.raises(ModelError, match=f"{name} is not an ordinary file"):
        load(model)
    (model / name).unlink()
    (model / name).touch()
    os.truncate(model / name, 100_000_000_000)
    begin = time.monotonic()
    with pytest.raises(ModelError, match=r"bytes, more than the|was cut short or altered"):
        load(model)
    assert time.monotonic() - begin < 5


def test_what_a_model_needs_must_be_in_its_manifest(model: Path) -> None:
    manifest = json.loads((model / "manifest.json").read_text())
    for name in ("config.yaml", "tokenizer.model"):
        less = {key: value for key, value in manifest["sha256"].items() if key != name}
        (model / "manifest.json").write_text(json.dumps({"sha256": less}))
        with pytest.raises(ModelError, match=f"is damaged: manifest.json does not know {name}"):
            load(model)
    (model / "manifest.json").unlink()
    with pytest.raises(ModelError, match="is damaged: manifest.json is missing; copy the folder again"):
        load(model)


def weights_with(model: Path, change: object) -> None:
    tensors = read_tensors(model / "model.safetensors")
    name = sorted(tensors)[0]
    (model / "model.safetensors").write_bytes(save({**tensors, name: change(tensors[name])}))  # type: ignore[operator]
    sign(model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.fill_(float("nan")), r"holds numbers that are infinite or none \(NaN\)"),
        (
            lambda w: w.index_fill(0, torch.tensor([0]), float("inf")),
            r"holds numbers that are infinite or none \(NaN\)",
        ),
        (lambda w: w.long(), "as I64, which is no type of a weight"),
        (lambda w: w.to(torch.uint8), "as U8, which is no type of a weight"),
        (lambda w: w.to(torch.complex64), "as C64, which is no type of a weight"),
        (lambda w: w[:1].clone(), "does not fit config.yaml: .* has shape"),
    ],
    ids=["nan", "infinite", "int64", "uint8", "complex", "shape"],
)
def test_weights_that_are_none(model: Path, change: object, words: str) -> None:
    weights_with(model, change)
    with pytest.raises(ModelError, match=words):
        load(model)


@pytest.mark.parametrize(
    "lines",
    [
        "layers: 1000",
        "layers: 999\n  decoder_layers: 999",
        "d_model: 2000000",
        "d_ff: 2000000000",
        "max_positions: 99999",
    ],
)
def test_settings_that_ask_for_the_moon(model: Path, lines: str) -> None:
    """Shapes are compared before anything is built; the longest table of positions is still small."""
    text = (model / "config.yaml").read_text()
    for line in lines.split("\n"):
        key = line.strip().partition(":")[0]
        text = "\n".join(f"  {line.strip()}" if old.startswith(f"  {key}:") else old for old in text.split("\n"))
    (model / "config.yaml").write_text(text)
    sign(model)
    begin = time.monotonic()
    if "max_positions" in lines:
        load(model)
    else:
        with pytest.raises(UserError, match="does not fit config.yaml"):
            load(model)
    assert time.monotonic() - begin < 5


def test_a_status_for_a_model_that_gives_no_number(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = transduce.load(model_folder, "cpu", beam=1)
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight.fill_(float("nan"))
    for beam in (1, 3):
        (translation,) = loaded.with_search(beam=beam).translate(["ein bier"])
        assert (translation.status, translation.text, translation.score) == ("failed", "", 0.0)
    (score,) = loaded.score([("ein bier", "a beer")])
    assert score.status == "failed"


def test_json_is_strict() -> None:
    for text in ("NaN", "[Infinity]", "[" * 100_000, "{", '{"a": 1e999999'):
        with pytest.raises(ValueError):  # noqa: PT011  (json has many)
            strict_json.loads(text)
    with pytest.raises(ValueError, match="Out of range"):
        strict_json.dumps(float("nan"))


# ---- runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    fit(tmp_path / "run", ListCorpus(bundled_pairs(150)), ListCorpus(bundled_pairs(20, seed=2)), quick_settings())
    return tmp_path / "run"


@pytest.mark.parametrize(
    "change",
    [
        {"step": "x"},
        {"step": -1},
        {"step": 1.5},
        {"epoch": None},
        {"seconds": "1"},
        {"validations": [[1]]},
        {"data": 3},
        {"data": "\ud800"},  # half of a character
    ],
)
def test_a_damaged_state_is_passed_over(run: Path, change: dict) -> None:
    step = RunFolder(run).checkpoints()[-1]
    state = json.loads((step / "state.json").read_text())
    write_folder(step, {"state.json": json.dumps({**state, **change}).encode()})
    found, complaints = checkpoint.latest(RunFolder(run))
    assert found == RunFolder(run).checkpoints()[-2]
    assert "state.json cannot be read" in complaints[0]
    with pytest.raises(ModelError, match="state.json cannot be read"):
        read_state(step)


def test_kept_weights_that_were_altered_are_not_averaged(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = RunFolder(run).kept_weights()[8]
    tensors = read_tensors(path)
    path.write_bytes(tensor_bytes({name: weight + 1 for name, weight in tensors.items()}))
    told = complaint(capsys, "average", str(run), "--last", "2", "--output", str(run.parent / "mean"))
    assert "cannot be read, or is not of this run's model; leave step 8 out" in told


def test_a_store_that_was_altered_is_built_again(tmp_path: Path) -> None:
    tokenizers = Tokenizers.train(bundled_pairs(), TextSettings(vocabulary=300, coverage=1.0))
    given = (ListCorpus(bundled_pairs(50)), tokenizers, DataSettings(), tmp_path)
    store = build_store(*given)
    before = {path.name: path.read_bytes() for path in store.folder.iterdir()}
    facts = json.loads(before["store.json"])
    for name, content, signed in (
        ("source.tokens", b"\xff" * len(before["source.tokens"]), False),
        ("source.tokens", b"\xff" * len(before["source.tokens"]), True),  # tokens beyond the vocabulary
        ("index", (np.frombuffer(before["index"], np.int64) + 10_000).tobytes(), True),  # places beyond the text
        ("store.json", b"[" * 10_000, False),
    ):
        (store.folder / name).write_bytes(content)
        if signed:
            facts["sha256"] = {**facts["sha256"], name: hashlib.sha256(content).hexdigest()}
            (store.folder / "store.json").write_text(json.dumps(facts))
        with pytest.raises(Damaged):
            Store(store.folder)
        assert {path.name: path.read_bytes() for path in build_store(*given).folder.iterdir()} == before


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json", "tokenizer.model"])
@pytest.mark.parametrize("emptied", [True, False])
def test_a_run_that_lost_a_file_is_damaged(
    run: Path, name: str, emptied: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).write_text("") if emptied else (run / name).unlink()
    text = run.parent / "a.txt"
    text.write_text("ein bier\n" * 30)
    told = complaint(capsys, "train", str(run), "--source", str(text), "--target", str(text))
    assert "is damaged" in told
    assert name in told


def test_metrics_from_anybody(tmp_path: Path) -> None:
    lines = [
        '{"kind": "averaged", "step": 1, "seconds": 1}',
        '{"kind": "train", "step": 1, "seconds": NaN, "loss": 1, "rate": 1}',
        '{"kind": "valid", "step": true, "seconds": 1, "loss": 1}',
        "[" * 100_000,
        '{"kind": "valid", "step": 4, "seconds": 1, "loss": 2.5}',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert [record["step"] for record in metrics.read(tmp_path / "metrics.jsonl")] == [4]


class Counted:
    """A corpus that knows how often it was gone through."""

    name = "counted"

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.corpus, self.passes = ListCorpus(pairs), 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.passes += 1
        return iter(self.corpus)


@pytest.mark.parametrize("own_validation", [True, False])
@pytest.mark.parametrize("labels", [True, False])
def test_a_corpus_is_read_twice_and_once_by_a_resume(tmp_path: Path, own_validation: bool, labels: bool) -> None:
    pairs = [
        (source, "long" if labels and len(source) > 25 else "short" if labels else target)
        for source, target in bundled_pairs(400)
    ]
    more = {
        "text": {"joint": False, "target_tokenizer": "labels"},
        "model": {"kind": "classifier", "tie_output": False, "tie_source": False},
    }
    for steps, passes in ((4, 2), (8, 1)):
        training, validation = Counted(pairs), Counted(pairs[:30]) if own_validation else None
        base = quick_settings(training={"steps": steps})
        settings = transduce.settings.compose.compose(more if labels else {}, base=base)
        fit(tmp_path / "r", training, validation, settings)
        assert training.passes == passes
        assert validation is None or validation.passes == passes


# ---- writing


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "victim").read_text() == "mine"  # a link is replaced, not followed
    assert (tmp_path / "link").read_text() == "new"

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device .*what was saved before is untouched"):
        write_file(tmp_path / "link", b"newer")
    assert (tmp_path / "link").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "victim"]


def test_only_our_leftovers_are_removed(tmp_path: Path) -> None:
    for name in ("a.0123abcd.part", "mine.part", "b.txt"):
        (tmp_path / name).write_text("x")
    clear_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.txt", "mine.part"]


def test_outputs_are_asked_for(tmp_path: Path, model: Path) -> None:
    mine, fresh = tmp_path / "mine.txt", tmp_path / "fresh.txt"
    mine.write_text("mine")
    check_output(fresh)
    for path, inputs, force, words in (
        (mine, [], False, "is there already; choose another name, or replace it with --force"),
        (mine, [mine], True, "is an input and cannot be the output too"),
        (tmp_path, [], True, "it is a folder; name a file"),
        (tmp_path / "no" / "x", [], True, "there is no folder .*no for the output x; make it first"),
        (model / "config.yaml", [], True, "belongs to a model and is not written over"),
        (model / "weights" / "best.safetensors", [], True, "belongs to a model and is not written over"),
    ):
        with pytest.raises(DataError, match=words):
            check_output(path, inputs, force)
    check_output(mine, force=True)
    os.link(mine, tmp_path / "other name")
    with pytest.raises(DataError, match="is an input"):
        check_output(tmp_path / "other name", [mine], force=True)
    with open(mine) as stream, pytest.raises(DataError, match="is an input"):
        check_output(mine, [stream.fileno()], force=True)
    mine.write_text("all:\n\ttransduce translate runs/mine a.de -o a.en\n")  # which only speaks of us
    with pytest.raises(DataError, match="is there already"):
        check_output(mine)
    check_output(Path("/dev/null"))


@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "html"])
def test_our_own_pictures_may_be_made_anew_and_others_not(tmp_path: Path, kind: str) -> None:
    """Ours say so where the format has a place for it; a page of somebody who writes about us is his."""
    ours, others = tmp_path / f"ours.{kind}", tmp_path / f"others.{kind}"
    if kind == "html":
        ours.write_text(around("transduce", "", ""))
        others.write_text('<!doctype html>\n<html lang="en">\n<title>How I use transduce</title>')
    else:
        masks(ours)
        made = matplotlib.figure.Figure()
        made.suptitle("transduce")
        made.savefig(others, metadata={"Title": "transduce"})
    check_output(ours)
    with pytest.raises(DataError, match="is there already; choose another name"):
        check_output(others)
    page = '<!doctype html>\n<!-- <meta name="generator" content="transduce"> -->\n<dc:title>transduce</dc:title>'
    (tmp_path / "notes.html").write_text(page)
    with pytest.raises(DataError, match="is there already; choose another name"):
        check_output(tmp_path / "notes.html")


@pytest.mark.parametrize("link", [None, os.symlink, os.link], ids=["itself", "link", "hard link"])
@pytest.mark.parametrize(
    "words",
    [
        "compare MODEL MODEL --source IN.html --reference OTHER -o OUT.html",
        "compare MODEL MODEL --source OTHER --reference IN.html -o OUT.html",
        "plot lengths MODEL --source IN.png --reference OTHER -o OUT.png",
        "plot huffman --source IN.png -o OUT.png",
        "vectors page IN.html -o OUT.html",
        "translate MODEL OTHER --adapter IN.txt -o OUT.txt",
    ],
)
def test_no_command_writes_over_its_input(
    words: str, link: object, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = Path(words).suffix
    (tmp_path / "other").write_text("ein bier\n")
    mine = tmp_path / f"in{end}"
    mine.write_text("ein bier\n")
    output = mine if link is None else tmp_path / f"out{end}"
    if link is not None:
        link(mine, output)  # type: ignore[operator]
    places = {"MODEL": model_folder, "OTHER": tmp_path / "other", f"IN{end}": mine, f"OUT{end}": output}
    told = complaint(capsys, *(str(places.get(word, word)) for word in words.split()), "--force")
    assert "is an input and cannot be the output too" in told
    assert mine.read_text() == "ein bier\n"


def test_a_picture_of_labels_does_not_replace_the_labels(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "x.png").touch()
    for source, reference in (("x.png", None), ("other", "x.png")):
        given = [None if name is None else str(tmp_path / name) for name in (source, reference)]
        with pytest.raises(DataError, match="is an input"):
            evaluate_labels(model_folder, *given, None, 1, tmp_path / "x.png")  # type: ignore[arg-type]


def test_a_link_that_leads_to_itself(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("ein bier\n")
    for name in ("loop", "loop.png", "loop.html"):
        (tmp_path / name).symlink_to(name)
    model, many = str(model_folder), "Too many levels of symbolic links"
    for words in (
        ("translate", model, "in", "-o", "loop"),
        ("translate", model, "loop"),
        ("inspect", model, "ein bier", "-o", "loop.html"),
        ("plot", "masks", "-o", "loop.png", "--force"),
        ("score", model, "--source", "in", "--target", "in", "-o", "loop", "--force"),
    ):
        assert many in complaint(capsys, *words), words
    for words in (
        ("train", "run", "--config", "loop"),
        ("train", "loop", "--source", "in", "--target", "in"),
        ("distill", model, "loop", "--source", "in"),
        ("distill", "loop", "run", "--source", "in"),
        ("translate", "loop", "in"),
        ("convert", "loop", "ours"),
        ("average", "loop", "--last", "2", "--output", "ours"),
        ("average", model, "--last", "2", "--output", "loop"),
    ):
        assert "loop" in complaint(capsys, *words), words
    assert (tmp_path / "loop").is_symlink()


def test_a_fault_leaves_the_old_output_and_the_lines_so_far(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")

    def lines():  # type: ignore[no-untyped-def]
        yield from ("one", "two")
        raise DataError("line 3 is bad")

    with pytest.raises(DataError, match=r"line 3 is bad; 2 lines so far are in (.*\.part)") as caught:
        write_lines(tmp_path / "out", lines())
    assert (tmp_path / "out").read_text() == "old"
    assert Path(str(caught.value).rpartition(" ")[2]).read_text() == "one\ntwo\n"
    assert write_lines(tmp_path / "out", iter(["new"])) == 1
    assert (tmp_path / "out").read_text() == "new\n"


@pytest.mark.parametrize(("room", "kept"), [(0, 0), (100, 3), (9000, 300)])
def test_a_full_disk_keeps_the_lines_that_it_has(tmp_path: Path, room: int, kept: int) -> None:
    """What is told is what lies there: whole lines, and nothing where there are none."""
    program = f"""
import resource
from pathlib import Path
from transduce.files.output import write_lines
resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
write_lines(Path("out"), (f"{{i:029}}" for i in range(400)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    told = done.stderr.splitlines()[-1]
    parts = list(tmp_path.glob("*.part"))
    assert "/out: File too large" in told
    assert [len(part.read_text().splitlines()) for part in parts] == [kept] * bool(kept)
    assert (f"; {kept} lines so far are in {parts[0] if parts else ''}" in told) == bool(kept)


def test_standard_input_is_not_the_output(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g").write_text("ein bier\n" * 5000)
    with open(tmp_path / "g") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        told = complaint(capsys, "translate", str(model_folder), "-o", str(tmp_path / "g"), "--force")
    assert "is an input and cannot be the output too" in told
    assert (tmp_path / "g").read_text() == "ein bier\n" * 5000


def test_the_page_in_a_model_folder_is_not_written_through_a_link(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "victim").write_text("mine")
    (model / "attention.html").symlink_to(tmp_path / "victim")
    assert "is a link and is not written through" in complaint(capsys, "inspect", str(model), "ein bier")
    assert (tmp_path / "victim").read_text() == "mine"


def test_the_corpus_does_not_replace_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", str(tmp_path), "--train", "10"]) == 0
    assert main(["corpus", str(tmp_path), "--train", "10"]) == 0  # the same again is nothing new
    (tmp_path / "dev.de").write_text("mine")
    assert "has other files named dev.de" in complaint(capsys, "corpus", str(tmp_path), "--train", "10")
    assert (tmp_path / "dev.de").read_text() == "mine"
    assert main(["corpus", str(tmp_path), "--train", "10", "--force"]) == 0
    assert (tmp_path / "dev.de").read_text() != "mine"


# ---- text


def test_a_line_has_a_limit_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * LONGEST_LINE + b"\nnext\n")
    assert [len(line) for line in read_lines(tmp_path / "long")] == [LONGEST_LINE, 4]
    (tmp_path / "long").write_bytes(b"ok\n" + b"x" * (LONGEST_LINE + 1))
    with pytest.raises(DataError, match=r"long, line 2: longer than 1,000,000 bytes; is this text"):
        list(read_lines(tmp_path / "long"))
    with pytest.raises(DataError, match=r"/dev/zero, line 1: longer than 1,000,000 bytes"):
        list(read_lines("/dev/zero"))


def test_normalising_takes_no_longer_for_hostile_text() -> None:
    begin = time.process_time()
    normalise("a" + "\u0301\u0323" * 150_000)
    assert time.process_time() - begin < 5  # minutes, if it were normalised in one go
    pieces = ["e\u0301", "한국어".encode().decode(), "\u1112\u1161\u11ab", "我想", " ", "ß", "a\u0323\u0301", "\u0958"]
    text = "".join(pieces[i % len(pieces)] for i in range(9000))
    assert normalise(text) == " ".join(unicodedata.normalize("NFC", text).split())  # in pieces as in one


def test_labels_nobody_has_seen_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [(source, "kurz" if len(source) < 25 else "lang") for source, _ in bundled_pairs(200)]
    transduce.train(
        tmp_path / "r",
        pairs,
        task="classify",
        preset="tiny",
        training={"steps": 2, "device": "cpu"},
        text={"vocabulary": 300},
    )
    (tmp_path / "t.tsv").write_text("ein bier\tkurz\nein haus\tmittel\nein hund\tmittel\n")
    capsys.readouterr()
    assert (
        main(["evaluate", str(tmp_path / "r"), "--source", str(tmp_path / "t.tsv"), "--device", "cpu", "--json"]) == 0
    )
    told = capsys.readouterr().err.replace("\n", " ")
    assert "2 lines have labels that this model has never seen and cannot give: mittel" in told


def test_the_unexpected_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*given: object) -> None:
        raise LookupError("what nobody thought of\nin two lines")

    monkeypatch.setattr("transduce.commands.lookup.entries", broken)
    assert main(["settings"]) == 1
    told = capsys.readouterr().err.replace("\n", " ")
    assert "this should not have happened (LookupError: what nobody thought of); --debug shows where" in told
    with pytest.raises(LookupError):
        main(["settings", "--debug"])


def test_verify_names_all_that_is_wrong(model: Path) -> None:
    (model / "config.yaml").unlink()
    (model / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"config.yaml is missing, model.safetensors was cut short or altered"):
        verify(model, ["config.yaml", "model.safetensors"])
