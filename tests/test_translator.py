"""Text in, text out: as many lines out as in, each with its status, the same in any company."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import pytest
from conftest import bundled_pairs, quick_settings

import transduce
from transduce.core.hypotheses import Hypothesis
from transduce.decoding.garbage import garbage_collection_paused
from transduce.errors import ModelError, SettingsError
from transduce.report import Report

NASTY = [
    "ich trinke ein bier",
    "",
    "  \t ",
    "\ufeff",
    "😀 👍🏽",
    "a\tb",
    "\x00\x01",
    "ich " * 4000,
    "abc" * 7000,
    "das ist gut",
]


def test_every_line_has_an_answer_and_a_status(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    found = model.translate(NASTY * 3)
    assert len(found) == 30
    statuses = [t.status for t in found[:10]]
    assert statuses[1:4] == ["empty"] * 3
    assert statuses[6] == "empty"
    assert statuses[7:9] == ["long"] * 2  # translated in pieces; as trained, one sentence a line, they are cut:
    assert [t.status for t in model.with_search(split=False).translate(NASTY[7:9])] == ["truncated"] * 2
    assert {statuses[0], statuses[4], statuses[5], statuses[9]} <= {"ok", "length"}
    assert [t.text for t in found[:10]] == [t.text for t in found[10:20]]
    assert all("\n" not in t.text for t in found)
    assert [t.source for t in found[:10]] == NASTY
    assert found[1].score == 0.0


def test_the_same_answer_in_any_company(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    sources = [source for source, _ in bundled_pairs(60, seed=4)]
    together = [t.text for t in model.translate(sources)]
    assert [model.translate(source).text for source in sources] == together
    small_batches = transduce.load(model_folder, tokens=64)
    assert [t.text for t in small_batches.translate(sources[::-1])][::-1] == together
    assert [t.text for t in model.stream(iter(sources), chunk=7)] == together


def test_reading_goes_only_a_chunk_ahead(model_folder: Path) -> None:
    read = []

    def lines():
        for i in range(100):
            read.append(i)
            yield "ich schlafe"

    stream = transduce.load(model_folder, beam=1).stream(lines(), chunk=10)
    next(stream)
    assert len(read) == 10


def test_n_best_and_search_settings(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    found = model.translate("ich trinke ein bier", n_best=3)
    assert len(found.candidates) == 3
    assert found.text == found.candidates[0].text
    assert "".join(found.candidates[0].tokens).replace("▁", " ").strip() == found.text
    with pytest.raises(SettingsError, match="n_best=4 must be between 1 and the beam, 3; widen it: --beam 4"):
        model.translate("ich", n_best=4)
    with pytest.raises(SettingsError, match="unknown setting search.beem, did you mean search.beam"):
        transduce.load(model_folder, beem=2)


def test_no_text_comes_twice_among_the_best(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Different tokens may spell one text. Of these the best is given, and others that were found take the places."""
    model = transduce.load(model_folder, beam=5)
    target = model.tokenizers.target
    (usual,), (other,) = target.encode(["the beer is good"]), target.encode(["the wine"])
    cut_otherwise = next(
        ids for (ids,) in (target.sample(["the beer is good"], 0.9, n) for n in range(99)) if ids != usual
    )
    every = [usual, cut_otherwise, other, cut_otherwise, [*other, *other]]
    found = [Hypothesis(ids, -score, -score, True) for score, ids in enumerate(every, 1)]
    for method in ("beam", "sample"):
        model = model.with_search(method=method)
        monkeypatch.setattr(model.engine, "find", lambda requests, roles, _: [found[: roles.n_best] for _ in requests])
        two, five = (model.translate("ich schlafe", n_best=n).candidates for n in (2, 5))
        if method == "sample":  # as they were drawn
            assert [c.text for c in two] == ["the beer is good"] * 2
            continue
        assert [(c.text, c.score) for c in two] == [("the beer is good", -1), ("the wine", -3)]
        assert [c.text for c in five] == ["the beer is good", "the wine", "the wine the wine"]


def test_scores_are_those_of_search(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    sources = [source for source, _ in bundled_pairs(20, seed=5)]
    for t in model.translate(sources):
        candidate = t.candidates[0]
        ids = model.tokenizers.target.encode([candidate.text])[0]
        if t.status == "ok" and model.tokenizers.target.pieces(ids) == list(candidate.tokens):
            (scored,) = model.score([(t.source, candidate.text)])
            assert scored.log_probability == pytest.approx(candidate.log_probability, abs=1e-3)
            assert scored.tokens == len(candidate.tokens) + 1
            break
    else:
        pytest.fail("no translation ended")


def test_scoring_in_any_company_and_what_cannot_be_scored(model_folder: Path) -> None:
    model = transduce.load(model_folder)
    pairs = [*bundled_pairs(30, seed=6), ("", ""), ("ich " * 999, "i"), ("ich", "i " * 999)]
    together = list(model.score(pairs, chunk=11))
    for pair, scored in zip(pairs[:5], together, strict=False):
        assert next(model.score([pair])).log_probability == pytest.approx(scored.log_probability, abs=1e-3)
    assert [s.status for s in together[30:]] == ["ok", "truncated", "too long"]
    assert together[32].log_probability != together[32].log_probability  # nan


def test_training_from_pairs_in_memory(tmp_path: Path) -> None:
    quick = quick_settings()
    model = transduce.train(
        tmp_path / "r",
        bundled_pairs(100),
        preset="tiny",
        report=Report(),
        model={"layers": 1, "d_model": 32, "heads": 2, "d_ff": 32},
        text={"vocabulary": 200},
        training={"steps": 3, "validate_every": 3, "device": "cpu"},
    )
    assert isinstance(model.translate("ich schlafe").text, str)
    assert model.settings.model.layers == quick.model.layers == 1
    assert (tmp_path / "r/config.yaml").exists()


def test_weights_can_be_chosen(model_folder: Path) -> None:
    texts = {
        w: transduce.load(model_folder, weights=w).translate("ich schlafe").text for w in ("best", "last", "averaged")
    }
    assert len(texts) == 3
    with pytest.raises(ModelError, match="holds no worst weights; there are: best, last, averaged"):
        transduce.load(model_folder, weights="worst")


# ---- folders that are no model


@pytest.fixture
def copy(model_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(model_folder, tmp_path / "m")
    return tmp_path / "m"


def test_damage_is_named(copy: Path) -> None:
    weights = copy / "model.safetensors"
    whole = weights.read_bytes()
    for content in (whole[:-7], whole[:-1] + b"!", b""):
        weights.write_bytes(content)
        with pytest.raises(ModelError, match="is damaged: model.safetensors was cut short or altered; copy the folder"):
            transduce.load(copy)
    weights.unlink()
    (copy / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(ModelError, match="model.safetensors is missing, tokenizer.model was cut short or altered"):
        transduce.load(copy)


def test_folders_that_are_no_model(copy: Path, tmp_path: Path) -> None:
    from transduce.files.manifest import write_folder
    from transduce.models.weights import read_tensors

    with pytest.raises(ModelError, match="there is no folder .*nowhere"):
        transduce.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="file is a file, not a model folder"):
        transduce.load(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"empty is not a model folder: it has no manifest.json"):
        transduce.load(tmp_path / "empty")
    write_folder(tmp_path / "begun", {"config.yaml": b""})
    with pytest.raises(ModelError, match="begun is not a model folder: training has not saved a model yet"):
        transduce.load(tmp_path / "begun")
    (copy / "manifest.json").write_text("{")
    with pytest.raises(ModelError, match="manifest.json cannot be read; copy the folder again"):
        transduce.load(copy)
    (tmp_path / "x.safetensors").write_bytes(b"12345678")
    with pytest.raises(ModelError, match="x.safetensors is damaged or cut short"):
        read_tensors(tmp_path / "x.safetensors")


def test_a_device_that_is_not_there(model_folder: Path) -> None:
    import torch

    if torch.backends.mps.is_available():
        pytest.skip("this machine has mps")
    with pytest.raises(SettingsError, match="device mps is not available on this machine; there is: auto, cpu"):
        transduce.load(model_folder, device="mps")


# ---- many machines


def test_shards_are_joined_in_the_order_of_the_lines(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transduce.cli import main

    text = tmp_path / "text.de"
    text.write_text("".join(f"{source}\n" for source, _ in bundled_pairs(11, seed=5)) + "\n", encoding="utf-8")
    assert main(["translate", str(model_folder), str(text), "-o", str(tmp_path / "whole")]) == 0
    parts = []
    for i in range(1, 6):
        parts.append(str(tmp_path / f"part.{i}"))
        assert main(["translate", str(model_folder), str(text), "--shard", f"{i}/5", "-o", parts[-1]]) == 0
    assert main(["merge", *parts, "--like", str(text), "-o", str(tmp_path / "joined")]) == 0
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "whole").read_bytes()
    capsys.readouterr()
    assert main(["translate", str(model_folder), str(text), "--shard", "3/5", "--json"]) == 0
    assert [json.loads(line)["line"] for line in capsys.readouterr().out.splitlines()] == [3, 8]

    records = [str(tmp_path / f"json.{i}") for i in (1, 2)]
    for i, record in enumerate(records, 1):
        assert main(["translate", str(model_folder), str(text), "--shard", f"{i}/2", "--json", "-o", record]) == 0
    assert main(["merge", *records, "-o", str(tmp_path / "records")]) == 0
    assert main(["merge", *reversed(records)]) == 2
    assert "json.2 has line 2 where line 1 should come; give each part once" in capsys.readouterr().err.replace(
        "\n", " "
    )

    lines = Path(parts[1]).read_text().splitlines()
    Path(parts[1]).write_text("\n".join(lines[:-1]) + "\n")
    before = (tmp_path / "joined").read_bytes()
    wrong = {
        (*parts, "--like", str(text)): "part.2 has 2 lines and should have 3, as shard 2/5 of 12",
        (parts[2], parts[0]): "part.3 has 2 lines and should have 3, as shard 1/2 of 5",
        (*parts[2:], "--like", str(text)): "part.3 has 2 lines and should have 4, as shard 1/3 of 12",
        (parts[0],): "name the outputs of all shards",
    }
    for given, told in wrong.items():
        assert main(["merge", *given, "-o", str(tmp_path / "joined"), "--force"]) == 2, told
        assert told in capsys.readouterr().err.replace("\n", " ")
    assert (tmp_path / "joined").read_bytes() == before
    assert main(["translate", str(model_folder), str(text), "--shard", "1/2", "--n-best", "2"]) == 2
    assert "--n-best with --shard or --resume needs --json" in capsys.readouterr().err.replace("\n", " ")
    for shard in ("0/2", "3/2", "a/b", "2", "1/0"):
        assert main(["translate", str(model_folder), str(text), "--shard", shard]) == 2
        assert "must be a part and their number, such as 2/4" in capsys.readouterr().err.replace("\n", " ")


def test_a_model_says_what_it_is(model_folder: Path) -> None:
    said = repr(transduce.load(model_folder))
    assert "transformer, 1 layers of width" in said
    assert "weights" in said
    assert "on cpu" in said


def test_the_collector_is_on_again_whoever_ends_first() -> None:
    """Two threads of a service translate at once; the one that came second must not find it off, and leave it so."""
    assert gc.isenabled()
    first, second = garbage_collection_paused(), garbage_collection_paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
