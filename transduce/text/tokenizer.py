"""Tokenizers behind one small interface: subwords (SentencePiece), words, characters.

Normalisation is the same for all and changes as little as possible: Unicode NFC, invisible control characters
removed, any run of white space one space. Full-width Chinese punctuation, typographic quotes and case stay as
typed. A token carries the space before it, so that joining tokens gives back the text.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Protocol

import sentencepiece

from transduce.config import TextSettings
from transduce.errors import ModelError, SettingsError
from transduce.text.sampling import draw_pieces, drop_merges

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3  # the same ids in every vocabulary
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN_SURFACE = "⁇"

_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\ufeff\ud800-\udfff]")  # lone surrogates too
_LONG_WORD = re.compile(r"\S{10000}")
_WORD = re.compile(r" ?\w+| ?[^\w\s]")


def normalise(text: str) -> str:
    """The text as every tokenizer sees it."""
    text = unicodedata.normalize("NFC", text)
    if not text.isprintable():  # hardly ever: looking for what to remove takes longer than all the rest
        text = _INVISIBLE.sub("", text)
    return " ".join(text.split())


class Tokenizer(Protocol):
    """Normalised text to ids and back. No special token is added or expected."""

    size: int

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text."""

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        """Ids of one random segmentation of each text, the same for the same seed."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are left out."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as a reader would print it."""

    def to_bytes(self) -> bytes:
        """All of it, for a file."""


class SubwordTokenizer:
    """SentencePiece, BPE or unigram."""

    suffix = ".model"

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size: int = self._processor.get_piece_size()

    @classmethod
    def train(cls, texts: Iterable[str], settings: TextSettings) -> SubwordTokenizer:
        """A word too long for SentencePiece, which would end the process, is cut for learning the vocabulary."""
        writer = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(_LONG_WORD.sub(r"\g<0> ", text) for text in texts),
                model_writer=writer,
                model_type=settings.tokenizer,
                vocab_size=settings.vocabulary,
                character_coverage=settings.coverage,
                byte_fallback=settings.byte_fallback,
                normalization_rule_name="identity",  # `normalise` has done it, and reversibly
                pad_id=PAD,
                unk_id=UNKNOWN,
                bos_id=BEGIN,
                eos_id=END,
                unk_surface=UNKNOWN_SURFACE,
                max_sentence_length=100_000,  # bytes; the usual 4,192 would leave longer lines out unsaid
                minloglevel=2,
            )
        except (RuntimeError, ValueError) as error:
            raise _explain(str(error), settings) from error
        return cls(writer.getvalue())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(list(texts), num_threads=1)

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        random = Random(seed)
        return [[i for word in text.split() for i in self._draw("▁" + word, amount, random)] for text in texts]

    def _draw(self, word: str, amount: float, random: Random) -> list[int]:
        if not self._characters.issuperset(word):  # what the vocabulary cannot spell is cut as always
            return self._processor.encode(word[1:])
        if self._is_bpe:
            pieces = drop_merges(word, self._ids, amount, random)
        else:
            pieces = draw_pieces(word, self._scores, self._longest, amount, random)
        return [self._ids[piece] for piece in pieces]

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Of the pieces that spell text."""
        spells = (i for i in range(len(SPECIAL), self.size) if not self._processor.is_byte(i))
        return {self._processor.id_to_piece(i): i for i in spells}

    @cached_property
    def _scores(self) -> dict[str, float]:
        return {piece: self._processor.get_score(i) for piece, i in self._ids.items()}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids))

    @cached_property
    def _characters(self) -> set[str]:
        return {piece for piece in self._ids if len(piece) == 1}

    @cached_property
    def _is_bpe(self) -> bool:
        """Its scores count down by one from piece to piece; those of a unigram model are log probabilities."""
        first = len(SPECIAL) + sum(map(self._processor.is_byte, range(self.size)))
        return self._processor.get_score(first) == 0 and self._processor.get_score(first + 1) == -1

    def decode(self, ids: Sequence[int]) -> str:
        return normalise(self._processor.decode([i for i in ids if i not in (PAD, BEGIN, END)]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._processor.id_to_piece(i) for i in ids]

    def to_bytes(self) -> bytes:
        return self._model


class ListTokenizer:
    """A list of pieces, the place in it being the id; base of words and characters."""

    suffix = ".txt"

    def __init__(self, model: bytes) -> None:
        self._pieces = model.decode("utf-8").split("\n")
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self.size = len(self._pieces)

    @classmethod
    def train(cls, texts: Iterable[str], settings: TextSettings) -> ListTokenizer:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(cls.split(text))
        most_common = sorted(counts, key=lambda piece: (-counts[piece], piece))
        return cls("\n".join([*SPECIAL, *most_common[: max(0, settings.vocabulary - len(SPECIAL))]]).encode())

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
    def train(cls, texts: Iterable[str], settings: TextSettings) -> LabelTokenizer:
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

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._tokenizer.pieces(ids)

    def to_bytes(self) -> bytes:
        return self._tokenizer.to_bytes()


class LowercasedPairs:
    """Pairs in lower case, as often as they are asked for."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = pairs

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((source.lower(), target.lower()) for source, target in self._pairs)


class Tokenizers:
    """The tokenizer of each side; one and the same where the vocabulary is joint."""

    def __init__(self, source: Tokenizer, target: Tokenizer, settings: TextSettings) -> None:
        labels = settings.target_tokenizer == "labels"  # a name, not text: it stays as it is
        self.source = Lowercased(source) if settings.lowercase else source
        self.target = Lowercased(target) if settings.lowercase and not labels else target
        self.settings = settings

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, str]], settings: TextSettings, labels: Iterable[str] | None = None
    ) -> Tokenizers:
        """From pairs of normalised text, which may be read more than once; `labels`: all, where pairs are a sample."""
        of_source, of_target = _kinds(settings)
        low = LowercasedPairs(pairs) if settings.lowercase else pairs
        if settings.joint:
            both = of_source.train((text for pair in low for text in pair), settings)
            return cls(both, both, settings)
        source = of_source.train((source for source, _ in low), settings)
        if settings.target_tokenizer == "labels":
            low = pairs
        return cls(source, of_target.train(labels or (target for _, target in low), settings), settings)

    def files(self) -> dict[str, bytes]:
        """File names and contents for the model folder."""
        of_source, of_target = _kinds(self.settings)
        if self.settings.joint:
            return {f"tokenizer{of_source.suffix}": self.source.to_bytes()}
        return {
            f"source{of_source.suffix}": self.source.to_bytes(),
            f"target{of_target.suffix}": self.target.to_bytes(),
        }

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], settings: TextSettings) -> Tokenizers:
        """What `files` gave, put together again."""
        names = ["tokenizer"] if settings.joint else ["source", "target"]
        sides = [kind(files[name + kind.suffix]) for name, kind in zip(names, _kinds(settings), strict=False)]
        return cls(sides[0], sides[-1], settings)

    @classmethod
    def load(cls, folder: Path, settings: TextSettings) -> Tokenizers:
        try:
            files = {
                path.name: path.read_bytes() for suffix in (".model", ".txt") for path in folder.glob(f"*{suffix}")
            }
            return cls.from_files(files, settings)
        except (OSError, KeyError, RuntimeError, UnicodeDecodeError) as error:
            raise ModelError(f"the tokenizer in {folder} is missing or damaged") from error


def _kinds(settings: TextSettings) -> tuple[Kind, Kind]:
    """Of source and target."""
    source = _KINDS[settings.tokenizer]
    return source, source if settings.target_tokenizer == "same" else _KINDS[settings.target_tokenizer]


def _explain(message: str, settings: TextSettings) -> SettingsError:
    """SentencePiece's complaint in the words of our settings."""
    if found := re.search(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)", message):
        return SettingsError(
            f"text.vocabulary={settings.vocabulary} is larger than the training text supports; "
            f"set it to {found[1]} or less"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return SettingsError(
            f"text.vocabulary={settings.vocabulary} is too small for the characters of the training text; "
            f"set it to {found[1]} or more, or lower text.coverage={settings.coverage}"
        )
    if "sentences_.empty()" in message:
        return SettingsError("the training text has no words: it is empty, or all its lines are")
    return SettingsError(f"SentencePiece could not learn a vocabulary from the training text: {message}")
