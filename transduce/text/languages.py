"""Marks of languages: in a model of many languages the first token of a text says which one it is in.

A mark is a token that no text can contain. Its name is that of the language as the model has it: `de` in M2M100,
`deu_Latn` in NLLB, `de_DE` in mBART.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from transduce.core.special import END
from transduce.errors import SettingsError, did_you_mean
from transduce.settings.sections import TextSettings

if TYPE_CHECKING:
    from transduce.text.tokenizers import Tokenizer

Languages = tuple[str | None, str | None]  # of source and target
EVERY_TEXT = "every"  # the mark of a model of one language whose every text begins with a token, as BART's do
_MARK = re.compile(r"<language (\S+)>")
_TYPED = re.compile(r"▁?(>>[^\s<>]+<<)")
_DIRECTION = re.compile(r"(>>[a-z]{2,3}(?:[_-][A-Za-z]+)?<<)\s")
SHOWN = 8  # languages in a complaint
OFTEN = 10  # lines that begin with a mark, for it to be one


def mark_of(language: str) -> str:
    return f"<language {language}>"


def language_of(token: str) -> str | None:
    """Which language's mark a token is; None: it is no mark."""
    found = _MARK.fullmatch(token) if token.startswith("<") else None
    return found[1] if found else None


def languages_of(tokenizer: Tokenizer) -> dict[str, int]:
    """The languages that a vocabulary has marks for, and these."""
    pieces = enumerate(tokenizer.pieces(range(tokenizer.size)))
    return {code: i for i, piece in pieces if (code := language_of(piece)) is not None}


def begun_with(texts: Iterable[str]) -> list[str]:
    """Marks such as >>fra<< that lines begin with: of a corpus in which they say what to translate into."""
    counts = Counter(found[1] for text in texts if text.startswith(">>") and (found := _DIRECTION.match(text)))
    return sorted(mark for mark, count in counts.items() if count >= OFTEN)


def is_typed_mark(piece: str) -> bool:
    return _TYPED.fullmatch(piece) is not None


def typed_marks(tokenizer: Tokenizer) -> list[str]:
    """Marks that are written before a text, such as >>fra<<: of OPUS-MT's models with many target languages."""
    return _typed_marks(tokenizer)  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _typed_marks(tokenizer: Any) -> list[str]:
    pieces = (_TYPED.fullmatch(piece) for piece in tokenizer.pieces(range(tokenizer.size)))
    return [match[1] for match in pieces if match]


def _way_out(language: str, tokenizer: Tokenizer) -> str:
    known = sorted(languages_of(tokenizer))
    if not known:
        typed = typed_marks(tokenizer)
        marks = ", ".join(typed[:SHOWN])
        return (
            f"; write one of its marks before each line instead: {marks}"
            if typed
            else "; it knows no marks of languages"
        )
    near = [name for name in known if name[:2] == language[:2].lower()]  # de, deu_Latn, de_DE
    hint = did_you_mean(language, known) or (f"; did you mean {' or '.join(near[:3])}?" if near else "")
    return f"{hint}; there are {', '.join(known[:SHOWN])}{', ...' if len(known) > SHOWN else ''}"


def with_languages(text: TextSettings, languages: Languages) -> TextSettings:
    """The same settings for texts in these languages; None: as they say."""
    source, target = languages
    if target is not None and text.mark_place == "behind":
        raise SettingsError("this model writes one language only, which it begins with: leave --target-language out")
    source, target = source or text.source_language, target or text.target_language
    return replace(text, source_language=source, target_language=target)


def needs_languages(text: TextSettings) -> bool:
    """Whether it is still to be said which languages texts are in. Where the source's mark stands behind it,
    translations begin with that of one language, and only the source's is asked for."""
    if text.source_language == EVERY_TEXT:
        return False
    return text.source_language is None or (text.target_language is None and text.mark_place == "before")


class Marked:
    """A tokenizer whose every text begins with the mark of a language; an empty text stays empty. `behind`: it ends
    with END and the mark instead."""

    def __init__(self, tokenizer: Tokenizer, language: str, behind: bool = False) -> None:
        known = languages_of(tokenizer)
        if language not in known:
            raise SettingsError(f"the model has no language {language!r}{_way_out(language, tokenizer)}")
        self._tokenizer = tokenizer
        self.size = tokenizer.size
        self._mark = known[language]
        self._behind = behind
        self.begin: tuple[int, ...] = () if behind else (self._mark,)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._marked(ids) for ids in self._tokenizer.encode(texts)]

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        return [self._marked(ids) for ids in self._tokenizer.sample(texts, amount, seed)]

    def _marked(self, ids: list[int]) -> list[int]:
        if not ids:
            return []
        return [*ids, END, self._mark] if self._behind else [self._mark, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([i for i in ids if i != self._mark])

    def decode_all(self, texts: Sequence[Sequence[int]]) -> list[str]:
        return self._tokenizer.decode_all([[i for i in ids if i != self._mark] for ids in texts])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._tokenizer.pieces(ids)

    def cut(self, text: str) -> list[str]:
        return self._tokenizer.cut(text)

    def to_bytes(self) -> bytes:
        return self._tokenizer.to_bytes()
