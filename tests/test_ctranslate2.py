"""Models of CTranslate2 and packages of Argos Translate come in: the same translations as its own program writes."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import bundled_pairs, some_text

import transduce
from transduce.commands.convert import convert
from transduce.core import transformer
from transduce.core.special import BEGIN, PAD
from transduce.errors import ModelError, SettingsError
from transduce.formats import ctranslate2_out
from transduce.formats.binary import DTYPES, Binary, read_binary
from transduce.formats.ctranslate2_in import _as_now
from transduce.formats.ctranslate2_text import _languages
from transduce.models.load import load
from transduce.models.weights import weights_of
from transduce.settings.sections import ModelSettings, TextSettings
from transduce.text.tokenizers import Tokenizers

ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is the other side")
PAIRS = bundled_pairs(300)
LINES = [source for source, _ in PAIRS[:40]]
QUANTISED = {None: 0.0, "float16": 1e-3, "bfloat16": 1e-2, "int16": 2e-3, "int8": 1e-2, "int8_float32": 1e-2}


def theirs(folder: Path, **changes: object) -> tuple[Path, transformer.Transformer]:
    """A folder with random weights, made for others: token names, SentencePiece models beside it."""
    text = TextSettings(vocabulary=150, joint=True)
    tokenizers = Tokenizers.train(PAIRS, text)
    sizes = {"layers": 2, "decoder_layers": 1, "d_model": 24, "d_ff": 40, "heads": 3, "max_positions": 200}
    torch.manual_seed(5)
    model = transformer.build(ModelSettings(**{**sizes, **changes}), tokenizers.source.size, tokenizers.target.size)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    folder.mkdir()
    names = tokenizers.source.pieces(range(tokenizers.source.size))
    ctranslate2_out.convert(model.eval(), folder, (names, names))
    (folder / "sentencepiece.model").write_bytes(tokenizers.source.to_bytes())
    return folder, model


def by_their_program(folder: Path, tokenizers: Tokenizers, beam: int, most: int) -> list[str]:
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    sources = [tokenizers.source.pieces(ids) for ids in tokenizers.source.encode(LINES)]
    listed = json.loads((folder / "shared_vocabulary.json").read_text())
    never = [[token] for token in ("<pad>", "<s>") if token in listed]
    found = translator.translate_batch(
        sources, beam_size=beam, max_decoding_length=most, suppress_sequences=never, disable_unk=True, length_penalty=1
    )
    ids = {piece: i for i, piece in enumerate(tokenizers.target.pieces(range(tokenizers.target.size)))}
    return tokenizers.target.decode_all([[ids[token] for token in one.hypotheses[0]] for one in found])


def written(version: int, kind: str, revision: int, variables: dict[str, torch.Tensor]) -> bytes:
    """A model.bin in the way of a version that names types and has no aliases."""
    out = struct.pack("<I", version) + named(kind) + struct.pack("<II", revision, len(variables))
    for name, value in variables.items():
        out += named(name) + struct.pack(f"<B{value.dim()}I", value.dim(), *value.shape)
        size = value.numel() * value.element_size()
        out += struct.pack("<BI", DTYPES.index(value.dtype), size) + value.contiguous().numpy().tobytes()
    return out + struct.pack("<I", 0)


def named(text: str) -> bytes:
    return struct.pack("<H", len(text.encode()) + 1) + text.encode() + b"\0"


def as_old(folder: Path, **said: object) -> Path:
    """The same model as CTranslate2 kept it before version 3: no config.json, and both stacks share what is said."""
    found = read_binary(folder / "model.bin")
    variables = dict(found.variables)
    for name in ("num_heads", "pre_norm", "activation", "embeddings_merge"):
        variables[name] = variables[f"encoder/{name}"]
    dropped = [f"{stack}/{name}" for stack in ("encoder", "decoder") for name in (
        "num_heads", "pre_norm", "activation", "embeddings_merge", "num_heads_kv", "alignment_layer", "alignment_heads",
        "multi_query_attention", "sliding_window", "alibi", "alibi_use_positive_positions", "scale_alibi")]  # fmt: skip
    variables = {n.replace("/embeddings_0/", "/embeddings/"): v for n, v in variables.items() if n not in dropped}
    for stack in ("encoder", "decoder"):
        variables[f"{stack}/embeddings/multiply_by_sqrt_depth"] = variables.pop(f"{stack}/scale_embeddings")
    flags = {
        "with_source_bos": False,
        "with_source_eos": False,
        "with_target_bos": True,
        "with_relative_position": False,
    }
    for name, value in {**flags, **said}.items():
        whole = [*str(value).encode()] if isinstance(value, str) else int(bool(value))
        variables[name] = torch.tensor(whole, dtype=torch.int8)
    (folder / "model.bin").write_bytes(written(5, "TransformerSpec", 4, variables))
    (folder / "config.json").unlink()
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"norm": "before", "source_end": False}, {}),
        ({"norm": "after", "activation": "swish"}, {"with_source_eos": True}),
        ({"norm": "after", "scale": "none"}, {"with_target_bos": False, "with_source_eos": True, "eos_token": "</s>"}),
    ],
)
def test_what_older_versions_wrote(tmp_path: Path, changes: dict[str, Any], said: dict[str, object]) -> None:
    folder = as_old(theirs(tmp_path / "theirs", **changes)[0], **said)
    convert(folder, tmp_path / "ours")
    model = transduce.load(tmp_path / "ours", "cpu", beam=1, max_length=30, extra=100, split=False)
    assert model.settings.model.norm == changes["norm"]
    assert model.settings.model.source_end == ("source_end" not in changes)
    assert [t.text for t in model.translate(LINES)] == by_their_program(folder, model.tokenizers, 1, 30)
    check_scores(folder, model)


def check_scores(folder: Path, model: Any) -> None:
    """The log-probabilities of given translations, which tell more than what a random model writes."""
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    sources, targets = (
        [side.pieces(ids) for ids in side.encode([pair[i] for pair in PAIRS[:20]])]
        for i, side in enumerate((model.tokenizers.source, model.tokenizers.target))
    )
    expected = [sum(one.log_probs) for one in translator.score_batch(sources, targets)]
    found = [one.log_probability for one in model.score(PAIRS[:20])]
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-2)
    assert len({round(value, 1) for value in expected}) > 10


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "before", "positions": "sinusoid", "tie_output": True},
        {"norm": "after", "positions": "halves", "activation": "swish", "output_bias": True},
        {"norm": "after", "positions": "learned", "embedding_norm": True, "activation": "gelu", "tie_output": False},
        {"norm": "before", "positions": "fairseq", "source_end": False, "scale": "none"},
    ],
)
def test_the_same_translations(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder, _ = theirs(tmp_path / "theirs", **changes)
    convert(folder, tmp_path / "ours")
    model = transduce.load(tmp_path / "ours", "cpu", beam=1, max_length=30, extra=100, split=False)
    assert model.settings.model.positions == changes["positions"]
    assert model.settings.model.source_end == changes.get("source_end", True)
    assert [t.text for t in model.translate(LINES)] == by_their_program(folder, model.tokenizers, 1, 30)
    check_scores(folder, model)


@pytest.mark.parametrize("quantization", QUANTISED)
def test_every_storage_type_comes_in(tmp_path: Path, quantization: str | None) -> None:
    transduce.train(tmp_path / "run", PAIRS, preset="tiny", training={"steps": 2}, model={"d_model": 32, "d_ff": 64})
    how: Any = {"to": "ctranslate2", "quantization": quantization}
    convert(tmp_path / "run", tmp_path / "out", text=some_text(tmp_path), **how)
    convert(tmp_path / "out", tmp_path / "again")
    before, after = (weights_of(load(tmp_path / name).model) for name in ("run", "again"))
    assert after.keys() - before.keys() <= {"projection.bias"}
    for name, weight in before.items():
        distance = (after[name] - weight).abs().max() / weight.abs().max().clamp(min=1e-2)
        assert distance <= QUANTISED[quantization], name
    assert not after["projection.bias"].any()  # which the folder has, so that nobody has to forbid special tokens


def test_a_bias_that_training_made_stays(tmp_path: Path) -> None:
    """What no text holds becomes ever less probable; only all three at once are what our exports forbid."""
    folder, _ = theirs(tmp_path / "theirs", output_bias=True)
    bias = read_binary(folder / "model.bin").variables["decoder/projection/bias"].clone()
    bias[[PAD, BEGIN]] = -16.0
    with_variable(folder, "decoder/projection/bias", bias)
    convert(folder, tmp_path / "ours")
    found = weights_of(load(tmp_path / "ours").model)["projection.bias"]
    assert torch.equal(found, bias)


def test_opennmt_models_read_no_end_and_call_padding_blank(tmp_path: Path) -> None:
    """As Argos's packages are: vocabulary as text, <blank>, no end behind a source."""
    folder, _ = theirs(tmp_path / "theirs", source_end=False)
    tokens = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").write_text(json.dumps(["<blank>", *tokens[1:]]))
    edit(folder / "config.json", decoder_start_token="<s>")
    package = tmp_path / "de_en.argosmodel"
    with zipfile.ZipFile(package, "w") as archive:
        for path in folder.iterdir():
            place = path.name if path.name == "sentencepiece.model" else f"model/{path.name}"
            archive.write(path, f"de_en/{place}")
        archive.writestr("de_en/metadata.json", "{}")
        archive.writestr("de_en/stanza/../../../escaped", "a name that leads elsewhere is not looked at")
    convert(package, tmp_path / "ours")
    model = transduce.load(tmp_path / "ours", "cpu", beam=1, max_length=30, extra=100, split=False)
    assert not model.settings.model.source_end
    assert [t.text for t in model.translate(LINES)] == by_their_program(folder, model.tokenizers, 1, 30)
    assert not (tmp_path.parent / "escaped").exists()
    plain = transduce.load(tmp_path / "ours", "cpu", beam=1, engine="plain", max_length=30, extra=100, split=False)
    assert [t.text for t in plain.translate(LINES)] == [t.text for t in model.translate(LINES)]


def test_a_package_goes_out_and_comes_in_again(tmp_path: Path) -> None:
    transduce.train(tmp_path / "run", PAIRS, preset="tiny", training={"steps": 2}, model={"d_model": 32, "d_ff": 64})
    with pytest.raises(SettingsError, match="--to argos needs --source-language and --target-language"):
        convert(tmp_path / "run", tmp_path / "x.argosmodel", to="argos")
    how: Any = {"to": "argos", "source_language": "de", "target_language": "en"}
    convert(tmp_path / "run", tmp_path / "x.argosmodel", text=some_text(tmp_path), **how)
    with zipfile.ZipFile(tmp_path / "x.argosmodel") as archive:
        assert json.loads(archive.read("de_en/metadata.json"))["to_code"] == "en"
    convert(tmp_path / "x.argosmodel", tmp_path / "again")
    one, two = (load(tmp_path / name).model for name in ("run", "again"))
    assert torch.equal(weights_of(one)["source.tokens.weight"], weights_of(two)["source.tokens.weight"])


def with_zero_begin(folder: Path) -> None:
    spec_flag = b"decoder/start_from_zero_embedding\0"
    content = bytearray((folder / "model.bin").read_bytes())
    place = content.index(spec_flag) + len(spec_flag)
    content[place + 1 + 1 + 4] = 1  # rank, type, size, then the number itself
    (folder / "model.bin").write_bytes(content)


def with_variable(folder: Path, name: str, value: torch.Tensor) -> None:
    found = read_binary(folder / "model.bin")
    (folder / "model.bin").write_bytes(written(6, found.kind, found.revision, {**found.variables, name: value}))


def test_marians_decoder_begins_with_no_embedding(tmp_path: Path) -> None:
    """As CTranslate2 keeps OPUS-MT: it begins with the end token, but its embedding is zero; and nothing pads."""
    folder, _ = theirs(tmp_path / "theirs", norm="after", positions="halves", tie_source=True)
    with_zero_begin(folder)
    edit(folder / "config.json", decoder_start_token="</s>")
    convert(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours", "cpu", beam=1, max_length=30, extra=100, split=False)
    assert ours.settings.model.source_end
    assert not ours.model.target.tokens.weight[2].any()  # type: ignore[union-attr]
    assert [t.text for t in ours.translate(LINES)] == by_their_program(folder, ours.tokenizers, 1, 30)


def test_any_begin_will_do_where_it_has_no_embedding(tmp_path: Path) -> None:
    """As CTranslate2's own converter of Marian's files has it: it begins with <s>, which the vocabulary has not."""
    folder, _ = theirs(tmp_path / "theirs", norm="after", positions="halves", tie_source=True)
    with_zero_begin(folder)
    tokens = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").write_text(json.dumps([f"other {t}" if t == "<s>" else t for t in tokens]))
    edit(folder / "config.json", decoder_start_token="<s>", add_source_eos=True)
    convert(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours", "cpu", beam=1, max_length=30, extra=100, split=False)
    assert [t.text for t in ours.translate(LINES)] == by_their_program(folder, ours.tokenizers, 1, 30)


def test_marks_of_languages_in_text(tmp_path: Path) -> None:
    folder, _ = theirs(tmp_path / "theirs", source_end=False)
    tokens = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").write_text(json.dumps([*tokens[:-1], ">>eng<<"]))
    convert(folder, tmp_path / "ours")
    cut = transduce.load(tmp_path / "ours").tokenizers.source
    assert cut.pieces(cut.encode([">>eng<< ein bier"])[0])[0] == "▁>>eng<<"


def test_what_looks_like_a_mark_of_a_language_and_is_none() -> None:
    assert (
        _languages(["______", "_______", "▁the", "en_US"]) == {}
    )  # as the vocabulary of a real OPUS-MT model has them
    assert _languages(["__de__", "______", "__en__"]) == {"__de__": "<language de>", "__en__": "<language en>"}


def test_the_first_files_did_not_say_how_many_heads_there_are() -> None:
    one, two = (_as_now(Binary(2, kind, 2, {})) for kind in ("TransformerBase", "TransformerBig"))
    assert (one["encoder/num_heads"], two["decoder/num_heads"]) == (8, 16)
    assert not _as_now(Binary(5, "TransformerSpec", 3, {}))


def test_a_package_as_argos_keeps_it(tmp_path: Path) -> None:
    folder, _ = theirs(tmp_path / "theirs", source_end=False)
    package = tmp_path / "translate-de_en-1_0"
    package.mkdir()
    (folder / "sentencepiece.model").rename(package / "sentencepiece.model")
    (package / "metadata.json").write_text('{"from_code": "de", "to_code": "en"}')
    tokens = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.txt").write_bytes("".join(f"{token}\r\n" for token in tokens).encode())
    (folder / "shared_vocabulary.json").unlink()
    folder.rename(package / "model")
    convert(package, tmp_path / "ours")
    model = transduce.load(tmp_path / "ours", "cpu")
    assert (model.search.beam, model.search.length_penalty) == (4, 0.2)
    assert model.tokenizers.source.size == len(tokens)
    edit(package / "metadata.json", target_prefix="__en__")
    with pytest.raises(ModelError, match="begins every translation with __en__"):
        convert(package, tmp_path / "other")


# ---- bad input


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: (f / "sentencepiece.model").unlink(), "has no SentencePiece model to cut text with"),
        (lambda f: (f / "shared_vocabulary.json").unlink(), "has no vocabulary"),
        (lambda f: (f / "shared_vocabulary.json").write_text("{}"), "must be a list of tokens"),
        (lambda f: (f / "shared_vocabulary.json").write_text('["a", 3]'), "must be a list of tokens"),
        (lambda f: (f / "shared_vocabulary.json").write_text('["<s>"]'), "lacks </s> or <s>"),
        (lambda f: (f / "sentencepiece.model").write_bytes(b""), "is no SentencePiece model"),
        (lambda f: edit(f / "config.json", add_source_bos=True), "before every source, which cannot be converted"),
        (
            lambda f: edit(f / "config.json", decoder_start_token=None),
            "leaves it to the caller what a translation begi",
        ),
        (
            lambda f: with_variable(f, "encoder/layer_0/self_attention/relative_position_keys", torch.ones(2, 2)),
            "has rel",
        ),
        (
            lambda f: with_variable(f, "decoder/num_heads", torch.tensor(4, dtype=torch.int8)),
            "num_heads 3 and 4 in enc",
        ),
        (
            lambda f: with_variable(f, "decoder/activation", torch.tensor(2, dtype=torch.int8)),
            "activation 0 and 2 in e",
        ),
        (
            lambda f: with_variable(f, "encoder/sliding_window", torch.tensor(4, dtype=torch.int32)),
            "has sliding_window",
        ),
        (lambda f: with_variable(f, "encoder/position_encodings/encodings", torch.tensor(1.0)), "its table of posit"),
        (lambda f: as_old(f, user_decoder_start_tokens=True), "leaves it to the caller what a translation begins with"),
        (
            lambda f: with_variable(f, "encoder/scale_embeddings", torch.tensor(2.0)),
            "multiplies its embeddings by 2 and",
        ),
        (lambda f: (f / "model.bin").write_bytes(b"\x09\0\0\0" * 9), "version 9 of the format is not known"),
        (lambda f: (f / "model.bin").write_bytes((f / "model.bin").read_bytes()[:-900]), "it ends too early"),
        (lambda f: (f / "model.bin").write_bytes(b""), "no model of CTranslate2, or damaged"),
    ],
)
def test_wrong_folders_are_refused(tmp_path: Path, change: Any, complaint: str) -> None:
    folder, _ = theirs(tmp_path / "theirs")
    change(folder)
    with pytest.raises(ModelError, match=complaint):
        convert(folder, tmp_path / "ours")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs"]


def test_a_binary_that_lies_is_refused(tmp_path: Path) -> None:
    """Sizes are compared with the file before anything is reserved."""
    path = tmp_path / "model.bin"
    begin = struct.pack("<IH", 6, 12) + b"Transformer\0" + struct.pack("<I", 7)
    for rest, complaint in (
        (struct.pack("<I", 2**31), "it counts 2,147,483,648 variables"),
        (struct.pack("<IH", 1, 2) + b"a\0" + struct.pack("<BIBI", 1, 2**30, 0, 2**32 - 1), "cannot be numbers of"),
        (struct.pack("<IH", 1, 2) + b"a\0" + struct.pack("<BIBI", 1, 2**28, 0, 2**30), "it ends too early"),
        (struct.pack("<IH", 1, 2) + b"a\0" + struct.pack("<BIBI", 1, 1, 77, 4), "of an unknown type, 77"),
        (struct.pack("<IIH", 0, 1, 2) + b"a\0" + struct.pack("<H", 2) + b"b\0", "a stands for b, which cannot be"),
    ):
        path.write_bytes(begin + rest)
        with pytest.raises(ModelError, match=complaint):
            read_binary(path)


def test_packages_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.argosmodel"
    path.write_bytes(b"not a zip")
    with pytest.raises(ModelError, match="is no zip archive, or damaged"):
        convert(path, tmp_path / "ours")
    bomb = {"de_en/model/model.bin": bytes(9_000_000), "de_en/sentencepiece.model": b"x"}
    others = {"de_en/bpe.model": b"#version"}
    for files, complaint in (
        (bomb, "model/model.bin would have 9,000,000 bytes, which cannot be"),
        (others, "model/model.bin is not there"),
        ({"de_en/readme": b""}, "is not there"),
    ):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        with pytest.raises(ModelError, match=complaint):
            convert(path, tmp_path / "ours")
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("de_en/model/model.bin", bytes(range(256)) * 9)
            archive.writestr("de_en/sentencepiece.model", b"x")
        content = bytearray(path.read_bytes())
        content[60:160] = b"\xff" * 100
        path.write_bytes(content)
        with pytest.raises(ModelError, match="is no zip archive, or damaged"):
            convert(path, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_training_goes_on(tmp_path: Path) -> None:
    """A converted model goes on learning."""
    folder, _ = theirs(tmp_path / "theirs", source_end=False)
    convert(folder, tmp_path / "ours")
    model = transduce.train(
        tmp_path / "run", PAIRS, training={"start": str(tmp_path / "ours"), "steps": 2, "validate_every": 2}
    )
    assert not model.settings.model.source_end
