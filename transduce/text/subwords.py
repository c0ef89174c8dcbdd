"""Subwords: SentencePiece, BPE or unigram, which reads raw text and needs no segmentation before it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from random import Random

import sentencepiece

from transduce.core.special import BEGIN, END, PAD, UNKNOWN, UNKNOWN_SURFACE
from transduce.errors import SettingsError
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise
from transduce.text.sampling import Sampler

_LONG_WORD = re.compile(r"\S{10000}")


class WrongVocabulary(SettingsError):
    """More tokens than the text has words and parts of words for, or fewer than it has characters."""

    def __init__(self, wanted: int, possible: int, name: str = "text.vocabulary", way_out: str = "") -> None:
        large = wanted > possible
        what = (
            "larger than the training text supports" if large else "too small for the characters of the training text"
        )
        super().__init__(f"{name}={wanted} is {what}; set it to {possible} or {'less' if large else 'more'}{way_out}")
        self.wanted, self.possible, self.name, self.way_out = wanted, possible, name, way_out


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
        self._names: list[str] = self._processor.id_to_piece(list(range(self.size)))  # a ValueError: one is no UTF-8

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
        found = self._processor.encode(list(texts), num_threads=1)
        return list(map(self._with_unused, texts, found)) if self._unused else found

    def _with_unused(self, text: str, ids: list[int]) -> list[int]:
        """What this side cannot cut may still be a token of the vocabulary that both sides of a converted model share;
        the programs it comes from look it up there."""
        if UNKNOWN not in ids:
            return ids
        pieces = self._processor.encode(text, out_type=str)
        return [self._unused.get(piece, i) if i == UNKNOWN else i for i, piece in zip(ids, pieces, strict=True)]

    @cached_property
    def _unused(self) -> dict[str, int]:
        """Tokens of the other side only."""
        return {self._names[i]: i for i in range(self.size) if self._processor.is_unused(i)}

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        random, draw = Random(seed), self._sampler.draw
        return [[i for word in text.split() for i in draw("▁" + word, amount, random)] for text in texts]

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self._processor)

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
        return WrongVocabulary(settings.vocabulary, int(match[1]))
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        lower = f", or lower text.coverage={settings.coverage}"
        return WrongVocabulary(settings.vocabulary, int(match[1]), way_out=lower)
    if "sentences_.empty()" in message:
        return SettingsError("the training text has no words: it is empty, or all its lines are")
    return SettingsError(f"SentencePiece could not learn a vocabulary from the training text: {message}")
