"""A folder of fairseq's, brought in. Its Transformer with learned positions is Hugging Face's BART by other names."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import bundled_pairs
from foreign import sentence_pieces

from transduce.commands.convert import convert
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END, SPECIAL
from transduce.errors import ModelError
from transduce.models.load import load

transformers = pytest.importorskip("transformers", reason="fairseq's Transformer is compared with BART of transformers")
sentencepiece = pytest.importorskip("sentencepiece")
PAIRS = bundled_pairs(400)
TOLD = {"arch": "transformer", "source_lang": "de", "target_lang": "en", "share_all_embeddings": True}
TOLD |= {"encoder_layers": 2, "decoder_layers": 1, "encoder_embed_dim": 24, "max_source_positions": 100}
TOLD |= {f"{stack}_ffn_embed_dim": 40 for stack in ("encoder", "decoder")}
TOLD |= {f"{stack}_attention_heads": 3 for stack in ("encoder", "decoder")}
TOLD |= {f"{stack}_learned_pos": True for stack in ("encoder", "decoder")}
TOLD |= {f"{stack}_normalize_before": False for stack in ("encoder", "decoder")}
TOLD |= {"layernorm_embedding": True, "activation_fn": "relu"}


def make(folder: Path, newer: bool = False, **told: Any) -> tuple[Any, dict[str, int]]:
    """As fairseq-train leaves it; the model as BART has it, and its tokens."""
    folder.mkdir()
    model = sentence_pieces([text for pair in PAIRS for text in pair], 150)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    cutter = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [cutter.id_to_piece(i) for i in range(3, 150)]
    for language in ("de", "en"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{piece} {i}\n" for i, piece in enumerate(pieces)))
    ids = {name: i for i, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
    torch.manual_seed(1)
    sizes = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 100}
    sizes |= {f"{s}_ffn_dim": 40 for s in ("encoder", "decoder")}
    sizes |= {f"{s}_attention_heads": 3 for s in ("encoder", "decoder")}
    config = transformers.BartConfig(vocab_size=len(ids), **sizes, activation_function="relu", scale_embedding=True)
    theirs = transformers.BartForConditionalGeneration(config).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    left_out = ("final_logits_bias", "lm_head.weight", "model.shared.weight")
    state = {name.removeprefix("model."): w for name, w in theirs.state_dict().items() if name not in left_out}
    state["decoder.output_projection.weight"] = state["decoder.embed_tokens.weight"]
    state |= {f"{stack}.version": torch.tensor([3.0]) for stack in ("encoder", "decoder")}
    said = argparse.Namespace(**{**TOLD, **told})
    where = {"args": None, "cfg": {"model": said, "task": {"data": "x"}}} if newer else {"args": said}
    numbers = {"_bleu_counts": np.array([1, 2]), "loss": np.float64(3.5), "names": np.array(["a"])}  # --eval-bleu
    rest = {"extra_state": {"epoch": 2, "metrics": numbers}, "optimizer_history": [{"num_updates": 7}]}
    torch.save({**where, "model": state, **rest}, folder / "checkpoint_best.pt")
    return theirs, ids


@pytest.mark.parametrize("newer", [False, True])
@torch.no_grad()
def test_the_same_numbers(tmp_path: Path, newer: bool) -> None:
    theirs, ids = make(tmp_path / "fairseq", newer)
    convert(tmp_path / "fairseq", tmp_path / "ours")
    model, tokenizers, settings = load(tmp_path / "ours")
    assert (settings.search.beam, settings.model.tie_source) == (5, True)
    pieces = enumerate(tokenizers.target.pieces(range(tokenizers.target.size)))
    columns, rows = zip(*[(i, ids[piece]) for i, piece in pieces if i >= len(SPECIAL) and piece in ids], strict=True)
    for source, target in PAIRS[:5]:
        a, b = tokenizers.source.encode([source])[0], tokenizers.target.encode([target])[0]
        read = [*(ids[piece] for piece in tokenizers.source.pieces(a)), ids["</s>"]]
        written = [ids["</s>"], *(ids[piece] for piece in tokenizers.target.pieces(b))]
        expected = theirs(torch.tensor([read]), decoder_input_ids=torch.tensor([written])).logits[0]
        ours = model(lay_out([[[*a, END]]]), lay_out([[[BEGIN, *b]]]))[0]
        assert torch.allclose(ours[:, columns], expected[:, rows], atol=1e-5)
        assert torch.allclose(ours[:, END], expected[:, ids["</s>"]], atol=1e-5)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"arch": "fconv_wmt"}, "holds a fconv_wmt; what can be converted from fairseq is a transformer"),
        ({"decoder_normalize_before": True}, "encoder and decoder differ in normalize_before"),
        ({"decoder_attention_heads": 4}, r"one number of attention heads, and its stacks have \[3, 4\]"),
        ({"no_token_positional_embeddings": True}, "knows no positions"),
        ({"encoder_layers": 3}, "missing: model.encoder.layers.2"),
        ({"target_lang": "fr"}, r"has no dict\.fr\.txt"),
        ({"source_lang": None}, r"has no dict\.source\.txt; where a checkpoint does not say its languages"),
        ({"activation_fn": "tanh"}, "activation_function 'tanh' is none of"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path: Path, told: dict[str, Any], words: str) -> None:
    make(tmp_path / "fairseq", **told)
    with pytest.raises(ModelError, match=words):
        convert(tmp_path / "fairseq", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


class Evil(argparse.Namespace):
    def __reduce__(self) -> tuple:
        return (print, ("run",))


def test_nothing_of_a_checkpoint_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "fairseq")
    torch.save({"args": Evil(), "model": {}}, tmp_path / "fairseq" / "checkpoint_best.pt", pickle_module=pickle)
    with pytest.raises(ModelError, match="it asks for __builtin__.print, which is no part of a tensor"):
        convert(tmp_path / "fairseq", tmp_path / "ours")
    assert capsys.readouterr().out == ""


def test_the_older_form_of_a_checkpoint(tmp_path: Path) -> None:
    make(tmp_path / "fairseq")
    convert(tmp_path / "fairseq", tmp_path / "ours")
    path = tmp_path / "fairseq" / "checkpoint_best.pt"
    held = torch.load(path, weights_only=False)
    torch.save(held, path, _use_new_zipfile_serialization=False)
    convert(tmp_path / "fairseq", tmp_path / "older")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("ours", "older")]
    assert weights[0] == weights[1]


def test_what_unfolds_without_end_is_not_unfolded(tmp_path: Path) -> None:
    make(tmp_path / "fairseq")
    deep: list[Any] = []
    for _ in range(60):
        deep = [deep, deep]
    told = argparse.Namespace(**{**TOLD, "arch": deep, "encoder_layers": deep})
    torch.save({"args": told, "model": {"x": torch.ones(1)}}, tmp_path / "fairseq" / "checkpoint_best.pt")
    with pytest.raises(ModelError, match="holds a None; what can be converted"):
        convert(tmp_path / "fairseq", tmp_path / "ours")
