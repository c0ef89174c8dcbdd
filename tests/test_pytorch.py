"""Translators made of torch.nn.Transformer, and JoeyNMT's, brought in: the same numbers and texts as by PyTorch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from conftest import bundled_pairs
from foreign import sentence_pieces
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import transduce
from transduce.commands.convert import convert
from transduce.core.layout import lay_out
from transduce.core.positions import sinusoid_table
from transduce.core.special import BEGIN, END
from transduce.errors import ModelError
from transduce.models.load import load

sentencepiece = pytest.importorskip("sentencepiece")
PAIRS = bundled_pairs(400)
SIZES = (150, 120)
WIDTH, HEADS, POSITIONS = 24, 3, 90
FACTS: dict[str, Any] = {"model_type": "torch.nn.Transformer", "nhead": HEADS, "activation": "relu"}
FACTS |= {"norm_first": False, "scale_embedding": True, "source_begin": True, "source_end": True}


class Tokens(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, WIDTH)


class Positions(nn.Module):
    pos_embedding: Tensor

    def __init__(self, learned: bool) -> None:
        super().__init__()
        table = torch.randn(POSITIONS, WIDTH) if learned else sinusoid_table(POSITIONS, WIDTH)
        self.register_buffer("pos_embedding", table.unsqueeze(1))


class Translator(nn.Module):
    """As PyTorch's users build one: embeddings, positions, torch.nn.Transformer, a projection."""

    def __init__(self, facts: dict[str, Any], learned: bool, tied: bool) -> None:
        super().__init__()
        self.transformer = nn.Transformer(
            WIDTH,
            HEADS,
            2,
            1,
            40,
            activation=facts["activation"],
            norm_first=facts["norm_first"],
            batch_first=True,
            layer_norm_eps=facts.get("layer_norm_eps", 1e-5),
        )
        self.src_tok_emb, self.tgt_tok_emb = map(Tokens, SIZES)
        self.positional_encoding = Positions(learned)
        self.generator = nn.Linear(WIDTH, SIZES[1])
        if tied:
            self.generator.weight = self.tgt_tok_emb.embedding.weight
        self.scale = math.sqrt(WIDTH) if facts["scale_embedding"] else 1.0
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.3)

    def forward(self, source: list[int], target: list[int]) -> Tensor:
        x, y = (
            tokens.embedding(torch.tensor([ids])) * self.scale + self.positional_encoding.pos_embedding[: len(ids), 0]
            for tokens, ids in ((self.src_tok_emb, source), (self.tgt_tok_emb, target))
        )
        mask = nn.Transformer.generate_square_subsequent_mask(len(target))
        return self.generator(self.transformer(x, y, tgt_mask=mask))[0]


def make(folder: Path, learned: bool = False, tied: bool = False, **facts: Any) -> Translator:
    torch.manual_seed(1)
    folder.mkdir()
    for side, name in enumerate(("source", "target")):
        lines = [pair[side] for pair in PAIRS]
        (folder / f"{name}.spm").write_bytes(sentence_pieces(lines, SIZES[side]))
    said = {**FACTS, **facts}
    model = Translator(said, learned, tied).eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    if tied:
        del state["generator.weight"]
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(said))
    return model


@pytest.mark.parametrize(
    ("learned", "tied", "facts"),
    [
        (False, False, {}),
        (False, True, {"norm_first": True, "activation": "gelu", "source_begin": False}),
        (True, False, {"scale_embedding": False, "source_end": False}),
    ],
)
@torch.no_grad()
def test_the_same_numbers_and_texts(tmp_path: Path, learned: bool, tied: bool, facts: dict[str, Any]) -> None:
    theirs = make(tmp_path / "theirs", learned, tied, **facts)
    convert(tmp_path / "theirs", tmp_path / "ours")
    model, tokenizers, settings = load(tmp_path / "ours")
    assert settings.model.positions == ("learned" if learned else "sinusoid")
    cutters = [
        sentencepiece.SentencePieceProcessor(str(tmp_path / f"theirs/{side}.spm")) for side in ("source", "target")
    ]
    said = {**FACTS, **facts}
    of_target = [cutters[1].piece_to_id(piece) for piece in tokenizers.target.pieces(range(4, SIZES[1] + 1))]
    translator = transduce.load(tmp_path / "ours", engine="plain", split=False).with_search(beam=1, max_length=12)
    for source, target in PAIRS[:20]:
        begin = [cutters[0].bos_id()] if said["source_begin"] else []
        end = [cutters[0].eos_id()] if said["source_end"] else []
        read = [*begin, *cutters[0].encode(source), *end]
        expected = theirs(read, [cutters[1].bos_id(), *cutters[1].encode(target)])
        ids, written = tokenizers.source.encode([source])[0], tokenizers.target.encode([target])[0]
        ours = model(lay_out([[[*ids, *([END] if said["source_end"] else [])]]]), lay_out([[[BEGIN, *written]]]))[0]
        assert torch.allclose(ours[:, 4:], expected[:, of_target], atol=1e-5)
        assert torch.allclose(ours[:, END], expected[:, cutters[1].eos_id()], atol=1e-5)
        assert translator.translate(source).text == greedy(theirs, read, cutters[1])


def greedy(model: Translator, read: list[int], cutter: Any) -> str:
    ids = [cutter.bos_id()]
    while len(ids) <= 12:
        logits = model(read, ids)[-1]
        logits[[cutter.unk_id(), cutter.bos_id()]] = -math.inf  # which are never written here
        ids.append(int(logits.argmax()))
        if ids[-1] == cutter.eos_id():
            break
    return cutter.decode(ids[1:])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nhead": None}, "must say nhead: the weights do not show it"),
        ({"nhead": 5}, "its config.json cannot be"),
        ({"source_begin": "yes"}, "source_begin is true or false, not yes"),
        ({"activation": "tanh"}, "its activation is none of relu, gelu"),
        ({"projection": "head.weight"}, "unexpected: generator.weight"),
        ({"target_embedding": "nothing"}, "has no matrix nothing"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    make(tmp_path / "theirs")
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({**FACTS, **change}))
    with pytest.raises(ModelError, match=words):
        convert(tmp_path / "theirs", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


JOEY = {  # names within a layer, there and in torch.nn.Transformer
    "encoder": {"self_attn": "src_src_att", "norm1": "layer_norm", "norm2": "feed_forward.layer_norm"},
    "decoder": {"self_attn": "trg_trg_att", "multihead_attn": "src_trg_att", "norm1": "x_layer_norm"},
}
JOEY["decoder"] |= {"norm2": "dec_layer_norm", "norm3": "feed_forward.layer_norm"}
BOTH = {"linear1": "feed_forward.pwff_layer.0", "linear2": "feed_forward.pwff_layer.3"}


def as_joey(theirs: Path, folder: Path) -> Path:
    """The same model as JoeyNMT 2.3 leaves it: a checkpoint with an optimizer in it, vocabularies, config.yaml."""
    folder.mkdir()
    state: dict[str, Tensor] = {}
    for name, value in load_file(theirs / "model.safetensors").items():
        parts = name.removeprefix("transformer.").split(".")
        if parts[1] == "layers":
            stack, layer, kind, part = parts[0], parts[2], parts[3], ".".join(parts[4:])
            place = f"{stack}.layers.{layer}.{({**JOEY[stack], **BOTH})[kind]}"
            if part.startswith("in_proj_"):
                for letter, third in zip("qkv", value.chunk(3), strict=True):
                    state[f"{place}.{letter}_layer.{part.removeprefix('in_proj_')}"] = third
            else:
                state[f"{place}.{part.replace('out_proj', 'output_layer')}"] = value
        elif parts[1] == "norm":
            state[f"{parts[0]}.layer_norm.{parts[2]}"] = value
    held = load_file(theirs / "model.safetensors")
    for side, name in (("src", "source"), ("trg", "target")):
        cutter = sentencepiece.SentencePieceProcessor(str(theirs / f"{name}.spm"))
        pieces = [cutter.id_to_piece(i) for i in range(3, cutter.get_piece_size())]
        (folder / f"{side}_vocab.txt").write_text("\n".join(["<unk>", "<pad>", "<s>", "</s>", *pieces]) + "\n")
        (folder / f"{name}.model").write_bytes((theirs / f"{name}.spm").read_bytes())
        table = held[f"{'tgt' if side == 'trg' else side}_tok_emb.embedding.weight"]
        state[f"{side}_embed.lut.weight"] = torch.cat([table[:1], torch.zeros(1, WIDTH), table[1:]])  # no <pad> there
        stack = "encoder" if side == "src" else "decoder"
        state[f"{stack}.pe.pe"] = sinusoid_table(100, WIDTH).unsqueeze(0)
    table = held["generator.weight"]
    state["decoder.output_layer.weight"] = torch.cat([table[:1], torch.zeros(1, WIDTH), table[1:]])
    rest = {"optimizer_state": {"state": {0: {"step": torch.tensor(3.0)}}}, "train_iter_state": torch.get_rng_state()}
    torch.save({"model_state": state, **rest, "stats_state": {"best_ckpt_score": -math.inf}}, folder / "best.ckpt")
    text = {
        side: {"tokenizer_type": "sentencepiece", "tokenizer_cfg": {"model_file": f"elsewhere/{name}.model"}}
        for side, name in (("src", "source"), ("trg", "target"))
    }
    stacks = {
        stack: {"type": "transformer", "num_heads": HEADS, "layer_norm": "pre", "embeddings": {"scale": True}}
        for stack in ("encoder", "decoder")
    }
    config = {"data": text, "model": {"initializer": "xavier_uniform", **stacks}, "testing": {"beam_size": 5}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@torch.no_grad()
def test_a_model_of_joeynmt(tmp_path: Path) -> None:
    said = {"norm_first": True, "source_begin": False, "layer_norm_eps": 1e-6}
    theirs = make(tmp_path / "theirs", **said)
    theirs.generator.bias.zero_()  # where it has none
    convert(as_joey(tmp_path / "theirs", tmp_path / "joey"), tmp_path / "ours")
    model, tokenizers, settings = load(tmp_path / "ours")
    assert settings.search.beam == 5
    sides = [
        sentencepiece.SentencePieceProcessor(str(tmp_path / f"theirs/{side}.spm")) for side in ("source", "target")
    ]
    rows = [sides[1].piece_to_id(piece) for piece in tokenizers.target.pieces(range(4, tokenizers.target.size))]
    for source, target in PAIRS[:5]:
        expected = theirs([*sides[0].encode(source), sides[0].eos_id()], [sides[1].bos_id(), *sides[1].encode(target)])
        ids, written = tokenizers.source.encode([source])[0], tokenizers.target.encode([target])[0]
        ours = model(lay_out([[[*ids, END]]]), lay_out([[[BEGIN, *written]]]))[0]
        assert torch.allclose(ours[:, 4:], expected[:, rows], atol=1e-5)
        assert torch.allclose(ours[:, END], expected[:, sides[1].eos_id()], atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("type: transformer", "type: recurrent", "recurrent models cannot be converted"),
        ("xavier_uniform", "xavier_normal", "weighs its residuals as DeepNet does"),
        ("tokenizer_type: sentencepiece", "tokenizer_type: subword-nmt", "cuts text with subword-nmt"),
        ("target.model", "other.model", "needs its SentencePiece model beside config.yaml: other.model"),
        ("encoder:", "something:", "has no section model.encoder"),
        ("layer_norm: pre", "layer_norm: post", "encoder and decoder differ in layer_norm"),
        ("source.model\n", "source.model\n      pretokenizer: moses\n", "has pretokenizer: moses, which changes text"),
        ("  src:\n", "  src:\n    lowercase: true\n", "reads one side in small letters"),
    ],
)
def test_what_joeynmt_has_and_we_do_not(tmp_path: Path, old: str, new: str, words: str) -> None:
    make(tmp_path / "theirs", norm_first=True, source_begin=False)
    folder = as_joey(tmp_path / "theirs", tmp_path / "joey")
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace(old, new, 1))
    with pytest.raises(ModelError, match=words):
        convert(folder, tmp_path / "ours")


def test_a_list_of_tokens_that_is_too_short(tmp_path: Path) -> None:
    make(tmp_path / "theirs", norm_first=True, source_begin=False)
    folder = as_joey(tmp_path / "theirs", tmp_path / "joey")
    lines = (folder / "src_vocab.txt").read_text().splitlines()
    (folder / "src_vocab.txt").write_text("\n".join(lines[:40]) + "\n")
    with pytest.raises(ModelError, match=r"src_vocab.txt lists 40 different tokens in 40 lines; the model has 151"):
        convert(folder, tmp_path / "ours")
