"""Tokenizers that are a list: words, characters, and labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from transduce.core.special import BEGIN, END, PAD, SPECIAL, UNKNOWN, UNKNOWN_SURFACE
from transduce.errors import SettingsError
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise
from transduce.text.scripts import WORD

_WORD = re.compile(rf" ?[{WORD}]+| ?[^\s{WORD}]")


class ListTokenizer:
    """A list of pieces, the place in it being the id; base of words and characters."""

    suffix = ".txt"
    begin: tuple[int, ...] = ()

    def __init__(self, model: bytes) -> None:
        self._pieces = model.decode("utf-8").split("\n")
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self.size = len(self._pieces)
        if tuple(self._pieces[: len(SPECIAL)]) != SPECIAL:
            raise ValueError("it does not begin with the special tokens")

    @classmethod
    def train(cls, texts: Iterable[str], settings: TextSettings, reserved: Sequence[str] = ()) -> ListTokenizer:
        """`reserved`: what there is a token for in any case, with and without a space before it."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(cls.split(text))
        always = [piece for text in reserved for piece in cls.split(f".{text} {text}")[1:]]
        first = [*SPECIAL, *dict.fromkeys(always)]
        most_common = sorted(counts.keys() - set(always), key=lambda piece: (-counts[piece], piece))
        return cls("\n".join([*first, *most_common[: max(0, settings.vocabulary - len(first))]]).encode())

    @staticmethod
    def split(text: str) -> list[str]:
        raise AssertionError("words and characters each say how they split")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(piece, UNKNOWN) for piece in self.split(text)] for text in texts]

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        return self.encode(texts)  # there is only one way to cut

    def decode(self, ids: Sequence[int]) -> str:
        surface = (
            " " + UNKNOWN_SURFACE if i == UNKNOWN else self._pieces[i] for i in ids if i not in (PAD, BEGIN, END)
        )
        return normalise("".join(surface))

    def decode_all(self, texts: Sequence[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in texts]

    def cut(self, text: str) -> list[str]:
        return [piece.replace(" ", "▁") for piece in self.split(text)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[i].replace(" ", "▁") for i in ids]

    def to_bytes(self) -> bytes:
        return "\n".join(self._pieces).encode()


class WordTokenizer(ListTokenizer):
    """Words and punctuation marks."""

    @staticmethod
    def split(text: str) -> list[str]:
        return _WORD.findall(" " + text)


class CharacterTokenizer(ListTokenizer):
    """Single characters, the space among them."""

    @staticmethod
    def split(text: str) -> list[str]:
        return list(text)


class LabelTokenizer(ListTokenizer):
    """A whole line is one token: the label of a text."""

    @classmethod
    def train(cls, texts: Iterable[str], settings: TextSettings, reserved: Sequence[str] = ()) -> LabelTokenizer:
        labels = sorted({text for text in texts if text})
        if len(labels) + len(SPECIAL) > settings.vocabulary:
            raise SettingsError(
                f"the target has {len(labels):,} different labels, more than text.vocabulary={settings.vocabulary} "
                f"holds beside {len(SPECIAL)} special tokens; raise it, or is this no file of labels, one a line?"
            )
        if len(labels) < 2:
            raise SettingsError(
                f"the target has one label only, {labels[0] if labels else 'an empty one'}: two are needed"
            )
        return cls("\n".join([*SPECIAL, *labels]).encode())

    @staticmethod
    def split(text: str) -> list[str]:
        return [text] if text else []

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return ["▁" + self._pieces[i] for i in ids]
