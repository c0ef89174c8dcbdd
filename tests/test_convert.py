"""Models of others, in and out: the same numbers, the same texts."""

from __future__ import annotations

import io
import json
import math
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from conftest import Notes, break_, bundled_pairs, quick_settings, some_text
from foreign import marian_folder, sentence_pieces

import transduce
from transduce.commands.convert import convert
from transduce.commands.parity import Equal
from transduce.commands.send import sentences_for, sentences_of_run
from transduce.core import transformer
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END, SPECIAL, UNKNOWN
from transduce.data.corpus import ListCorpus
from transduce.decoding.marks import marks_of
from transduce.decoding.sentences import sentences_of
from transduce.errors import ArgumentError, ModelError, SettingsError
from transduce.files.manifest import write_folder
from transduce.formats.hugging_face_out import Copy
from transduce.formats.pickled import MAGIC, PROTOCOL, Name, Storage, _described, read_pickled
from transduce.formats.pieces import read_pieces, renumbered
from transduce.models.load import load
from transduce.report import SILENT
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.text.subwords import SubwordTokenizer
from transduce.training.setup import fit
from transduce.training.state import RunState
from transduce.training.trial import usual_batch
from transduce.training.updater import Updater

transformers = pytest.importorskip("transformers", reason="Hugging Face's models are compared with transformers")
PAIRS = bundled_pairs(400)


def their_ids(folder: Path, shared: bool) -> Any:
    return transformers.MarianTokenizer(
        str(folder / "source.spm"),
        str(folder / "target.spm"),
        str(folder / "vocab.json"),
        target_vocab_file=None if shared else str(folder / "target_vocab.json"),
        separate_vocabs=not shared,
    )


@pytest.mark.parametrize(
    ("shared", "activation", "tied"), [(True, "swish", True), (False, "relu", True), (True, "gelu", False)]
)
def test_a_marian_model_gives_the_same_numbers_and_texts(
    tmp_path: Path, shared: bool, activation: str, tied: bool
) -> None:
    folder = marian_folder(tmp_path / "opus", shared, activation, tied)
    convert(folder, tmp_path / "ours")
    model, tokenizers, settings = load(tmp_path / "ours")
    theirs = transformers.MarianMTModel.from_pretrained(folder).eval()
    tokenizer = their_ids(folder, shared)
    line = PAIRS[3][0]
    pieces = tokenizer.tokenize(line)
    assert tokenizers.source.pieces(tokenizers.source.encode([line])[0]) == pieces
    source, target = (tokenizers.source.encode([PAIRS[3][0]])[0], tokenizers.target.encode([PAIRS[3][1]])[0])
    with torch.no_grad():
        ours = model(lay_out([[[*source, END]]]), lay_out([[[BEGIN, *target]]]))[0]
        their_source = tokenizer([line], return_tensors="pt").input_ids
        their_target = torch.tensor([[theirs.config.decoder_start_token_id, *_ids(tokenizer, PAIRS[3][1])]])
        expected = theirs(their_source, decoder_input_ids=their_target).logits[0]
    names = json.loads((folder / ("vocab.json" if shared else "target_vocab.json")).read_text())
    kept = list(range(4, tokenizers.target.size))
    rows = [names[tokenizers.target.pieces([i])[0].replace("▁>>", ">>")] for i in kept]
    assert torch.allclose(ours[:, kept], expected[:, rows], atol=1e-5)
    assert torch.allclose(ours[:, END], expected[:, 0], atol=1e-5)
    assert settings.search.beam == 4


def _ids(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text_target=text).input_ids[:-1]


def test_a_token_that_is_called_like_a_special_one_is_not_taken_for_it(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus")
    names = json.loads((folder / "vocab.json").read_text())
    unused = next(name for name in names if len(name) > 4 and name.startswith("▁") and ">" not in name)
    (folder / "vocab.json").write_text(json.dumps({("<s>" if n == unused else n): i for n, i in names.items()}))
    convert(folder, tmp_path / "ours")
    tokenizer = load(tmp_path / "ours").tokenizers.target
    assert tokenizer.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert f"<unused {names[unused]}>" in tokenizer.pieces(range(tokenizer.size))


def with_padding_as_converted(folder: Path) -> None:
    """Hugging Face's converter gives padding, which Marian has not, zeros: a logit of 0, where others are far below.
    Newer folders say that it must not take its share of the probability."""
    from safetensors.torch import load_file, save_file

    weights, pad = load_file(folder / "model.safetensors"), json.loads((folder / "vocab.json").read_text())["<pad>"]
    weights["final_logits_bias"] -= 6
    for name, value in weights.items():
        if name == "final_logits_bias" or name.endswith(("shared.weight", "embed_tokens.weight")):
            (value[0] if name == "final_logits_bias" else value)[pad] = 0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    break_(folder, "generation_config.json", lambda c: c.update(renormalize_logits=True))


@pytest.mark.parametrize(
    ("shared", "zeros", "beam", "early"),
    [
        *((shared, False, *how) for shared in (True, False) for how in ((1, False), (4, False), (4, True))),
        (True, True, 1, False),
        (True, True, 4, True),  # (`generate` takes what it may not write out of the softmax here, and <unk> with it)
    ],
)
def test_a_marian_model_writes_the_same_texts(
    tmp_path: Path, shared: bool, zeros: bool, beam: int, early: bool
) -> None:
    folder = marian_folder(tmp_path / "opus", shared)
    break_(folder, "generation_config.json", lambda c: c.update(early_stopping=early))
    if zeros:
        with_padding_as_converted(folder)
    convert(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours", beam=beam, split=False)
    theirs, tokenizer = transformers.MarianMTModel.from_pretrained(folder).eval(), their_ids(folder, shared)
    lines = [source for source, _ in PAIRS[:40]]
    expected = []
    for line in lines:
        rows = tokenizer([line], return_tensors="pt")
        limit = rows.input_ids.size(1) + 50  # `generate` forces an end there, and so does the model of ours
        out = theirs.generate(
            **rows,
            num_beams=beam,
            max_new_tokens=limit,
            do_sample=False,
        )
        expected.append(tokenizer.decode(out[0], skip_special_tokens=True, use_source_tokenizer=False))
    assert [t.text for t in ours.translate(lines)] == expected


# ---- weights in a pickle


@pytest.mark.parametrize("zipped", [True, False])
def test_weights_in_a_pickle_are_read_without_running_it(tmp_path: Path, zipped: bool) -> None:
    folder = marian_folder(tmp_path / "opus")
    convert(folder, tmp_path / "a")
    weights = transformers.MarianMTModel.from_pretrained(folder).state_dict()
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    (folder / "model.safetensors").unlink()
    convert(folder, tmp_path / "b")
    for (name, a), b in zip(
        load(tmp_path / "a").model.named_parameters(), load(tmp_path / "b").model.parameters(), strict=True
    ):
        assert torch.equal(a, b), name


class Evil:
    def __reduce__(self) -> tuple:
        return (open, ("evil", "w"))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_something_is_refused(
    tmp_path: Path, zipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, tmp_path / "x.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ModelError, match="asks for .*open, which is no part of a tensor"):
        read_pickled(tmp_path / "x.bin")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_tensors_of_every_type_and_layout_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    whole = (torch.randn(6, 5) * 9).to(dtype)
    held = {
        "a": whole,
        "b": whole[1:4, ::2],
        "c": whole.t(),
        "d": torch.nn.Parameter(torch.randn(2)),
        "e": torch.zeros(0, 3),
    }
    torch.save(held, tmp_path / "x.bin")
    found = read_pickled(tmp_path / "x.bin")
    assert found.keys() == held.keys()
    assert all(torch.equal(found[name], held[name]) for name in held)


def test_a_pickle_made_to_take_long_is_refused_soon(tmp_path: Path) -> None:
    """Tuples in tuples, each of which would have been looked for from the bottom of the stack; and huge numbers."""
    begin = pickle.dumps(MAGIC, 2) + pickle.dumps(PROTOCOL, 2) + pickle.dumps({}, 2)
    (tmp_path / "deep.bin").write_bytes(begin + b"\x80\x02" + b"(t" * 400_000 + b".")
    with pytest.raises(ModelError, match="deep.bin"):
        read_pickled(tmp_path / "deep.bin")
    twice = b"h\x00h\x00\x86q\x00"  # a tuple of the last one twice: each doubles what a hash has to go through
    nested = b"\x80\x02)q\x00" + twice * 60
    as_keys = begin + b"\x80\x02}." + nested + b"\x85."
    as_facts = b"\x80\x02}X\x01\x00\x00\x00acargparse\nNamespace\n)\x81]" + nested[2:] + b"K\x01\x86abs."
    for program in (as_keys, begin + as_facts + b"\x80\x02]."):
        (tmp_path / "keys.bin").write_bytes(program)
        with pytest.raises(ModelError, match="keys.bin"):
            read_pickled(tmp_path / "keys.bin")
    huge = (Storage(torch.float32, "0", 1), 0, (2**2000,) * 2, (1, 1))
    with pytest.raises(ValueError, match="describes a tensor in no known way"):
        _described(Name("torch._utils _rebuild_tensor_v2"), huge)


def test_what_tensors_share_is_read_once(tmp_path: Path) -> None:
    whole, other = torch.arange(60.0), torch.arange(9.0)
    held = {"a": whole[:9], "b": other, "c": whole[9:20], "d": other[2:], "e": whole}
    torch.save(held, tmp_path / "x.bin")
    read: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            zipfile.ZipFile, "read", lambda *given, real=zipfile.ZipFile.read: read.append(given[1]) or real(*given)
        )
        found = read_pickled(tmp_path / "x.bin")
    assert all(torch.equal(found[name], held[name]) for name in held)
    assert list(found) == list(held)
    assert len([name for name in read if "/data/" in name]) == 2


@pytest.mark.parametrize("zipped", [True, False])
def test_a_mutated_pickle_is_read_or_refused(tmp_path: Path, zipped: bool) -> None:
    stream, random = io.BytesIO(), Random(5)
    torch.save({"a": torch.arange(6.0)}, stream, _use_new_zipfile_serialization=zipped)
    path, refused = tmp_path / "x.bin", 0
    for _ in range(500):
        content = bytearray(stream.getvalue())
        for _ in range(random.randint(1, 4)):
            content[random.randrange(len(content))] = random.randrange(256)
        path.write_bytes(content[: random.randrange(len(content))] if random.random() < 0.3 else content)
        try:
            read_pickled(path)
        except ModelError:
            refused += 1
    assert refused > 100


# ---- by a name on the hub


def test_a_name_is_fetched_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, asked = marian_folder(tmp_path / "opus"), []

    def snapshot(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, revision, "pytorch_model.bin" in allow_patterns))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    convert(Path("Helsinki-NLP/opus-mt-de-en"), tmp_path / "ours", revision="abc")
    assert asked == [("Helsinki-NLP/opus-mt-de-en", "abc", False)]
    assert (tmp_path / "ours" / "model.safetensors").exists()
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    convert(Path("Helsinki-NLP/opus-mt-de-en"), tmp_path / "older")
    assert asked[1:] == [("Helsinki-NLP/opus-mt-de-en", None, False), ("Helsinki-NLP/opus-mt-de-en", None, True)]


def test_without_network_a_name_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="there is no folder nobody/nothing, and from the hub it cannot") as refused:
        convert(Path("nobody/nothing"), tmp_path / "ours")
    assert "\n" not in str(refused.value)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match="there is no folder nobody/nothing; to fetch it from the hub: pip install"):
        convert(Path("nobody/nothing"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


# ---- out again


@pytest.mark.parametrize("shared", [True, False])
def test_out_and_in_again_is_the_same(tmp_path: Path, shared: bool) -> None:
    convert(marian_folder(tmp_path / "opus", shared), tmp_path / "ours")
    table = convert(tmp_path / "ours", tmp_path / "out", to="huggingface", text=some_text(tmp_path), check=True)
    assert table is not None
    assert [row[1] for row in table.rows[1:4]] == ["100.0%", "100.0", "100.0%"]
    convert(tmp_path / "out", tmp_path / "again")
    first, second = load(tmp_path / "ours"), load(tmp_path / "again")
    assert first.tokenizers.files() == second.tokenizers.files()
    for (name, a), b in zip(first.model.named_parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize("joint", [True, False])
def test_a_model_of_ours_loads_there(tmp_path: Path, norm: str, joint: bool) -> None:
    settings = quick_settings(
        model={"norm": norm, "tie_source": joint, "activation": "gelu"},
        text={"joint": joint},
        training={"steps": 60, "validate_every": 60},
        optimizer={"rate": 3e-3, "warmup": 10},
    )
    fit(tmp_path / "run", ListCorpus(PAIRS), None, settings)
    if norm == "before" and not joint:
        with pytest.raises(ModelError, match="no model with two vocabularies and norms before"):
            convert(tmp_path / "run", tmp_path / "out", to="huggingface")
        return
    table = convert(tmp_path / "run", tmp_path / "out", to="huggingface", check=True)
    assert table is not None
    assert float(table.rows[1][1].rstrip("%")) >= 99
    convert(tmp_path / "out", tmp_path / "again")  # a Pegasus too, if the norm is before
    ours, again = (transduce.load(tmp_path / name, "cpu", beam=1) for name in ("run", "again"))
    lines = [source for source, _ in PAIRS[:20]]
    assert [t.text for t in again.translate(lines)] == [t.text for t in ours.translate(lines)]


@pytest.mark.parametrize("quantization", [None, "int8", "int16", "float16"])
def test_ctranslate2_gives_our_texts(tmp_path: Path, model_folder: Path, quantization: str | None) -> None:
    pytest.importorskip("ctranslate2")
    table = convert(model_folder, tmp_path / "out", to="ctranslate2", quantization=quantization, check=True)
    assert table is not None
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"model.bin", "source.spm", "target.spm"}


def test_ctranslate2_writes_no_padding_though_nobody_forbids_it(tmp_path: Path) -> None:
    """Hugging Face is told so by generation_config.json, and we never write it; a CTranslate2 folder says nothing."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    with_padding_as_converted(folder := marian_folder(tmp_path / "opus", True))
    break_(folder, "generation_config.json", lambda c: c.pop("renormalize_logits"))  # older folders have none
    convert(folder, tmp_path / "ours")
    table = convert(tmp_path / "ours", tmp_path / "out", to="ctranslate2", text=some_text(tmp_path), check=True)
    assert table is not None
    sources = load(tmp_path / "ours").tokenizers.source
    pieces = [sources.pieces(ids) for ids in sources.encode([source for source, _ in PAIRS[:12]])]
    found = ctranslate2.Translator(str(tmp_path / "out")).translate_batch(pieces, beam_size=4)
    assert not {"<pad>", "<unk>", "<s>"} & {token for one in found for token in one.hypotheses[0]}


def test_what_a_format_cannot_express_is_refused(tmp_path: Path) -> None:
    settings = quick_settings(model={"score": "dot"}, training={"steps": 1, "validate_every": 1})
    fit(tmp_path / "run", ListCorpus(PAIRS), None, settings)
    for to, words in (("huggingface", "the scaled dot score only"), ("ctranslate2", "the scaled dot score only")):
        with pytest.raises(ModelError, match=words):
            convert(tmp_path / "run", tmp_path / "out", to=to)
    with pytest.raises(SettingsError, match="--quantization int8 needs --to ctranslate2"):
        convert(tmp_path / "run", tmp_path / "out", to="huggingface", quantization="int8")
    assert not (tmp_path / "out").exists()


def test_a_minimum_counts_a_forced_end_apart(tmp_path: Path) -> None:
    """As `generate` does: what it forces is one token more."""
    folder = marian_folder(tmp_path / "opus", True)
    convert(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours", "cpu", beam=1, extra=0, forced_end=True, min_length=4, max_length=5)
    lines = [source for source, _ in PAIRS[:12]]
    assert all(len(t.candidates[0].tokens) == 4 for t in ours.translate(lines))
    assert ours.lengths.limit(20) == ours.lengths.least(20) == 4


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"suppress_tokens": [5]}, "not taken over: suppress_tokens"),
        ({"bad_words_ids": [[7]]}, "bad_words_ids of 1 words"),
        ({"length_penalty": -1.0}, "length_penalty=-1.0, for which it is 0 here"),
        ({"do_sample": True}, "do_sample=True"),
    ],
    ids=str,
)
def test_what_is_not_taken_over_is_told(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    folder, notes = marian_folder(tmp_path / "opus", True), Notes()
    break_(folder, "generation_config.json", lambda generation: generation.update(said))
    convert(folder, tmp_path / "ours", report=notes)
    assert any(words in line for line in notes.said)


def test_generation_config_alone_says_how_to_search(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus", True)
    break_(folder, "config.json", lambda config: config.update(num_beams=6, length_penalty=2.0, forced_eos_token_id=0))
    (folder / "generation_config.json").write_text('{"repetition_penalty": 1.5, "eos_token_id": [0]}')
    convert(folder, tmp_path / "ours")
    search = transduce.load(tmp_path / "ours", "cpu").search
    assert (search.beam, search.length_penalty, search.forced_end) == (1, 1.0, False)
    assert search.repetition_penalty == 1.5
    (folder / "generation_config.json").write_text('{"forced_eos_token_id": 0, "eos_token_id": [0]}')
    convert(folder, tmp_path / "forced")
    assert transduce.load(tmp_path / "forced", "cpu").search.forced_end


def test_where_a_model_may_lie(tmp_path: Path) -> None:
    """One folder too high; the cache of the hub; adapters; weights of another kind."""
    (tmp_path / "all").mkdir()
    folder = marian_folder(tmp_path / "all" / "opus", True)
    with pytest.raises(ModelError, match=r"all holds no model that is known here: one may lie in .*all/opus"):
        convert(tmp_path / "all", tmp_path / "ours")
    cache = tmp_path / "models--someone--opus"
    shutil.copytree(folder, cache / "snapshots" / "abc")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abc")
    convert(cache, tmp_path / "ours")
    for path in folder.glob("*.safetensors"):
        path.unlink()
    (folder / "tf_model.h5").touch()
    with pytest.raises(
        ModelError, match=r"no model.safetensors or pytorch_model.bin.*; what is there, tf_model.h5, is"
    ):
        convert(folder, tmp_path / "none")
    (folder / "adapter_config.json").touch()
    with pytest.raises(ModelError, match="holds adapters, not a model: merge them"):
        convert(folder, tmp_path / "none")


def test_what_lies_beside_a_new_model_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part" / "mine").write_text("x")
    with pytest.raises(ModelError, match="there is no model"):
        convert(tmp_path / "none", tmp_path / "out")
    convert(marian_folder(tmp_path / "opus", True), tmp_path / "out")
    assert (tmp_path / "out.part" / "mine").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["opus", "out", "out.part"]


def test_search_settings_come_back_as_they_went_out(tmp_path: Path) -> None:
    convert(marian_folder(tmp_path / "opus", True), tmp_path / "ours")
    given = {"no_repeat": 3, "min_length": 2, "forced_end": True}
    settings = compose({"search": given}, base=config_file.read_whole(tmp_path / "ours" / "config.yaml"))
    write_folder(tmp_path / "ours", {"config.yaml": config_file.write(settings).encode()})
    convert(tmp_path / "ours", tmp_path / "out", to="huggingface", text=some_text(tmp_path))
    convert(tmp_path / "out", tmp_path / "again")
    search = transduce.load(tmp_path / "again", "cpu").search
    assert {name: getattr(search, name) for name in given} == given


def test_a_failed_comparison_is_an_error(tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its texts, with a beam and without, or its numbers."""
    text, copy = some_text(tmp_path), "transduce.formats.hugging_face_out.Copy"
    translate, numbers = Copy.translate, Copy.log_probabilities
    breaks: list[tuple[str, Any, str]] = [
        ("translate", lambda *_: "no", "only 0.0% of the greedy translations by .* agree; at least 98%"),
        (
            "translate",
            lambda *given: "no" if given[2] > 1 else translate(*given),
            "only 0.0% of the beam .*; at least 90%",
        ),
        ("log_probabilities", lambda *given: numbers(*given) + 0.01, "differ by up to 0.01; at most 0.001 is allowed"),
        ("log_probabilities", lambda *given: numbers(*given) * math.nan, "differ by up to nan"),
    ]
    for name, broken, words in breaks:
        with monkeypatch.context() as patch, pytest.raises(ModelError, match=words):
            patch.setattr(f"{copy}.{name}", broken)
            convert(model_folder, tmp_path / "out", to="huggingface", text=text, check=True)
        assert not (tmp_path / "out").exists()


def test_one_translation_may_differ_and_no_more() -> None:
    """Where two tokens are as probable to the last digits, systems choose either: of few sentences that is a share."""
    assert [Equal(count, 12).enough(0.98) for count in (12, 11, 10)] == [True, True, False]
    assert [Equal(count, 200).enough(0.98) for count in (196, 195)] == [True, False]
    assert not Equal(0, 1).enough(0.98)


def test_a_copy_in_fewer_bits_must_be_alike(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr("transduce.formats.ctranslate2_out.Copy.translate", lambda *_: "no")
    with pytest.raises(ModelError, match=r"have a chrF of \d+ to each other; at least 80 is needed"):
        convert(model_folder, tmp_path / "out", to="ctranslate2", quantization="int8", check=True)


def test_what_cannot_be_compared_is_not_called_checked(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(
        SettingsError, match="--check compares it with the original, which needs: pip install transformers"
    ):
        convert(model_folder, tmp_path / "out", to="huggingface", check=True)
    said = Notes()
    convert(model_folder, tmp_path / "out", to="huggingface", report=said)
    assert "it is not compared with the original" in said.said[-1]


def test_from_python(tmp_path: Path, model_folder: Path) -> None:
    transduce.convert(model_folder, tmp_path / "out", to="huggingface", text=some_text(tmp_path))
    with pytest.raises(ArgumentError, match="destination must be the name of a folder"):
        transduce.convert(model_folder, 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="to must be one of transduce, huggingface, .*, not 'marian'"):
        transduce.convert(model_folder, tmp_path / "other", to="marian")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="quantization must be one of int8, "):
        transduce.convert(model_folder, tmp_path / "other", to="ctranslate2", quantization="int4")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="text must be the name of a file, as str or Path, not 5"):
        transduce.convert(model_folder, tmp_path / "other", to="ctranslate2", text=5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="revision must be str, not 5"):
        transduce.convert(model_folder, tmp_path / "other", revision=5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="languages must be two"):
        transduce.convert(model_folder, tmp_path / "other", languages="de")  # type: ignore[arg-type]


# ---- further from a model


def test_a_run_begins_with_a_model(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus")
    convert(folder, tmp_path / "base")
    base = load(tmp_path / "base")
    said = Notes()
    new = transduce.train(
        tmp_path / "run",
        PAIRS[:50],
        PAIRS[50:60],
        report=said,
        training={"start": str(tmp_path / "base"), "steps": 1, "validate_every": 1, "device": "cpu"},
        optimizer={"rate": 1e-9, "warmup": 1},
    )
    assert new.tokenizers.files() == base.tokenizers.files()
    for (name, a), b in zip(new.model.named_parameters(), base.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6), name
    assert any("as it is: validation loss" in words for words in said.said)


def test_a_run_from_a_model_goes_on_without_it(tmp_path: Path, model_folder: Path) -> None:
    base = shutil.copytree(model_folder, tmp_path / "base")
    wanted = {"start": str(base), "steps": 4, "validate_every": 2, "device": "cpu"}
    straight = transduce.train(tmp_path / "a", PAIRS[:50], PAIRS[50:60], report=SILENT, training=wanted)
    transduce.train(
        tmp_path / "b",
        PAIRS[:50],
        PAIRS[50:60],
        report=SILENT,
        training={**wanted, "steps": 2},
        optimizer={"schedule": "constant"},
    )
    shutil.rmtree(base)
    assert straight.settings.training.start == str(base)
    again = transduce.train(tmp_path / "b", PAIRS[:50], PAIRS[50:60], report=SILENT, training={"steps": 4})
    assert again.settings.model == straight.settings.model


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": {"layers": 9}}, "model.layers=9 cannot be: the run begins with"),
        ({"text": {"vocabulary": 99}}, "text.vocabulary=99 cannot be: the run begins with"),
    ],
)
def test_what_a_model_decides_cannot_be_changed(tmp_path: Path, model_folder: Path, settings: dict, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        transduce.train(tmp_path / "r", PAIRS[:50], training={"start": str(model_folder)}, **settings)


def test_a_preset_does_not_go_with_a_model(tmp_path: Path, model_folder: Path) -> None:
    with pytest.raises(SettingsError, match="--preset small does not go with --from"):
        transduce.train(tmp_path / "r", PAIRS[:50], preset="small", training={"start": str(model_folder)})
    with pytest.raises(SettingsError, match="does not go with --task classify: that model translates"):
        transduce.train(tmp_path / "r", PAIRS[:50], task="classify", training={"start": str(model_folder)})


@pytest.mark.parametrize(
    ("parts", "stay"),
    [
        ("encoder", lambda name: name.startswith("encoder")),
        ("decoder.0, source", lambda name: name.startswith(("decoder.0.", "source."))),
    ],
)
@pytest.mark.parametrize("optimizer", ["adam", "muon", "schedule_free"])
def test_what_is_frozen_stays_and_the_rest_learns(
    tmp_path: Path, parts: str, stay: Callable[[str], bool], optimizer: str
) -> None:
    wanted = quick_settings(
        training={"steps": 3, "freeze": parts, "start": "x"}, optimizer={"name": optimizer, "weight_decay": 0.0}
    )
    torch.manual_seed(1)
    updater = Updater(transformer.build(wanted.model, 40, 40), wanted, "cpu")
    before = {name: weight.detach().clone() for name, weight in updater.model.named_parameters()}
    batch = usual_batch([([5, 6, 7], [8, 9]), ([10, 11], [12, 13, 14])], 64)
    for _ in range(3):
        updater.update([batch], RunState(step=10))
    for name, weight in updater.model.named_parameters():
        if not name.endswith("key.bias"):  # which has no gradient: softmax does not see it
            assert torch.equal(weight, before[name]) == stay(name), name


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ("middle", "the model has no weights of 'middle'; parts are encoder"),
        ("encoder.7", "no weights of 'encoder.7'"),
        ("encoder.0-9", "the encoder has no layer 9; they count from 0"),
        ("encoder,decoder,source,target,projection", "leaves nothing to learn"),
    ],
)
def test_parts_that_there_are_not_are_named(parts: str, words: str) -> None:
    wanted = quick_settings(training={"freeze": parts, "start": "x"})
    with pytest.raises(SettingsError, match=words):
        Updater(transformer.build(replace(wanted.model, tie_output=False, tie_source=False), 40, 40), wanted, "cpu")


def test_frozen_weights_do_not_decay() -> None:
    with pytest.raises(SettingsError, match="needs optimizer.weight_decay=0"):
        quick_settings(training={"freeze": "encoder", "start": "x"}, optimizer={"weight_decay": 0.1})


# ---- what is refused


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / "vocab.json").write_text("[1]"), "vocab.json must be an object"),
        (lambda f: (f / "vocab.json").write_text("{"), "vocab.json is no JSON"),
        (lambda f: (f / "source.spm").write_bytes(b"\x0a\xff"), "SentencePiece model is damaged"),
        (lambda f: (f / "model.safetensors").write_bytes(b"abc"), "damaged"),
        (
            lambda f: (f / "model.safetensors").write_bytes(b"version https://git-lfs.example/v1\noid sha256:0\n"),
            "only says where git keeps the real file; fetch it: git lfs pull",
        ),
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "that can be read safely"),
        (lambda f: break_(f, "config.json", lambda c: c.update(model_type="t5")), "of the kind 't5'"),
        (lambda f: break_(f, "config.json", lambda c: c.update(d_model=36)), "of another shape: .*q_proj"),
        (lambda f: break_(f, "config.json", lambda c: c.update(d_model=32)), "cannot be: model.d_model=32 must be a"),
        (lambda f: break_(f, "config.json", lambda c: c.update(decoder_layers=2)), "missing: model.decoder.layers.1"),
        (
            lambda f: break_(f, "config.json", lambda c: c.update(encoder_layers=1)),
            "unexpected: model.encoder.layers.1",
        ),
        (lambda f: break_(f, "config.json", lambda c: c.update(vocab_size=10**12)), "vocab_size, a whole number"),
        (lambda f: break_(f, "config.json", lambda c: c.update(vocab_size=10**8)), "counts 100,000,000 tokens, where"),
        (lambda f: break_(f, "config.json", lambda c: c.update(eos_token_id="x")), "eos_token_id, a whole number"),
        (lambda f: break_(f, "config.json", lambda c: c.update(encoder_ffn_dim=3)), "encoder_ffn_dim and decoder_ffn"),
        (lambda f: break_(f, "config.json", lambda c: c.update(activation_function="tanh")), "'tanh' is none of"),
        (lambda f: break_(f, "vocab.json", lambda c: c.update({"<s>": 5})), "gives one number to two tokens"),
        (lambda f: break_(f, "vocab.json", lambda c: c.update({"<unk>": "x"})), "names with numbers"),
    ],
)
def test_a_damaged_folder_is_refused_in_a_sentence(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    folder = marian_folder(tmp_path / "opus")
    damage(folder)
    with pytest.raises(ModelError, match=words) as refused:
        convert(folder, tmp_path / "ours")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "ours").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    with pytest.raises(SettingsError, match="is there already"):
        convert(tmp_path / "opus", tmp_path / "ours")


def test_a_mark_of_a_language_is_one_token(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus")
    convert(folder, tmp_path / "ours")
    line = f">>eng<< {PAIRS[0][0]}"
    tokenizer = transduce.load(tmp_path / "ours").tokenizers.source
    found = tokenizer.pieces(tokenizer.encode([line])[0])
    assert [piece.replace("▁>>", ">>") for piece in found] == their_ids(folder, True).tokenize(line)


def test_a_mark_of_a_language_is_before_each_sentence_of_a_line(tmp_path: Path) -> None:
    convert(marian_folder(tmp_path / "opus"), tmp_path / "ours")
    model = transduce.load(tmp_path / "ours")
    read, line = model.tokenizers.source, ">>eng<< das ist ein haus. es ist alt."
    found = sentences_of([line], read, 100, split=True)
    assert [sentence.text for sentence in found] == [">>eng<< das ist ein haus.", "es ist alt."]  # as typed
    for long in ("haus " * 40, "haus" * 100, f"{'haus ' * 40}. {'haus' * 100}. so."):
        found += (pieces := sentences_of([f">>eng<< {long}"], read, 50, split=True))
        assert len(pieces) > 1
        assert "".join(piece.text for piece in pieces).replace(" ", "") == f">>eng<<{long}".replace(" ", "")
    marks = [read.encode([">>eng<<"])[0][0], *(read.encode(["haus"])[0])]
    assert all(sentence.source[0] == marks[0] and len(sentence.source) > 1 for sentence in found)
    assert [s.mark for s in sentences_of([">>xyz<< das ist es. so ist es."], read, 100, split=True)] == ["", ""]
    assert [s.source for s in sentences_of([">>eng<<  "], read, 100, split=True)] == [marks[:1]]
    strange = (">>xyz<< das ist es", ">>eng <‹ das ist es")  # it would write whichever language comes
    assert [t.status for t in model.translate([*strange, ">>eng<< das ist es"])] == ["unknown", "unknown", "ok"]
    for typed in (line, f">>eng<< {'haus ' * 40}", strange[0]):  # white space before a mark changes nothing
        spaced = f" \t{typed}  "
        plain, found = ([s.source for s in sentences_of([one], read, 50, split=True)] for one in (typed, spaced))
        assert found == plain
        assert model.translate(spaced).status == model.translate(typed).status
    notes = Notes()
    convert(tmp_path / "opus", tmp_path / "again", report=notes)
    assert any("write >>eng<< before each line" in words for words in notes.said)
    links = model.translate(line, alignment=True).alignment
    assert max(source for source, _ in links) < len(line.split())


def test_a_mark_never_stands_in_a_text_of_others(tmp_path: Path) -> None:
    """What protection hides here is ordinary text there, and a mark would be written with nothing behind it."""
    pytest.importorskip("ctranslate2")
    pairs = [(f"{source} {n}", f"{target} {n}") for n, (source, target) in enumerate(bundled_pairs(60))]
    fit(tmp_path / "run", ListCorpus(pairs), None, quick_settings(text={"protect": "numbers"}), SILENT)
    report = Notes()
    convert(tmp_path / "run", tmp_path / "out", to="ctranslate2", report=report)
    assert "numbers, URLs and tags may come out changed" in " ".join(report.said)
    convert(tmp_path / "out", tmp_path / "again")
    model, tokenizers, _ = load(tmp_path / "again")
    marks = list(marks_of(tokenizers.target))
    assert len(marks) > 1
    assert (model.projection.bias[marks] < -20).all()
    assert (model.projection.bias[marks[-1] + 1 :] == 0).all()


def test_a_run_is_compared_on_its_own_text(tmp_path: Path) -> None:
    """What the bundled corpus has may be another language to it. Lines that protection changes are left out."""
    pairs = [
        (f"{target} {'7' if n % 2 else ''}", f"{source} 7") for n, (source, target) in enumerate(bundled_pairs(99))
    ]
    valid = ListCorpus(pairs[50:])
    settings = quick_settings(text={"protect": "numbers"})
    fit(tmp_path / "run", ListCorpus(pairs[:50]), valid, settings, SILENT)
    model = transduce.load(tmp_path / "run")
    own = sentences_of_run(tmp_path / "run", model)
    assert own == [source for source, _ in pairs[50:] if "7" not in source]
    assert sentences_for(model, own) == [source.strip() for source in own]
    (kept,) = [path for path in (tmp_path / "run" / "data").glob("*/text.jsonl") if path.stat().st_size]
    kept.write_text("no pairs\n")
    assert sentences_of_run(tmp_path / "run", model) == []
    assert sentences_of_run(tmp_path / "elsewhere", model) == []


def test_a_token_of_the_other_side_is_found_where_its_own_cannot_be_cut() -> None:
    lines = [pair[0] for pair in PAIRS]
    own = sentence_pieces(lines, 120)
    pieces = [piece.text for piece in read_pieces(own)[3:]]
    tokens = [*SPECIAL, *pieces, "€", "峭"]
    tokenizer, before = SubwordTokenizer(renumbered(own, tokens)), SubwordTokenizer(renumbered(own, tokens[:-2]))
    text = f"{lines[0]} € 峭 蜒"
    found, plain = tokenizer.encode([lines[0], text]), before.encode([lines[0], text])
    assert found[0] == plain[0]
    assert [tokenizer.pieces([i])[0] for i in found[1] if i >= len(tokens) - 2] == ["€", "峭"]
    assert [i for i in found[1] if i < len(tokens) - 2] == [i for i in plain[1] if i != UNKNOWN] + [UNKNOWN]


def test_an_added_token_is_a_word_of_its_own(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus")
    names = json.loads((folder / "vocab.json").read_text())
    added = {"__nnh__": names.pop(">>eng<<")}
    (folder / "vocab.json").write_text(json.dumps(names))
    (folder / "added_tokens.json").write_text(json.dumps(added))
    convert(folder, tmp_path / "ours")
    tokenizer = load(tmp_path / "ours").tokenizers.source
    assert tokenizer.pieces(tokenizer.encode(["__nnh__ das haus"])[0])[0] == "▁__nnh__"
    (folder / "added_tokens.json").unlink()
    listed = {str(i): {"content": token} for token, i in added.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    convert(folder, tmp_path / "newer")
    assert (tmp_path / "newer" / "source.model").read_bytes() == (tmp_path / "ours" / "source.model").read_bytes()


@pytest.mark.parametrize("as_file", [True, False])
def test_a_model_of_firefox_is_refused_by_its_name(tmp_path: Path, as_file: bool) -> None:
    path = tmp_path / "firefox" / "model.enpt.intgemm.alphas.bin"
    path.parent.mkdir()
    path.write_bytes(bytes([1, 0, 0, 0, 0, 0, 0, 0, 195, 0, 0, 0]))
    with pytest.raises(ModelError, match="alphas.bin is a model in Marian's binary form, as Firefox has them"):
        convert(path if as_file else path.parent, tmp_path / "ours")
