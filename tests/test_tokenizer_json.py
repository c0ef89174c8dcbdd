"""Folders as the newest programs of Hugging Face's write them: all that a tokenizer knows lies in tokenizer.json."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import bundled_pairs
from foreign import CODES, bart_folder, many_folder

import transduce
from transduce.commands.convert import convert
from transduce.errors import ModelError
from transduce.text.languages import languages_of

transformers = pytest.importorskip("transformers", reason="its programs write the folders")
ODD = ["ich  möchte ① ein Bier", "ﬁ ﬀ ² x", "文字 😀", "Zwölf Boxkämpfer", "1.234,5 %"]
LINES = [line for pair in bundled_pairs(100) for line in pair] + ODD


def saved_anew(folder: Path, tokenizer: Any) -> Path:
    """A model's folder with the tokenizer as today's programs save it."""
    newer = folder.with_name(f"{folder.name}-newer")
    tokenizer.save_pretrained(newer)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(folder / name, newer)
    assert not [
        path for path in newer.iterdir() if path.suffix == ".model" or path.name in ("vocab.json", "merges.txt")
    ]
    return newer


def nllb(folder: Path) -> tuple[Path, Any]:
    """Byte pairs, with the languages behind <mask>."""
    many_folder(folder, "nllb")
    (folder / "special_tokens_map.json").unlink()
    load = transformers.NllbTokenizer.from_pretrained
    tokenizer = load(folder, extra_special_tokens=CODES["nllb"], src_lang="deu_Latn")
    return saved_anew(folder, tokenizer), tokenizer


def mbart50(folder: Path) -> tuple[Path, Any]:
    """A unigram model, with the languages among its pieces and <mask> behind them."""
    many_folder(folder, "mbart")
    (folder / "special_tokens_map.json").unlink()
    tokenizer = transformers.MBart50Tokenizer.from_pretrained(folder, src_lang="de_DE")
    return saved_anew(folder, tokenizer), tokenizer


@pytest.mark.parametrize(("made", "languages"), [(nllb, ("deu_Latn", "eng_Latn")), (mbart50, ("de_DE", "en_XX"))])
def test_the_tokens_are_those_of_the_folder(
    tmp_path: Path, made: Callable[[Path], tuple[Path, Any]], languages: tuple[str, str]
) -> None:
    folder, theirs = made(tmp_path / "model")
    convert(folder, tmp_path / "ours")
    model = transduce.load(tmp_path / "ours", "cpu", languages=languages)
    numbers = theirs.get_vocab()
    numbers |= {f"<language {code}>": numbers[code] for code in languages}
    ours = model.tokenizers.source
    for line in LINES:
        (ids,) = ours.encode([line])
        here = [numbers.get(piece, numbers["<unk>"]) for piece in ours.pieces(ids)]
        assert [*here, numbers["</s>"]] == theirs(line).input_ids, line
    again = tmp_path / "again"
    convert(tmp_path / "ours", again, to="huggingface")  # and it can go out again
    convert(again, tmp_path / "ours-again")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("ours", "ours-again")]
    assert weights[0] == weights[1]


def test_a_bart_is_the_same_from_either_folder(tmp_path: Path) -> None:
    folder = bart_folder(tmp_path / "bart")
    newer = saved_anew(folder, transformers.BartTokenizer.from_pretrained(folder))
    convert(folder, tmp_path / "one")
    convert(newer, tmp_path / "two")
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_words_that_were_added_are_words_of_a_text(tmp_path: Path) -> None:
    """Anywhere in it, as their program finds them; but for one that is a piece already."""
    many_folder(tmp_path / "model", "nllb")
    (tmp_path / "model" / "special_tokens_map.json").unlink()
    load = transformers.NllbTokenizer.from_pretrained
    theirs = load(tmp_path / "model", extra_special_tokens=CODES["nllb"], src_lang="deu_Latn")
    theirs.add_tokens(["Zebra", "ich"])
    convert(saved_anew(tmp_path / "model", theirs), tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours", "cpu", languages=("deu_Latn", "eng_Latn")).tokenizers.source
    names = [piece.replace("<language deu_Latn>", "deu_Latn") for piece in ours.pieces(ours.encode(["ein Zebra"])[0])]
    assert theirs.convert_tokens_to_ids(names) == theirs("ein Zebra").input_ids[:-1]
    assert "Zebra" in ours.pieces(ours.encode(["einZebrastreifen"])[0])


def test_a_language_that_was_added_is_one_more(tmp_path: Path) -> None:
    """Whoever adds it replaces the list, in which then only the new one stands."""
    folder, theirs = nllb(tmp_path / "model")
    theirs.add_special_tokens({"extra_special_tokens": ["tyv_Cyrl"]}, replace_extra_special_tokens=True)
    theirs.save_pretrained(folder)
    convert(folder, tmp_path / "ours")
    known = languages_of(transduce.load(tmp_path / "ours", "cpu", languages=("deu_Latn", "tyv_Cyrl")).tokenizers.source)
    assert sorted(known) == ["deu_Latn", "eng_Latn", "tyv_Cyrl"]
    (folder / "tokenizer_config.json").unlink()  # and the file that lists them need not be there
    convert(folder, tmp_path / "bare")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t["model"].update(type="WordPiece"), "holds a wordpiece model; only bpe and unigram"),
        (lambda t: t["model"].update(merges=t["model"]["merges"][::2]), "it was not made of one, and cuts otherwise"),
        (lambda t: t.update(added_tokens=[]), "other tokens among its pieces"),
        (lambda t: t["model"].update(merges=[["a"]]), "a merge that is no pair"),
        (lambda t: t["model"].update(merges=[["a", "b" * 1000]]), "more than 1,000 characters"),
        (lambda t: t["model"].update(merges=7), "a merge that is no pair"),
        (lambda t: t["model"].update(vocab=[]), "must have vocab, an object"),
        (lambda t: t["model"].update(type="Unigram"), "must list its pieces with their scores"),
        (lambda t: t.update(model=None), "must have model, an object"),
        (lambda t: t.update(normalizer={"type": "Lowercase"}), "changes a text by Lowercase"),
        (lambda t: t["normalizer"]["normalizers"][0].update(precompiled_charsmap="é"), "damaged table of characters"),
        (lambda t: t.update(pre_tokenizer={"type": "ByteLevel"}), "into words in another way than SentencePiece"),
    ],
)
def test_what_no_sentencepiece_model_does_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    folder, _ = nllb(tmp_path / "model")
    told = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(told)
    (folder / "tokenizer.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ModelError, match=complaint):
        convert(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_bart_without_subwords_of_bytes_is_refused(tmp_path: Path) -> None:
    bart, (folder, _) = bart_folder(tmp_path / "bart"), nllb(tmp_path / "model")
    for name in ("vocab.json", "merges.txt"):
        (bart / name).unlink()
    shutil.copy(folder / "tokenizer.json", bart)
    with pytest.raises(ModelError, match="holds no subwords of bytes"):
        convert(bart, tmp_path / "ours")
