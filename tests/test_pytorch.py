"""A translator made of torch.nn.Transformer, brought in: the same numbers and texts as by PyTorch itself."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import bundled_pairs
from foreign import sentence_pieces
from safetensors.torch import save_file
from torch import Tensor, nn

import transduce
from transduce.commands.convert import convert
from transduce.data.layout import lay_out
from transduce.errors import ModelError
from transduce.models.load import load
from transduce.nn.positions import sinusoid_table
from transduce.text.special import BEGIN, END

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
            WIDTH, HEADS, 2, 1, 40, activation=facts["activation"], norm_first=facts["norm_first"], batch_first=True
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
