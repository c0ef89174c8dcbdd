"""Packages of Argos that cut text by the rules of Moses and BPE come in."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Notes, bundled_pairs

import transduce
from transduce.commands.convert import convert
from transduce.core import transformer
from transduce.core.special import SPECIAL
from transduce.errors import ModelError, SettingsError
from transduce.settings.compose import compose
from transduce.settings.sections import ModelSettings
from transduce.text.moses import MosesTokenizer

pytest.importorskip("sacremoses", reason="the rules of Moses are sacremoses's")
ctranslate2 = pytest.importorskip("ctranslate2", reason="packages of Argos are models of CTranslate2")
PAIRS = bundled_pairs(80)
MERGES = [
    ("e", "n</w>"),
    ("d", "e"),
    ("d", "a"),
    ("da", "s</w>"),
    ("t", "h"),
    ("th", "e</w>"),
    ("e", "r</w>"),
    ("i", "n"),
]


def codes(version: str = "#version: 0.2\n") -> str:
    return version + "".join(f"{a} {b}\n" for a, b in MERGES)


def tokenizer(version: str = "#version: 0.2\n", tokens: tuple[str, ...] = ()) -> MosesTokenizer:
    return MosesTokenizer.of("de", [*SPECIAL, *tokens], codes(version))


def test_words_are_cut_as_subword_nmt_does() -> None:
    """The pair that was learned first is merged first, and everywhere."""
    cut = tokenizer()
    assert cut.cut("das kinder") == ["das", "k@@", "in@@", "de@@", "r"]  # d e before e r</w>
    assert cut.cut("lesen den") == ["l@@", "e@@", "s@@", "en", "d@@", "en"]
    apart = MosesTokenizer.of("de", SPECIAL, "e n\nen </w>\nd e\n")  # the first version, in which words end apart
    assert apart.cut("lesen de") == ["l@@", "e@@", "s@@", "en", "de"]


def test_text_is_tokenized_and_comes_back_by_the_rules_of_moses() -> None:
    tokens = ("Das", "ist", "mein@@", "s", ",", "sagte", "er", ".", "&quot;", "&apos;s")
    cut = MosesTokenizer.of("de", [*SPECIAL, *tokens], "#version: 0.2\n" + "".join(
        f"{a} {b}\n" for word in ("Das", "ist", "sagte", "er", "&quot;", "&apos;s") for a, b in merges_of(word)
    ))  # fmt: skip
    ids = cut.encode(['"Das ist", sagte er.'])[0]
    assert cut.pieces(ids) == ["&quot;", "Das", "ist", "&quot;", ",", "sagte", "er", "."]
    assert cut.decode(ids) == '"Das ist," sagte er.' or cut.decode(ids) == '"Das ist", sagte er.'
    assert cut.decode([*cut.encode(["Das"])[0], 6]) == "Das mein"  # a word that was not ended
    assert cut.encode(["Zug", ""]) == [[1, 1, 1], []]
    assert MosesTokenizer(cut.to_bytes()).encode(["Das ist"]) == cut.encode(["Das ist"])


def merges_of(word: str) -> list[tuple[str, str]]:
    """Those that make one piece of it, from the left."""
    letters = [*word[:-1], word[-1] + "</w>"]
    return [("".join(letters[:i]), letters[i]) for i in range(1, len(letters))]


def package(path: Path, **changes: str | None) -> tuple[Path, Any]:
    """With random weights, in the layout of the real ones."""
    from transduce.formats import ctranslate2_out

    cut = [tokenizer().cut(text) for pair in PAIRS for text in pair]
    names = [*SPECIAL, *sorted({piece for pieces in cut for piece in pieces})]
    torch.manual_seed(4)
    sizes = {"layers": 2, "decoder_layers": 1, "d_model": 24, "d_ff": 40, "heads": 3, "max_positions": 200}
    model = transformer.build(ModelSettings(**sizes), len(names), len(names))  # type: ignore[arg-type]
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.5)
    folder = path.with_suffix("")
    folder.mkdir()
    ctranslate2_out.convert(model.eval(), folder, (names, names))
    files = {"bpe.model": codes(), "metadata.json": json.dumps({"from_code": "de", "to_code": "en"})} | changes
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"de_en/model/{file.name}")
        for name, content in files.items():
            if content is not None:
                archive.writestr(f"de_en/{name}", content)
    return folder, model


def test_such_a_package_comes_in(tmp_path: Path) -> None:
    folder, _ = package(tmp_path / "x.argosmodel")
    convert(tmp_path / "x.argosmodel", tmp_path / "ours")
    model = transduce.load(tmp_path / "ours", "cpu", beam=1, max_length=30, extra=100, split=False)
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    lines = [source for source, _ in PAIRS[:20]]
    found = translator.translate_batch(
        [model.tokenizers.source.cut(line) for line in lines], beam_size=1, max_decoding_length=30,
        suppress_sequences=[["<pad>"], ["<s>"]], disable_unk=True, min_decoding_length=0,
    )  # fmt: skip
    assert len({tuple(one.hypotheses[0]) for one in found}) > 5  # they are not all alike
    for line, one in zip(lines, found, strict=True):
        assert list(model.translate(line).candidates[0].tokens) == one.hypotheses[0]
    given = {"start": str(tmp_path / "ours"), "steps": 2, "validate_every": 2, "device": "cpu"}
    assert transduce.train(tmp_path / "run", PAIRS, report=Notes(), training=given).translate("das haus").status
    with pytest.raises(ModelError, match="SentencePiece"):
        convert(tmp_path / "ours", tmp_path / "out", to="huggingface")
    with pytest.raises(SettingsError, match="only comes with a converted model"):
        MosesTokenizer.train([], compose({}).text)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"bpe.model": "#version: 0.2\na b c\n"}, r"bpe\.model is no list of merges: 'a b c'"),
        ({"metadata.json": "{}"}, "no metadata.json that names its languages"),
        ({"metadata.json": None}, "no metadata.json that names its languages"),
    ],
)
def test_packages_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, str | None], complaint: str) -> None:
    package(tmp_path / "x.argosmodel", **changes)
    with pytest.raises(ModelError, match=complaint):
        convert(tmp_path / "x.argosmodel", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
