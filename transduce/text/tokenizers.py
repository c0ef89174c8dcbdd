"""Tokenizers behind one small interface: subwords (SentencePiece), words, characters, labels; one for each side.

They read normalised text (normalise.py). A token carries the space before it, so that joining tokens gives back the
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from transduce.errors import ModelError
from transduce.files.reading import VOCABULARY, read_bytes
from transduce.settings.sections import TextSettings
from transduce.settings.task import task_of
from transduce.text.lists import CharacterTokenizer, LabelTokenizer, ListTokenizer, WordTokenizer
from transduce.text.special import UNKNOWN
from transduce.text.subwords import SubwordTokenizer, VocabularyTooLarge


class Tokenizer(Protocol):
    """Normalised text to ids and back. No special token is added or expected."""

    size: int

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text."""

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        """Ids of one random segmentation of each text, the same for the same seed."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are left out."""

    def decode_all(self, texts: Sequence[Sequence[int]]) -> list[str]:
        """The text of each."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as a reader would print it."""

    def cut(self, text: str) -> list[str]:
        """The same for a text, but unknown ones as they stand there."""

    def to_bytes(self) -> bytes:
        """All of it, for a file."""


Kind = type[SubwordTokenizer] | type[ListTokenizer]
_KINDS: dict[str, Kind] = {
    "bpe": SubwordTokenizer,
    "unigram": SubwordTokenizer,
    "words": WordTokenizer,
    "characters": CharacterTokenizer,
    "labels": LabelTokenizer,
}


class Lowercased:
    """A tokenizer that reads text in lower case."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.size = tokenizer.size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self._tokenizer.encode([text.lower() for text in texts])

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        return self._tokenizer.sample([text.lower() for text in texts], amount, seed)

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids)

    def decode_all(self, texts: Sequence[Sequence[int]]) -> list[str]:
        return self._tokenizer.decode_all(texts)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._tokenizer.pieces(ids)

    def cut(self, text: str) -> list[str]:
        return self._tokenizer.cut(text.lower())

    def to_bytes(self) -> bytes:
        return self._tokenizer.to_bytes()


class Tokenizers:
    """The tokenizer of each side; one and the same where the vocabulary is joint."""

    def __init__(self, source: Tokenizer, target: Tokenizer, settings: TextSettings) -> None:
        self.source = Lowercased(source) if settings.lowercase else source
        self.target = Lowercased(target) if settings.lowercase and not task_of(settings).labels else target
        self.settings = settings

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, ...]], settings: TextSettings, labels: Iterable[str] | None = None
    ) -> Tokenizers:
        """From pairs of normalised text, which may be read more than once; `labels`: all, where pairs are a sample."""
        of_source, of_target = _kinds(settings)
        low = str.lower if settings.lowercase else str
        if settings.joint:
            both = of_source.train((low(text) for pair in pairs for text in pair[:2]), settings)
            return cls(both, both, settings)
        source = of_source.train((low(pair[0]) for pair in pairs), settings)
        if task_of(settings).labels:
            return cls(source, of_target.train(labels or (pair[1] for pair in pairs), settings), settings)
        size = settings.target_vocabulary or settings.vocabulary
        try:
            target = of_target.train((low(pair[1]) for pair in pairs), replace(settings, vocabulary=size))
        except VocabularyTooLarge as error:
            name = "text.vocabulary" if settings.target_vocabulary is None else "text.target_vocabulary"
            raise VocabularyTooLarge(error.wanted, error.most, name) from error
        return cls(source, target, settings)

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """The ids of both sides of each pair."""
        sources, targets = zip(*pairs, strict=True)
        return list(zip(self.source.encode(sources), self.target.encode(targets), strict=True))

    def unknown(self, labels: Iterable[str]) -> list[str]:
        """The labels, normalised and each once, that a model with these tokenizers can never write."""
        return [label for label in sorted(set(labels)) if self.target.encode([label]) == [[UNKNOWN]]]

    def files(self) -> dict[str, bytes]:
        """File names and contents for the model folder."""
        sides = (self.source, self.target)
        return {name: side.to_bytes() for name, side in zip(file_names(self.settings), sides, strict=False)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], settings: TextSettings) -> Tokenizers:
        """What `files` gave, put together again."""
        sides = [kind(files[name]) for name, kind in zip(file_names(settings), _kinds(settings), strict=False)]
        return cls(sides[0], sides[-1], settings)

    @classmethod
    def load(cls, folder: Path, settings: TextSettings) -> Tokenizers:
        """From a model folder; nothing else in it is read."""
        try:
            files = {name: read_bytes(folder / name, VOCABULARY) for name in file_names(settings)}
            return cls.from_files(files, settings)
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(
                f"{folder} is damaged: its tokenizer ({', '.join(file_names(settings))}) is missing or cannot be read; "
                f"copy the folder again or train anew"
            ) from error


def file_names(settings: TextSettings) -> list[str]:
    """Names of the tokenizers' files in a model folder: one where the vocabulary is joint, else one a side."""
    names = ["tokenizer"] if settings.joint else ["source", "target"]
    return [name + kind.suffix for name, kind in zip(names, _kinds(settings), strict=False)]


def _kinds(settings: TextSettings) -> tuple[Kind, Kind]:
    """The kinds of source and target tokenizer."""
    source = _KINDS[settings.tokenizer]
    return source, _KINDS["labels"] if task_of(settings).labels else source
