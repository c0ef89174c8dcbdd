"""Vocabularies out of tokenizer.json, the one file in which newer programs of Hugging Face's keep a tokenizer.

Where it was made of a SentencePiece model, all that decides how that one cuts stands there: its pieces, their scores
(or the order of its merges), and its table of characters. So a model that cuts alike is made of it again.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.errors import ModelError
from transduce.files import strict_json
from transduce.files.reading import VOCABULARY
from transduce.formats.json_files import read_json
from transduce.formats.pieces import NORMAL, Piece, characters_of, plain_model, read_pieces, with_pieces
from transduce.formats.vocabulary import by_id

TOKENIZER = "tokenizer.json"
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")  # which fairseq puts before all pieces
LONGEST = 1000  # characters of a piece
ENOUGH = 0.99  # of the pairs of pieces that make a third: so many are merges, where they were a SentencePiece model's


def sentence_model(folder: Path) -> bytes:
    """The SentencePiece model that a tokenizer.json was made of."""
    tokenizer = read_json(folder / TOKENIZER, VOCABULARY)
    cutter, path = _part(tokenizer, "model"), folder / TOKENIZER
    cut_by = {str(step.get("type")) for step in _steps(tokenizer, "pre_tokenizer", "pretokenizers")}
    if "Metaspace" not in cut_by or not cut_by <= {"Metaspace", "WhitespaceSplit"}:
        raise ModelError(f"{path} cuts a text into words in another way than SentencePiece does")
    special = {str(token.get("content")) for token in _added(tokenizer) if token.get("special")}
    kind = str(cutter.get("type")).lower()
    if kind == "unigram":
        scores = _scores(path, cutter.get("vocab"))
    elif kind == "bpe":
        scores = _ranks(path, by_id(_part(cutter, "vocab")), merges_of(path, cutter))
    else:
        raise ModelError(f"{path} holds a {kind} model; only bpe and unigram can be converted")
    pieces = [Piece(text, score, NORMAL) for text, score in scores if text not in special]
    if [text for text, _ in scores][len(FAIRSEQ) :][: len(pieces)] != [piece.text for piece in pieces]:
        raise ModelError(f"{path} has other tokens among its pieces, or before them, than fairseq's vocabularies have")
    return with_pieces(plain_model(kind, _characters(path, tokenizer)), pieces)


def tokenizer_json(model: bytes, pieces: Sequence[str], behind: Sequence[str], languages: Sequence[str]) -> bytes:
    """A SentencePiece model of byte pairs as such a file. `behind`: tokens that stand behind its pieces, of which
    `languages` are found in no text."""
    tokens = [*FAIRSEQ, *pieces]
    score = {piece.text: piece.score for piece in read_pieces(model)}
    names = {*pieces}
    joined = [(text[:i], text[i:]) for text in pieces for i in range(1, len(text)) if {text[:i], text[i:]} <= names]
    merges = sorted(joined, key=lambda pair: (-score["".join(pair)], len(pair[0])))
    added = [*enumerate(FAIRSEQ), *enumerate(behind, len(tokens))]
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    if table := characters_of(model):
        steps.insert(0, {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()})
    told = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(i, text, special={*FAIRSEQ, *languages}) for i, text in added],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": spaces,
        "post_processor": None,  # its program puts the languages there
        "decoder": spaces,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": False,
            "vocab": {text: i for i, text in enumerate(tokens)},
            "merges": [" ".join(pair) for pair in merges],
        },
    }
    return strict_json.dumps(told).encode()


def _added_token(i: int, text: str, special: Collection[str]) -> dict[str, Any]:
    told = {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
    return {**told, "normalized": text not in special, "special": text in special}


def subwords_of_bytes(folder: Path) -> tuple[dict[int, str], list[tuple[str, str]]]:
    """Tokens by id, and merges."""
    path, tokenizer = folder / TOKENIZER, read_json(folder / TOKENIZER, VOCABULARY)
    model = _part(tokenizer, "model")
    cut_by = {str(step.get("type")) for step in _steps(tokenizer, "pre_tokenizer", "pretokenizers")}
    if model.get("type") != "BPE" or cut_by != {"ByteLevel"}:
        raise ModelError(f"{path} holds no subwords of bytes, which models of this kind have")
    return by_id(_part(model, "vocab")), merges_of(path, model)


def added_tokens(folder: Path) -> dict[str, int]:
    """With their ids; none where there is no such file."""
    if not (folder / TOKENIZER).exists():
        return {}
    listed = _added(read_json(folder / TOKENIZER, VOCABULARY))
    return {str(token["content"]): token["id"] for token in listed if "content" in token and "id" in token}


def merges_of(path: Path, model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs, which older files join by a space."""
    listed = model.get("merges")
    pairs: list[Any] = listed if isinstance(listed, list) else [None]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in pairs]
    if not all(isinstance(pair, list) and len(pair) == 2 and set(map(type, pair)) == {str} for pair in pairs):
        raise ModelError(f"{path} has a merge that is no pair")
    if any(len(left) + len(right) > LONGEST for left, right in pairs):
        raise ModelError(f"{path} has a merge of more than {LONGEST:,} characters, which no vocabulary has")
    return [(left, right) for left, right in pairs]


def _scores(path: Path, listed: Any) -> list[tuple[str, float]]:
    try:
        scores = [(text, float(score)) for text, score in listed]
    except (TypeError, ValueError):
        scores = []
    if not scores or not all(isinstance(text, str) for text, _ in scores):
        raise ModelError(f"{path} must list its pieces with their scores")
    return scores


def _ranks(path: Path, names: Mapping[int, str], merges: Sequence[tuple[str, str]]) -> list[tuple[str, float]]:
    """SentencePiece joins the pair that makes the piece with the highest score: the first of the merges."""
    rank: dict[str, int] = {}
    for left, right in merges:
        rank.setdefault(left + right, len(rank))
    known = {piece for pair in merges for piece in pair} | rank.keys()
    usual = sum(text[:i] in known and text[i:] in known for text in rank for i in range(1, len(text)))
    if len(merges) < ENOUGH * usual:
        raise ModelError(
            f"{path} has {len(merges):,} merges, where a SentencePiece model of its pieces would have {usual:,}: it "
            f"was not made of one, and cuts otherwise"
        )
    return [(text, -float(rank.get(text, len(rank)))) for _, text in sorted(names.items())]


def _characters(path: Path, tokenizer: Mapping[str, Any]) -> bytes:
    """The table by which characters are changed before a text is cut; empty: none is."""
    table = b""
    for step in _steps(tokenizer, "normalizer", "normalizers"):
        kind = step.get("type")
        if kind == "Precompiled":
            try:
                table = base64.b64decode(str(step.get("precompiled_charsmap")), validate=True)
            except ValueError as error:
                raise ModelError(f"{path} has a damaged table of characters: {error}") from error
        elif kind not in ("Strip", "Prepend") and not _of_spaces(step):  # as SentencePiece does by itself
            raise ModelError(f"{path} changes a text by {kind}, which no SentencePiece model does")
    return table


def _of_spaces(step: Mapping[str, Any]) -> bool:
    """Whether it makes one space of many, or ▁ of a space."""
    pattern = step.get("pattern")
    told = str(next(iter(pattern.values()), "")) if isinstance(pattern, Mapping) else ""
    return step.get("type") == "Replace" and told in (" {2,}", " ") and step.get("content") in (" ", "▁")


def _steps(tokenizer: Mapping[str, Any], name: str, inner: str) -> Iterator[Mapping[str, Any]]:
    """Those of a sequence, or the only one."""
    found = tokenizer.get(name)
    if isinstance(found, Mapping):
        several = found.get(inner) if found.get("type") == "Sequence" else [found]
        yield from (step for step in several if isinstance(step, Mapping)) if isinstance(several, list) else ()


def _added(tokenizer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = tokenizer.get("added_tokens")
    return [token for token in listed if isinstance(token, Mapping)] if isinstance(listed, list) else []


def _part(tokenizer: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = tokenizer.get(name)
    if not isinstance(found, dict):
        raise ModelError(f"its {TOKENIZER} must have {name}, an object")
    return found
