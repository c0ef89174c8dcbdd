"""A vocabulary and its SentencePiece models as files of Hugging Face's, with the numbers that tokens have there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from transduce.core.special import BEGIN, END, PAD, SPECIAL, UNKNOWN
from transduce.errors import ModelError
from transduce.files import strict_json
from transduce.formats.hugging_face_json import FAIRSEQ, TOKENIZER, merges_of, tokenizer_json
from transduce.formats.hugging_face_text import OF_MBART, OF_MBART50, SENTENCE_PIECES
from transduce.formats.pieces import kind_of, read_pieces, with_pieces
from transduce.formats.vocabulary import Special
from transduce.models.load import Loaded
from transduce.text.languages import EVERY_TEXT, languages_of, mark_of

TOLD = "tokenizer_config.json"  # of which class a tokenizer is
_M2M100 = (
    *("af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de", "el"),
    *("en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr", "ht", "hu"),
    *("hy", "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg", "ln", "lo", "lt"),
    *("lv", "mg", "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or", "pa", "pl", "ps", "pt"),
    *("ro", "ru", "sd", "si", "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw", "ta", "th", "tl", "tn", "tr"),
    *("uk", "ur", "uz", "vi", "wo", "xh", "yi", "yo", "zh", "zu"),
)
OF_M2M100 = {_M2M100: "m2m100", ("en", "ha", "is", "ja", "cs", "ru", "zh", "de"): "wmt21"}  # its lists, and their names


class TextOut(NamedTuple):
    """Files of a tokenizer; and for source and target our row of each of their numbers."""

    files: dict[str, bytes]
    rows: list[list[int]]
    special: Special
    first: int | None = None  # which every translation begins with
    unwritten: tuple[int, ...] = ()  # that is never written, beside what is special


def text_of_two(loaded: Loaded) -> TextOut:
    """Marian's: a SentencePiece model a side, one list of tokens or two, in our numbers."""
    shared = loaded.settings.text.joint or loaded.settings.text.same_ids
    sides = loaded.tokenizers.files()
    source, target = [*sides.values()][0], [*sides.values()][-1]
    vocabularies = [side.pieces(range(side.size)) for side in (loaded.tokenizers.source, loaded.tokenizers.target)]
    numbered = [_json({_typed_name(token): i for i, token in enumerate(tokens)}) for tokens in vocabularies]
    files = {
        TOLD: _json({"tokenizer_class": "MarianTokenizer", "separate_vocabs": not shared}),
        "source.spm": source,
        "target.spm": target,
        "vocab.json": numbered[0],
    }
    files |= {} if shared else {"target_vocab.json": numbered[1]}
    rows = [[*range(len(tokens))] for tokens in vocabularies]
    return TextOut(files, rows, Special(PAD, UNKNOWN, BEGIN, END))


def _typed_name(token: str) -> str:
    """The mark of a language stands before the text there, and has no space."""
    return token.removeprefix("▁") if token.startswith("▁>>") and token.endswith("<<") else token


def text_of_bytes(loaded: Loaded) -> TextOut:
    """BART's: subwords of bytes."""
    (content,) = loaded.tokenizers.files().values()
    model = strict_json.loads(content)["model"]
    rows, special = _numbers(loaded)
    ours = {i: token for token, i in model["vocab"].items()}
    names = {ours[row]: i for i, row in enumerate(rows) if i >= len(FAIRSEQ) and not _is_spare(ours[row])}
    names |= {token: i for i, token in enumerate(FAIRSEQ)}
    merges = (" ".join(pair) for pair in merges_of(Path(TOKENIZER), model))
    files = {
        TOLD: _json({"tokenizer_class": "BartTokenizer"}),
        "vocab.json": _json(names),
        "merges.txt": "\n".join(["#version: 0.2", *merges, ""]).encode(),
    }
    return TextOut(files, [rows, rows], special, first=FAIRSEQ.index("<s>"))


def text_of_many(loaded: Loaded) -> TextOut:
    """One SentencePiece model for many languages, with their marks behind its pieces."""
    (content,) = loaded.tokenizers.files().values()
    rows, special = _numbers(loaded)
    tokens, marks = loaded.tokenizers.source.pieces(rows), languages_of(loaded.tokenizers.source)
    codes = {mark_of(code): code for code in marks}
    codes |= {tokens[special.begin]: _begun_with(marks)} if loaded.settings.text.mark_place == "behind" else {}
    known = {piece.text: piece for piece in read_pieces(content)}
    four = len(FAIRSEQ)
    first = next((i for i in range(four, len(tokens)) if tokens[i] in codes or _is_spare(tokens[i])), len(tokens))
    pieces = [known[token] for token in tokens[four:first]]
    behind = [codes.get(token) or token.removeprefix("▁") for token in tokens[first:]]
    while behind and (_is_spare(behind[-1]) or behind[-1] == SPECIAL[BEGIN]):
        behind.pop()
    spare = next((i for i, name in enumerate(behind) if _is_spare(name)), None)
    if spare is not None:  # the only one that stands before others
        behind[spare] = "<mask>"
    model = with_pieces(content, pieces)
    files = _files(loaded, model, [piece.text for piece in pieces], behind)
    target = loaded.settings.text.target_language
    forced = None if target is None else rows.index(marks[target])
    return TextOut(files, [rows, rows], special, forced, unwritten=(FAIRSEQ.index("<s>"),))


def _files(loaded: Loaded, model: bytes, pieces: list[str], behind: list[str]) -> dict[str, bytes]:
    """By the class of theirs that has what stands behind the pieces: languages, and words that somebody added."""
    fairseq, listed = loaded.settings.model.positions == "fairseq", tuple(behind)
    older = loaded.settings.text.mark_place == "behind"
    usual, of_mbart = ("MBartTokenizer", OF_MBART) if older else ("MBart50Tokenizer", OF_MBART50)
    known = [code for code in behind if code in languages_of(loaded.tokenizers.source)]
    told: dict[str, Any]
    if fairseq and listed in OF_M2M100:
        codes = [f"__{code}__" for code in listed]
        told = {"tokenizer_class": "M2M100Tokenizer", "language_codes": OF_M2M100[listed]}
        numbered = {token: i for i, token in enumerate([*FAIRSEQ, *pieces])}
        files = {"vocab.json": _json(numbered)}
    elif fairseq and kind_of(model) == "bpe" and all("_" in code for code in known):  # others are found within words
        codes, told = known, {"tokenizer_class": "NllbTokenizer"}
        files = {TOKENIZER: tokenizer_json(model, pieces, behind, codes)}
    elif not fairseq and listed == of_mbart:
        codes, told, files = behind, {"tokenizer_class": usual}, {}
    else:
        raise ModelError(
            f"this model cannot go out to huggingface, where no tokenizer knows its {len(behind)} languages and added "
            f"words"
        )
    return {TOLD: _json({**told, "additional_special_tokens": codes}), SENTENCE_PIECES: model, **files}


def _numbers(loaded: Loaded) -> tuple[list[int], Special]:
    """Our rows in fairseq's order: what it calls <s>, <pad>, </s>, <unk>, and all others in theirs. A translation
    begins with </s>; with a row at the end, if training has parted it from that; in the older mBART with a language."""
    text, source = loaded.settings.text, loaded.tokenizers.source
    beginning = len(SPECIAL)
    if source.pieces([beginning])[0] not in ("<unused 0>", mark_of(EVERY_TEXT)):
        raise ModelError("this model cannot go out to huggingface, which has the tokens of fairseq in fairseq's order")
    rows = [beginning, PAD, END, UNKNOWN, *range(beginning + 1, source.size)]
    table = loaded.model.state_dict()["source.tokens.weight"]
    begin = FAIRSEQ.index("</s>")
    if text.mark_place == "behind":
        marks = languages_of(source)
        begin = rows.index(min(marks.values())) + OF_MBART.index(_begun_with(marks))
        rows.insert(begin, BEGIN)
    elif not torch.equal(table[BEGIN], table[END]):
        begin = len(rows)
        rows.append(BEGIN)
    return rows, Special(FAIRSEQ.index("<pad>"), FAIRSEQ.index("<unk>"), begin, FAIRSEQ.index("</s>"))


def _begun_with(marks: Mapping[str, int]) -> str:
    """The language that the older mBART has begun with: the one that is not asked for."""
    lacking = [code for code in OF_MBART if code not in marks]
    if len(lacking) != 1:
        raise ModelError(
            f"this model cannot go out to huggingface, whose mBART knows these languages: {', '.join(OF_MBART)}"
        )
    return lacking[0]


def _is_spare(name: str) -> bool:
    """A row without a token."""
    return name.startswith("<unused ")


def _json(content: dict[str, Any]) -> bytes:
    return strict_json.dumps(content, indent=1).encode()
