"""Tokenizers behind one small interface: subwords (SentencePiece), words, characters, labels; one for each side.

They read normalised text (normalise.py). A token carries the space before it, so that joining tokens gives back the
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from transduce.core.special import UNKNOWN
from transduce.errors import ModelError
from transduce.files.reading import VOCABULARY, read_bytes
from transduce.settings.sections import TextSettings
from transduce.settings.task import task_of
from transduce.text import case
from transduce.text.byte_level import ByteLevelTokenizer
from transduce.text.languages import Marked, begun_with
from transduce.text.lists import CharacterTokenizer, LabelTokenizer, ListTokenizer, WordTokenizer
from transduce.text.moses import MosesTokenizer
from transduce.text.protect import MARKS, Protection
from transduce.text.subwords import SubwordTokenizer, WrongVocabulary

FOREIGN = ("bytes", "moses")  # tokenizers that only converted models have; their pieces show no spaces
WITH_MARK = 8  # one in so many tokens may be a word with a mark of case


class Tokenizer(Protocol):
    """Normalised text to ids and back. No special token is added or expected."""

    size: int
    begin: tuple[int, ...]  # what every text begins with: the mark of a language, or nothing

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
        """The same for a text, but unknown ones as they stand there, and no mark before it."""

    def to_bytes(self) -> bytes:
        """All of it, for a file."""


Rewrite = Callable[[str], str]
Kind = type[SubwordTokenizer] | type[ListTokenizer] | type[ByteLevelTokenizer] | type[MosesTokenizer]
_KINDS: dict[str, Kind] = {
    "bpe": SubwordTokenizer,
    "unigram": SubwordTokenizer,
    "words": WordTokenizer,
    "characters": CharacterTokenizer,
    "labels": LabelTokenizer,
    "bytes": ByteLevelTokenizer,
    "moses": MosesTokenizer,
}


class Rewritten:
    """A tokenizer that reads text in another form, and writes it back into the usual one."""

    def __init__(self, tokenizer: Tokenizer, read: Rewrite, write: Rewrite) -> None:
        self._tokenizer = tokenizer
        self._read, self._write = read, write
        self.size, self.begin = tokenizer.size, tokenizer.begin

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self._tokenizer.encode([self._read(text) for text in texts])

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        return self._tokenizer.sample([self._read(text) for text in texts], amount, seed)

    def decode(self, ids: Sequence[int]) -> str:
        return self._write(self._tokenizer.decode(ids))

    def decode_all(self, texts: Sequence[Sequence[int]]) -> list[str]:
        return [self._write(text) for text in self._tokenizer.decode_all(texts)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._tokenizer.pieces(ids)

    def cut(self, text: str) -> list[str]:
        return self._tokenizer.cut(self._read(text))

    def to_bytes(self) -> bytes:
        return self._tokenizer.to_bytes()


class Tokenizers:
    """The tokenizer of each side, one and the same where the vocabulary is joint; and what is hidden from them."""

    def __init__(self, source: Tokenizer, target: Tokenizer, settings: TextSettings) -> None:
        labels = task_of(settings).labels  # names, which are compared to the letter
        self.source = _marked(_rewritten(source, settings), settings.source_language, settings.mark_place == "behind")
        self.target = target if labels else _marked(_rewritten(target, settings), settings.target_language)
        self.protection = Protection(settings)
        self.settings = settings

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, ...]], settings: TextSettings, labels: Iterable[str] | None = None
    ) -> Tokenizers:
        """From pairs of normalised text, which are read twice; `labels`: all, where pairs are a sample."""
        of_source, of_target = _kinds(settings)
        read, protection = _rewrites(settings)[0], Protection(settings)

        hidden = (protection.hide_pair(pair[0], pair[1]) for pair in pairs)
        rewritten = [tuple(read(side.text) for side in both) for both in hidden]

        def texts(*sides: int) -> Iterator[str]:
            return (both[side] for both in rewritten for side in sides)

        # what is rewritten would not be found again where a text is cut
        directions = [mark for mark in begun_with(pair[0] for pair in pairs) if read(mark) == mark]

        def learn(kind: Kind, *sides: int) -> Tokenizer:
            own = _settings_of_side(settings, sides)
            reserved = [*_reserved(texts(*sides), own), *(f" {mark}" for mark in directions if 0 in sides)]
            try:
                return kind.train(texts(*sides), own, reserved)
            except WrongVocabulary as error:
                apart = sides == (1,) and settings.target_vocabulary is not None
                name = "text.target_vocabulary" if apart else "text.vocabulary"
                raise WrongVocabulary(error.wanted, error.possible, name, error.way_out) from error

        if settings.joint:
            both = learn(of_source, 0, 1)
            return cls(both, both, settings)
        if task_of(settings).labels:
            return cls(learn(of_source, 0), of_target.train(labels or (pair[1] for pair in pairs), settings), settings)
        return cls(learn(of_source, 0), learn(of_target, 1), settings)

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


def _settings_of_side(settings: TextSettings, sides: tuple[int, ...]) -> TextSettings:
    """With the size of its own vocabulary."""
    size = settings.target_vocabulary if sides == (1,) else None
    return settings if size is None else replace(settings, vocabulary=size)


def _kinds(settings: TextSettings) -> tuple[Kind, Kind]:
    """The kinds of source and target tokenizer."""
    source = _KINDS[settings.tokenizer]
    return source, _KINDS["labels"] if task_of(settings).labels else source


def _rewrites(settings: TextSettings) -> tuple[Rewrite, Rewrite]:
    """What is done to text before it is cut into tokens, and to text that tokens were joined to."""
    if settings.case == "marks":
        return case.mark, case.restore
    return (str.lower, str) if settings.lowercase else (str, str)


def _rewritten(tokenizer: Tokenizer, settings: TextSettings) -> Tokenizer:
    rewrites = _rewrites(settings)
    return tokenizer if rewrites == (str, str) else Rewritten(tokenizer, *rewrites)


def _marked(tokenizer: Tokenizer, language: str | None, behind: bool = False) -> Tokenizer:
    return tokenizer if language is None else Marked(tokenizer, language, behind)


def _reserved(texts: Iterable[str], settings: TextSettings) -> list[str]:
    """Tokens that a vocabulary has whatever the text: marks, and frequent words with a mark of case behind them.

    Marks never become part of other tokens, so that a rare form of a word is the word and a mark."""
    protects = settings.protect is not None or settings.protect_pattern is not None
    marks = [*(MARKS if protects else ""), *(case.CASE_MARKS if settings.case == "marks" else "")]
    words = case.frequent_words(texts, settings.vocabulary // WITH_MARK) if settings.case == "marks" else []
    return [*marks, *(f" {word}" for word in words)]
