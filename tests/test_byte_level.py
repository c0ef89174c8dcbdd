"""BART comes in: subwords of bytes, a <s> before every text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import Notes, bundled_pairs
from foreign import bart_folder, limit

import transduce
from transduce.commands.convert import convert
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END
from transduce.errors import ModelError, SettingsError
from transduce.settings.compose import compose
from transduce.text.byte_level import ByteLevelTokenizer

transformers = pytest.importorskip("transformers", reason="Hugging Face's models are compared with transformers")
tokenizers = pytest.importorskip("tokenizers", reason="BART's text is cut by tokenizers")
PAIRS = bundled_pairs(300)
ODD = ["Zwölf Boxkämpfer", "naïve 文字 😀", "a  b\tc", "it's 12,5 % <b>", "ﬁ ﬀ ²"]


@pytest.mark.parametrize("activation", ["gelu", "relu", "swish"])
def test_bart_comes_in(tmp_path: Path, activation: str) -> None:
    """The same tokens, logits and texts, greedy and with a beam."""
    folder = bart_folder(tmp_path / "bart", activation)
    convert(folder, tmp_path / "ours")
    model = transduce.load(tmp_path / "ours", "cpu", extra=8, stop="usual")
    theirs = transformers.BartForConditionalGeneration.from_pretrained(folder).eval()
    cut = tokenizers.ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    names = json.loads((folder / "vocab.json").read_text())
    ours = json.loads((tmp_path / "ours" / "tokenizer.json").read_text())["model"]["vocab"]
    there = {i: names[token] for token, i in ours.items() if token in names and i > END}
    there |= {END: 2, model.tokenizers.source.begin[0]: 0}
    for line in [*(pair[0] for pair in PAIRS[:15]), *ODD]:
        line = " ".join(line.split())
        ids, expected = model.tokenizers.source.encode([line])[0], [0, *cut.encode(line).ids]
        assert [there[i] for i in ids] == expected
        assert model.tokenizers.source.decode(ids) == line
        target = model.tokenizers.target.encode(["the house is old"])[0]
        with torch.no_grad():
            logits = model.model(lay_out([[[*ids, END]]]), lay_out([[[BEGIN, *target]]]))[0]
            wanted = theirs(
                torch.tensor([[*expected, 2]]), decoder_input_ids=torch.tensor([[2, *map(there.get, target)]])
            )
        here = sorted(there)
        torch.testing.assert_close(logits[:, here], wanted.logits[0][:, [there[i] for i in here]], atol=1e-5, rtol=1e-5)
        for beam in (1, 4):
            found = model.with_search(beam=beam).translate(line)
            out = theirs.generate(
                torch.tensor([[*expected, 2]]), num_beams=beam, do_sample=False, early_stopping=beam > 1,
                max_new_tokens=1 + limit(model, ids), bad_words_ids=[[1], [3]], max_length=None,
            )[0].tolist()  # fmt: skip
            text = cut.decode([i for i in out[2:] if i != 2], skip_special_tokens=False)
            assert found.text == " ".join(text.replace("<s>", "").split()) or 0 in out[2:]


def test_a_folder_without_the_projections_bias(tmp_path: Path) -> None:
    """As facebook/bart-base lies on the hub: names without `model.`, a version among the weights, no bias."""
    from safetensors.torch import load_file, save_file

    folder = bart_folder(tmp_path / "bart")
    weights = load_file(folder / "model.safetensors")
    weights["final_logits_bias"].zero_()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    convert(folder, tmp_path / "expected")
    bare = {name.removeprefix("model."): value for name, value in weights.items() if name != "final_logits_bias"}
    bare |= {"encoder.version": torch.ones(1), "decoder.version": torch.ones(1)}
    save_file(bare, folder / "model.safetensors", {"format": "pt"})
    convert(folder, tmp_path / "ours")
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("expected", "ours"))
    assert one == two


def test_its_pieces_can_be_read(tmp_path: Path) -> None:
    convert(bart_folder(tmp_path / "bart"), tmp_path / "ours")
    tokenizer = transduce.load(tmp_path / "ours", "cpu").tokenizers.source
    assert "".join(tokenizer.cut("das haus ist alt")).replace("▁", " ") == "das haus ist alt"
    pieces = tokenizer.pieces(range(tokenizer.size))
    assert len(set(pieces)) == len(pieces)


def test_it_can_be_trained_further_and_not_anew(tmp_path: Path) -> None:
    convert(bart_folder(tmp_path / "bart"), tmp_path / "ours")
    given = {"start": str(tmp_path / "ours"), "steps": 3, "validate_every": 3, "device": "cpu"}
    model = transduce.train(tmp_path / "run", PAIRS[:200], report=Notes(), training=given)
    assert model.translate("das haus").status
    with pytest.raises(SettingsError, match="only comes with a converted model"):
        ByteLevelTokenizer.train([], compose({}).text)
    with pytest.raises(ModelError, match="SentencePiece"):
        convert(tmp_path / "ours", tmp_path / "out", to="ctranslate2")


def test_what_needs_words_is_refused_and_a_damaged_file_too(tmp_path: Path) -> None:
    convert(bart_folder(tmp_path / "bart"), tmp_path / "ours")
    model = transduce.load(tmp_path / "ours", "cpu")
    with pytest.raises(SettingsError, match="need to know where words begin"):
        model.translate("das haus", keep="x")
    for content in (b"{}", b"\xff", model.tokenizers.source.to_bytes().replace(b'"<pad>":0', b'"":0')):
        with pytest.raises(ValueError):  # noqa: PT011  (whatever the library says)
            ByteLevelTokenizer(content)


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("merges.txt", "#version: 0.2\nquark xyz\n", "does not fit its vocabulary|no pair"),
        ("merges.txt", None, "merges.txt"),
        ("vocab.json", "[1, 2]", "must be an object"),
        ("vocab.json", None, "vocab.json"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, file: str, content: str | None, complaint: str) -> None:
    folder = bart_folder(tmp_path / "bart")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(ModelError, match=complaint):
        convert(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
