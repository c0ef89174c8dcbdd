"""Subwords: SentencePiece, BPE or unigram, which reads raw text and needs no segmentation before it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from random import Random

import sentencepiece

from transduce.errors import SettingsError
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise
from transduce.text.sampling import draw_pieces, drop_merges
from transduce.text.special import BEGIN, END, PAD, SPECIAL, UNKNOWN, UNKNOWN_SURFACE

_LONG_WORD = re.compile(r"\S{10000}")


class VocabularyTooLarge(SettingsError):
    """More tokens than the text has words and parts of words for."""

    def __init__(self, wanted: int, most: int, name: str = "text.vocabulary") -> None:
        super().__init__(f"{name}={wanted} is larger than the training text supports; set it to {most} or less")
        self.wanted, self.most, self.name = wanted, most, name


class SubwordTokenizer:
    """SentencePiece, BPE or unigram."""

    suffix = ".model"
    begin: tuple[int, ...] = ()

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size: int = self._processor.get_piece_size()
        special = tuple(getattr(self._processor, name)() for name in ("pad_id", "unk_id", "bos_id", "eos_id"))
        if special != (PAD, UNKNOWN, BEGIN, END):
            raise ValueError(f"special tokens have the ids {special}")

    @classmethod
    def train(cls, texts: Iterable[str], settings: TextSettings, reserved: Sequence[str] = ()) -> SubwordTokenizer:
        """A word too long for SentencePiece, which would end the process, is cut for learning the vocabulary.

        `reserved`: tokens that there are in any case, and that are part of no other."""
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
                user_defined_symbols=[token.replace(" ", "▁") for token in reserved],
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
    def _names(self) -> list[str]:
        return [self._processor.id_to_piece(i) for i in range(self.size)]

    @cached_property
    def _ids(self) -> dict[str, int]:
        """The ids of pieces that spell text."""
        p = self._processor
        return {p.id_to_piece(i): i for i in range(len(SPECIAL), self.size) if not (p.is_byte(i) or p.is_unused(i))}

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
        return self._processor.get_score(self.size - 2) - self._processor.get_score(self.size - 1) == 1

    def decode(self, ids: Sequence[int]) -> str:
        return normalise(self._processor.decode([i for i in ids if i not in (PAD, BEGIN, END)]))

    def decode_all(self, texts: Sequence[Sequence[int]]) -> list[str]:
        plain = [[i for i in ids if i not in (PAD, BEGIN, END)] for ids in texts]
        return [normalise(text) for text in self._processor.decode(plain)] if plain else []

    def cut(self, text: str) -> list[str]:
        return self._processor.encode(text, out_type=str)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._names[i] for i in ids]

    def to_bytes(self) -> bytes:
        return self._model


def _explain(message: str, settings: TextSettings) -> SettingsError:
    """SentencePiece's complaint in the words of our settings."""
    if match := re.search(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)", message):
        return VocabularyTooLarge(settings.vocabulary, int(match[1]))
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return SettingsError(
            f"text.vocabulary={settings.vocabulary} is too small for the characters of the training text; "
            f"set it to {match[1]} or more, or lower text.coverage={settings.coverage}"
        )
    if "sentences_.empty()" in message:
        return SettingsError("the training text has no words: it is empty, or all its lines are")
    return SettingsError(f"SentencePiece could not learn a vocabulary from the training text: {message}")
