"""Marian's own files come in: the layout in which OPUS-MT was first published."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from foreign import PAIRS, marian_folder

import transduce
from transduce.commands.convert import convert
from transduce.errors import ModelError
from transduce.files.manifest import write_folder
from transduce.formats import marian_in
from transduce.models.load import load
from transduce.models.weights import weights_of

transformers = pytest.importorskip("transformers", reason="the same model is read from Hugging Face's folder too")
NAMES = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
SETTINGS: dict[str, Any] = {"type": "transformer", "transformer-heads": 3, "transformer-ffn-activation": "swish"}
SETTINGS |= {"transformer-postprocess": "dan", "transformer-preprocess": "", "tied-embeddings-all": True}


def as_marian(folder: Path, to: Path, settings: dict[str, Any] = SETTINGS, **changes: np.ndarray) -> Path:
    """A folder of Hugging Face's as the files it was made from."""
    model = transformers.MarianMTModel.from_pretrained(folder)
    arrays: dict[str, np.ndarray] = {}
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    for name, value in weights.items():
        words = name.split(".")
        if "layers" not in words:
            continue
        stack, layer, rest = words[1], int(words[3]) + 1, words[4:]
        begin, kind = f"{stack}_l{layer}_", "W" if rest[-1] == "weight" else "b"
        part = {"self_attn": "self", "encoder_attn": "context"}.get(rest[0])
        shaped = value.T if value.ndim == 2 else value[None]
        norm = "ln_scale" if rest[-1] == "weight" else "ln_bias"
        if part:
            arrays[f"{begin}{part}_{kind}{NAMES[rest[1]]}"] = shaped
        elif rest[0] in ("fc1", "fc2"):
            arrays[f"{begin}ffn_{kind}{rest[0][-1]}"] = shaped
        elif rest[0] == "final_layer_norm":
            arrays[f"{begin}ffn_ffn_{norm}"] = shaped
        else:
            arrays[f"{begin}{'self' if rest[0].startswith('self') else 'context'}_Wo_{norm}"] = shaped
    vocabulary = json.loads((folder / "vocab.json").read_text())
    pad = vocabulary.pop("<pad>")  # which Marian does not have; it is the last
    assert pad == len(vocabulary)
    arrays["Wemb"] = weights["model.shared.weight"][:pad]
    arrays["decoder_ff_logit_out_b"] = weights["final_logits_bias"][:, :pad]
    arrays["special:model.yml"] = np.frombuffer(yaml.safe_dump(settings).encode() + b"\0", np.int8)
    to.mkdir()
    np.savez(to / "opus.npz", **{**arrays, **changes})
    (to / "opus.vocab.yml").write_text(yaml.safe_dump(vocabulary, allow_unicode=True), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (to / name).write_bytes((folder / name).read_bytes())
    return to


def without_padding(folder: Path) -> Path:
    """Marian begins with no embedding; Hugging Face's folder with that of <pad>, which is then zero."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    for name in ("model.shared.weight", "model.decoder.embed_tokens.weight", "model.encoder.embed_tokens.weight"):
        if name in weights:
            weights[name][-1] = 0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def rewrite(folder: Path, **changes: object) -> None:
    """Other settings of the model in a folder of ours."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"] |= changes
    (folder / "manifest.json").unlink()
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_folder(folder, {**files, "config.yaml": yaml.safe_dump(config).encode()})


def test_the_same_model_as_from_hugging_faces_folder(tmp_path: Path) -> None:
    folder = without_padding(marian_folder(tmp_path / "opus"))
    marian = as_marian(folder, tmp_path / "marian")
    convert(folder, tmp_path / "a")
    convert(marian, tmp_path / "b")
    assert load(tmp_path / "b").settings.model.positions == "marian"  # Hugging Face's are a little different
    rewrite(tmp_path / "a", positions="marian", eps=1e-6)
    lines = [source for source, _ in PAIRS[:20]]
    for beam in (1, 4):
        search = {"beam": beam, "stop": "usual", "split": False, "forced_end": False}
        one, two = (transduce.load(tmp_path / name, "cpu", **search).translate(lines) for name in "ab")  # type: ignore[arg-type]
        assert [t.text for t in one] == [t.text for t in two]
    convert(marian / "opus.npz", tmp_path / "c")
    first, other = (weights_of(load(tmp_path / name).model) for name in "bc")
    assert all((first[name] == other[name]).all() for name in first)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"transformer-preprocess": "n"}, "has transformer-preprocess=n; a model here has transformer-preprocess=none"),
        ({"type": "s2s"}, "has type=s2s"),
        ({"transformer-decoder-autoreg": "rnn"}, "has transformer-decoder-autoreg=rnn"),
        ({"transformer-ffn-activation": "tanh"}, "'tanh' is none of swish, relu"),
        ({"transformer-heads": "x"}, "transformer-heads=x is no number of heads"),
        ({"right-left": True}, "has right-left=true; a model here has right-left=false"),
        ({"transformer-tied-layers": [1, 1]}, "has transformer-tied-layers="),
        ({"transformer-postprocess-emb": "nd"}, "has transformer-postprocess-emb=nd"),
        ({"enc-depth": 6}, "says enc-depth=6, and holds 2 such layers"),
    ],
)
def test_other_models_are_refused(tmp_path: Path, settings: dict[str, Any], complaint: str) -> None:
    marian = as_marian(marian_folder(tmp_path / "opus"), tmp_path / "marian", {**SETTINGS, **settings})
    with pytest.raises(ModelError, match=complaint):
        convert(marian, tmp_path / "ours")


def test_vocabularies_as_opus_mt_has_them(tmp_path: Path) -> None:
    """Numbered as YAML, or a token a line and a list for each language; which is which, decoder.yml says."""
    folder = without_padding(marian_folder(tmp_path / "opus"))
    convert(as_marian(folder, tmp_path / "marian"), tmp_path / "expected")
    expected = (tmp_path / "expected" / "source.model").read_bytes()
    lines = as_marian(folder, tmp_path / "lines")
    listed = yaml.safe_load((lines / "opus.vocab.yml").read_text())
    (lines / "opus.vocab.yml").unlink()
    for side in ("src", "trg"):
        (lines / f"opus.{side}.vocab").write_text("".join(f"{token}\n" for token in sorted(listed, key=listed.get)))
    convert(lines, tmp_path / "a")
    assert (tmp_path / "a" / "source.model").read_bytes() == expected
    marks = transduce.load(tmp_path / "a").tokenizers.source
    assert marks.pieces(marks.encode([">>eng<< ein"])[0])[0] == "▁>>eng<<"
    renamed = as_marian(folder, tmp_path / "renamed")
    (renamed / "source.spm").rename(renamed / "vocab.en.spm")
    (renamed / "target.spm").rename(renamed / "vocab.de.spm")
    (renamed / "opus.vocab.yml").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="must hold source.spm and target.spm, or one .spm for both"):
        convert(renamed, tmp_path / "b")
    (renamed / "decoder.yml").write_text(yaml.safe_dump({"vocabs": ["/home/x/vocab.en.spm", "/home/x/vocab.de.spm"]}))
    names, models = marian_in._vocabulary(renamed)
    assert models == [(folder / f"{side}.spm").read_bytes() for side in ("source", "target")]
    assert names[0] != names[1]
    np.savez(lines / "opus.npz.optimizer.npz", a=np.zeros(2))
    assert marian_in.find(lines) == lines / "opus.npz"
    np.savez(lines / "second.npz", a=np.zeros(2))
    with pytest.raises(ModelError, match="holds 2 .npz files; name the one that is meant"):
        convert(lines, tmp_path / "b")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus")
    for number, (name, array, complaint) in enumerate(
        [
            ("Wemb", np.full((5, 24), np.nan), "holds infinite or NaN values"),
            ("extra", np.zeros((2, 2)), "unexpected: extra"),
            ("encoder_l1_self_Wq", np.zeros((3, 3)), "of another shape: encoder_l1_self_Wq"),
            ("special:model.yml", np.frombuffer(b"a: [", np.int8), "its settings are not valid YAML"),
            ("special:model.yml", np.array(["a", None], dtype=object), "no file of arrays, or damaged"),
        ]
    ):
        marian = as_marian(folder, tmp_path / f"m{number}", **{name: array})
        with pytest.raises(ModelError, match=complaint):
            convert(marian, tmp_path / "ours")
    with zipfile.ZipFile(marian / "opus.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "no array")
    with pytest.raises(ModelError, match="is no file of arrays: readme.txt in it is none"):
        convert(marian, tmp_path / "ours")
    content = io.BytesIO()
    np.savez_compressed(content, a=np.arange(99.0))
    damaged = bytearray(content.getvalue())
    damaged[60:160] = b"\xff" * 100
    (marian / "opus.npz").write_bytes(damaged)
    with pytest.raises(ModelError, match="no file of arrays, or damaged"):
        convert(marian, tmp_path / "ours")
    (marian / "opus.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(ModelError, match="no file of arrays"):
        convert(marian, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
