"""A SentencePiece model with other numbers for its pieces.

Elsewhere a vocabulary is a list beside the SentencePiece model, often one list for two of them; here a token's id is
its place in the model's own list. So the list is written into the model: pieces in the order of the vocabulary, special
ones first, and those that only the other language has as `unused`, which can be named but are never cut. What is
left is one ordinary SentencePiece file. Its format (protocol buffers) is simple enough to be read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transduce.core.special import BEGIN, END, PAD, SPECIAL, UNKNOWN
from transduce.errors import ModelError

NORMAL, UNKNOWN_KIND, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # kinds of pieces
PIECES, TRAINER, NORMALIZER = 1, 2, 3  # fields of a model
CHARACTERS = 2  # field of the normalizer: its table
KINDS = {1: "unigram", 2: "bpe"}  # trainer's model_type, as text.tokenizer calls it
MODEL_TYPE, BYTE_FALLBACK = 3, 35
IDS = {40: UNKNOWN, 41: BEGIN, 42: END, 43: PAD}  # fields of the trainer, and what they are here
NAMES = {45: UNKNOWN, 46: BEGIN, 47: END, 48: PAD}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how a field is written


class Piece(NamedTuple):
    text: str
    score: float
    kind: int


class Field(NamedTuple):
    """A field of a message: its number, how it is written, what it holds, and all of it as it stands in the file."""

    number: int
    wire: int
    value: bytes | int
    raw: bytes


def read_pieces(model: bytes) -> list[Piece]:
    """All pieces of a SentencePiece model, in their order."""
    messages = (field.value for field in _fields(model) if field.number == PIECES)
    return [_piece(message) for message in messages if isinstance(message, bytes)]


def kind_of(model: bytes) -> str:
    """bpe or unigram."""
    found = [field.value for field in _trainer(model) if field.number == MODEL_TYPE]
    kind = KINDS.get(int(found[-1]) if found else 1)
    if kind is None:
        raise ModelError("its SentencePiece model cuts words or characters; only bpe and unigram can be converted")
    return kind


def renumbered(
    model: bytes, vocabulary: Sequence[str], symbols: Sequence[str] = (), controls: Sequence[str] = ()
) -> bytes:
    """The same cuts, with the ids of `vocabulary`, which begins with the special tokens. `symbols`: tokens of it that
    are found in text as they stand; `controls`: tokens that never are, such as marks of languages."""
    known = {piece.text: piece for piece in read_pieces(model) if piece.kind in (NORMAL, USER_DEFINED, BYTE)}
    given = {**dict.fromkeys(symbols, USER_DEFINED), **dict.fromkeys(controls, CONTROL)}
    special = [Piece(text, 0.0, UNKNOWN_KIND if i == UNKNOWN else CONTROL) for i, text in enumerate(SPECIAL)]
    others = [
        Piece(text, 0.0, given[text]) if text in given else known.get(text, Piece(text, 0.0, UNUSED))
        for text in vocabulary[len(SPECIAL) :]
    ]
    fields = list(_fields(model))
    trainer = b"".join(field.raw for field in _trainer(model) if field.number not in {*IDS, *NAMES, BYTE_FALLBACK})
    trainer += b"".join(_number(field, value) for field, value in IDS.items())
    trainer += b"".join(_bytes(field, SPECIAL[value].encode()) for field, value in NAMES.items())
    trainer += _number(BYTE_FALLBACK, int(sum(piece.kind == BYTE for piece in others) == 256))
    rest = b"".join(field.raw for field in fields if field.number not in (PIECES, TRAINER))
    return b"".join(_written(piece) for piece in [*special, *others]) + _bytes(TRAINER, trainer) + rest


def characters_of(model: bytes) -> bytes:
    """The table by which a model changes characters before it cuts; empty: it changes none."""
    found = [field.value for field in _fields(model) if field.number == NORMALIZER and isinstance(field.value, bytes)]
    tables = [field.value for spec in found for field in _fields(spec) if field.number == CHARACTERS]
    return tables[-1] if tables and isinstance(tables[-1], bytes) else b""


def with_pieces(model: bytes, pieces: Sequence[Piece]) -> bytes:
    """A model that cuts as this one does, of these pieces behind the three that SentencePiece itself puts first."""
    special = [Piece("<unk>", 0.0, UNKNOWN_KIND), *(Piece(text, 0.0, CONTROL) for text in ("<s>", "</s>"))]
    trainer = b"".join(field.raw for field in _trainer(model) if field.number not in {*IDS, *NAMES})
    rest = b"".join(field.raw for field in _fields(model) if field.number not in (PIECES, TRAINER))
    return b"".join(map(_written, [*special, *pieces])) + _bytes(TRAINER, trainer) + rest


def plain_model(kind: str, characters: bytes) -> bytes:
    """A model of one of the `KINDS`, without pieces. `characters`: the table by which it changes them."""
    trainer = _number(MODEL_TYPE, {name: number for number, name in KINDS.items()}[kind])
    return _bytes(TRAINER, trainer) + _bytes(NORMALIZER, _bytes(CHARACTERS, characters) if characters else b"")


def _trainer(model: bytes) -> list[Field]:
    specs = [field.value for field in _fields(model) if field.number == TRAINER and isinstance(field.value, bytes)]
    return [field for spec in specs for field in _fields(spec)]


def _piece(message: bytes) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for field in _fields(message):
        if field.number == 1 and isinstance(field.value, bytes):
            text = field.value.decode("utf-8", "replace")
        elif field.number == 2 and isinstance(field.value, bytes) and field.wire == FIXED32:
            score = struct.unpack("<f", field.value)[0]
        elif field.number == 3 and isinstance(field.value, int):
            kind = field.value
    return Piece(text, score, kind)


def _written(piece: Piece) -> bytes:
    score = bytes([2 << 3 | FIXED32]) + struct.pack("<f", piece.score)
    return _bytes(PIECES, _bytes(1, piece.text.encode()) + score + _number(3, piece.kind))


def _fields(message: bytes) -> Iterator[Field]:
    place = 0
    while place < len(message):
        begin = place
        tag, place = _varint(message, place)
        value: bytes | int
        if tag & 7 == VARINT:
            value, place = _varint(message, place)
        else:
            if tag & 7 == BYTES:
                size, place = _varint(message, place)
            elif tag & 7 in (FIXED64, FIXED32):
                size = 8 if tag & 7 == FIXED64 else 4
            else:
                raise ModelError("its SentencePiece model is damaged: a field is written in no known way")
            value, place = message[place : place + size], place + size
        if place > len(message):
            raise ModelError("its SentencePiece model is damaged: it ends within a field")
        yield Field(tag >> 3, tag & 7, value, message[begin:place])


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number in groups of seven bits, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        value, place = value | (byte & 127) << shift, place + 1
        if byte < 128:
            return value, place
    raise ModelError("its SentencePiece model is damaged: it ends within a number")


def _encoded(value: int) -> bytes:
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def _number(field: int, value: int) -> bytes:
    return _encoded(field << 3 | VARINT) + _encoded(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _encoded(field << 3 | BYTES) + _encoded(len(value)) + value
