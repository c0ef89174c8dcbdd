"""The text of a folder of CTranslate2's: what its translations begin and end with, its tokens, and their tokenizer.

CTranslate2 keeps no tokenizer. Beside model.bin there must be source.spm and target.spm, or one SentencePiece model for
both languages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.files import strict_json
from transduce.files.reading import SMALL, VOCABULARY
from transduce.formats.binary import Binary
from transduce.formats.json_files import number, read_file, read_json
from transduce.formats.pieces import read_pieces, renumbered
from transduce.formats.vocabulary import (
    Special,
    Vocabulary,
    by_id,
    mark_in_text,
    marks_in_text,
    text_settings,
    token_lines,
)
from transduce.text.languages import language_of, mark_of
from transduce.text.moses import MosesTokenizer

CONFIG = "config.json"
PADS = ("<pad>", "<blank>")  # what padding is called, where there is a token for it
BPE = "bpe.model"  # merges of words, as subword-nmt writes them
ONE_MODEL = ("sentencepiece.model", "sentencepiece.bpe.model", "spm.model", "tokenizer.model")
LANGUAGES = [re.compile(mark) for mark in (r"__([a-z]{2,3})__", r"([a-z]{3}_[A-Z][a-z]{3})", r"([a-z]{2}_[A-Z]{2})")]
USUAL_EPSILON = 1e-5  # of norms
WITH_CONFIG = 6  # the first version of model.bin with a config.json beside it


class Facts(NamedTuple):
    """What config.json says."""

    begin: str
    end: str
    unknown: str
    adds_end: bool
    epsilon: float


def facts_of(folder: Path, found: Binary) -> Facts:
    path = folder / CONFIG
    if found.version < WITH_CONFIG:
        config = _config_of_old(found.variables)
    else:
        config = read_json(path, SMALL) if path.exists() else {}
    if config.get("decoder_start_token", "") is None:
        raise ModelError(
            f"{folder} leaves it to the caller what a translation begins with, such as the mark of a language; convert "
            f"the model that it was made from"
        )
    keys = {"decoder_start_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    begin, end, unknown = (str(config.get(key) or usual) for key, usual in keys.items())
    if config.get("add_source_bos"):
        raise ModelError(f"{folder} puts {config.get('bos_token')} before every source, which cannot be converted yet")
    epsilon = number(config, "layer_norm_epsilon", USUAL_EPSILON)
    return Facts(begin, end, unknown, bool(config.get("add_source_eos")), epsilon)


def _config_of_old(variables: Mapping[str, Tensor]) -> dict[str, Any]:
    """What older files say among their weights: texts as bytes, flags as numbers."""

    def flag(name: str, usual: bool = False) -> bool:
        return bool(variables[name].item()) if name in variables and variables[name].numel() == 1 else usual

    texts = {name: variables[name] for name in ("unk_token", "bos_token", "eos_token") if name in variables}
    config: dict[str, Any] = {
        name: value.to(torch.int8).numpy().tobytes().decode("utf-8", "replace") for name, value in texts.items()
    }
    config |= {"add_source_bos": flag("with_source_bos"), "add_source_eos": flag("with_source_eos")}
    begin = config.get("bos_token", "<s>") if flag("with_target_bos", usual=True) else config.get("eos_token", "</s>")
    config["decoder_start_token"] = None if flag("user_decoder_start_tokens") else begin
    return config


def names_of(folder: Path) -> list[dict[int, str]]:
    """The tokens of source and target by id, marks of languages by our names."""
    for names in (["shared_vocabulary"] * 2, ["source_vocabulary", "target_vocabulary"]):
        paths = [next((p for p in (folder / f"{n}.json", folder / f"{n}.txt") if p.exists()), None) for n in names]
        if None not in paths:
            return [_listed(path) for path in paths if path is not None]
    raise ModelError(f"{folder} has no vocabulary: shared_vocabulary.json, or source_ and target_vocabulary.json")


def _listed(path: Path) -> dict[int, str]:
    try:
        text = read_file(path, VOCABULARY).decode("utf-8")
        tokens = strict_json.loads(text) if path.suffix == ".json" else token_lines(text)
    except ValueError as error:
        raise ModelError(f"{path} is no list of tokens: {str(error)[:100]}") from error
    if not isinstance(tokens, list):
        raise ModelError(f"{path} must be a list of tokens")
    languages = _languages(tokens)
    return {i: languages.get(name) or mark_in_text(name) for i, name in by_id(tokens).items()}


def _languages(tokens: list[Any]) -> dict[str, str]:
    """Marks of languages, as M2M100, NLLB or mBART write them, and our names of them. One alone is a word of a text."""
    for pattern in LANGUAGES:
        found = {token: match[1] for token in map(str, tokens) if (match := pattern.fullmatch(token))}
        if len(found) > 1:
            return {token: mark_of(language) for token, language in found.items()}
    return {}


def token_there(token: str) -> str:
    """A token of ours as others name it: the mark of a language as M2M100 or NLLB writes it."""
    code = language_of(token)
    return token if code is None else code if "_" in code else f"__{code}__"


def special_of(names: Mapping[int, str], facts: Facts, zero_begin: bool) -> Special:
    """`zero_begin`: translations begin with no embedding, so that any token will do, and some name one that is not
    there."""
    ids = {name: i for i, name in names.items()}
    begin = facts.end if zero_begin and facts.begin not in ids else facts.begin
    if facts.end not in ids or begin not in ids:
        raise ModelError(
            f"its vocabulary lacks {facts.end[:40]} or {begin[:40]}, which its translations end or begin with"
        )
    pad = next((ids[name] for name in PADS if name in ids), None)
    return Special(pad, ids.get(facts.unknown), ids[begin], ids[facts.end])


def text_of(folder: Path, source: Vocabulary, target: Vocabulary) -> tuple[dict[str, Any], list[bytes]]:
    """Settings of the section `text`, and the files of both tokenizers."""
    if (folder / BPE).exists() and not any((folder / name).exists() for name in (*ONE_MODEL, "source.spm")):
        settings = {"tokenizer": "moses", "joint": False, "same_ids": source.tokens == target.tokens}
        settings |= {"vocabulary": len(source.tokens), "target_vocabulary": len(target.tokens)}
        return settings, _moses(folder, source, target)
    models = sentence_pieces(folder)
    settings = text_settings(source, target, models)
    files = [
        renumbered(model, v.tokens, marks_in_text(v.tokens), [t for t in v.tokens if t.startswith("<language ")])
        for model, v in zip([models[0], models[-1]], (source, target), strict=True)
    ]
    return settings, files


def _moses(folder: Path, source: Vocabulary, target: Vocabulary) -> list[bytes]:
    """Words by Moses and BPE; which rules, the languages in an Argos package's metadata.json say."""
    facts = read_json(folder / "metadata.json", SMALL) if (folder / "metadata.json").exists() else {}
    codes = [facts.get("from_code"), facts.get("to_code")]
    if not all(isinstance(code, str) for code in codes):
        raise ModelError(f"{folder} has a {BPE}, and no metadata.json that names its languages: from_code and to_code")
    try:
        merges = read_file(folder / BPE, VOCABULARY).decode("utf-8")
        both = zip(map(str, codes), (source, target), strict=True)
        return [MosesTokenizer.of(code, v.tokens, merges).to_bytes() for code, v in both]
    except ValueError as error:
        raise ModelError(f"{folder / BPE} is no list of merges: {str(error)[:100]}") from error


def sentence_pieces(folder: Path) -> list[bytes]:
    """The models of source and target, or one for both."""
    two = [folder / "source.spm", folder / "target.spm"]
    one = [folder / name for name in ONE_MODEL if (folder / name).exists()]
    paths = two if all(path.exists() for path in two) else one[:1]
    if not paths:
        raise ModelError(
            f"{folder} has no SentencePiece model to cut text with: copy its source.spm and target.spm there, or its "
            f"sentencepiece.model"
        )
    models = [read_file(path, VOCABULARY) for path in paths]
    for path, model in zip(paths, models, strict=True):
        if not read_pieces(model):
            raise ModelError(f"{path} is no SentencePiece model")
    return models[:1] if models[0] == models[-1] else models
