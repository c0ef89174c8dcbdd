"""Marian's own files come in: the layout in which OPUS-MT was first published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from foreign import PAIRS, marian_folder

import transduce
from transduce.commands.convert import convert
from transduce.errors import ModelError
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


def test_the_same_model_as_from_hugging_faces_folder(tmp_path: Path) -> None:
    folder = without_padding(marian_folder(tmp_path / "opus"))
    marian = as_marian(folder, tmp_path / "marian")
    convert(folder, tmp_path / "a")
    convert(marian, tmp_path / "b")
    lines = [source for source, _ in PAIRS[:20]]
    for beam in (1, 4):
        search = {"beam": beam, "stop": "usual", "split": False}
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
    ],
)
def test_other_models_are_refused(tmp_path: Path, settings: dict[str, Any], complaint: str) -> None:
    marian = as_marian(marian_folder(tmp_path / "opus"), tmp_path / "marian", {**SETTINGS, **settings})
    with pytest.raises(ModelError, match=complaint):
        convert(marian, tmp_path / "ours")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus")
    for number, (name, array, complaint) in enumerate(
        [
            ("Wemb", np.full((5, 24), np.nan), "infinite or none"),
            ("extra", np.zeros((2, 2)), "unexpected: extra"),
            ("encoder_l1_self_Wq", np.zeros((3, 3)), "of another shape: encoder_l1_self_Wq"),
            ("special:model.yml", np.frombuffer(b"a: [", np.int8), "its settings are not valid YAML"),
            ("special:model.yml", np.array(["a", None], dtype=object), "no file of arrays, or damaged"),
        ]
    ):
        marian = as_marian(folder, tmp_path / f"m{number}", **{name: array})
        with pytest.raises(ModelError, match=complaint):
            convert(marian, tmp_path / "ours")
    (marian / "opus.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(ModelError, match="no file of arrays"):
        convert(marian, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
