"""What a caller asks of translations, in the tokens of a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.core.rules import Forbid
from transduce.core.special import END, UNKNOWN
from transduce.core.terms import Term, Written
from transduce.decoding.marks import Marks
from transduce.decoding.sentences import Sentence
from transduce.decoding.shortlist import ShortlistIds
from transduce.decoding.wishes import Wishes
from transduce.errors import DataError
from transduce.settings.pattern import Pattern
from transduce.text.case import OF_WORD
from transduce.text.glossary import Glossary
from transduce.text.normalise import normalise
from transduce.text.protect import NOTHING, Hidden, Protection, without_marks
from transduce.text.scripts import is_unspaced
from transduce.text.tokenizers import Tokenizer

SPACE = "▁"  # how tokenizers print the space before a word
SHOWN = 10  # forms that a complaint names
LONGEST_FORBIDDEN = 200  # letters


class Wording:
    """Wishes in the tokens of a target vocabulary."""

    def __init__(
        self,
        wishes: Wishes,
        tokenizer: Tokenizer,
        source: Tokenizer | None = None,
        protection: Protection = NOTHING,
    ) -> None:
        self.wishes = wishes
        self.tokenizer = tokenizer
        short, glossary = wishes.shortlist, wishes.glossary
        self.shortlist = None if short is None or source is None else ShortlistIds(short, source, tokenizer)
        self.marks = Marks(source, tokenizer) if protection and source is not None else None
        self._keep = None if wishes.keep is None else Pattern(wishes.keep, "--keep")
        self.protection = protection.with_wishes(self._keep, None if glossary is None else glossary.spans)
        if glossary is not None:
            _check_glossary(glossary, tokenizer)  # type: ignore[arg-type]
            for entry in glossary.entries.values() if wishes.forbidden else ():
                if self._term(entry.translations) is None:
                    raise DataError(f"the glossary wants {'|'.join(entry.translations)!r}, which --forbid forbids")

    @property
    def has_terms(self) -> bool:
        """Whether there may be something that must be written."""
        return self._keep is not None or self.wishes.glossary is not None

    @cached_property
    def pieces(self) -> list[str]:
        return self.tokenizer.pieces(range(self.tokenizer.size))

    @cached_property
    def word_start(self) -> Tensor:
        """(V,) what may follow a whole word: a token that begins another, a punctuation mark, the end."""
        starts = [not OF_WORD.match(piece) for piece in self.pieces]
        starts[END] = True
        return torch.tensor(starts)

    @cached_property
    def forbid(self) -> Forbid:
        """The forbidden words, at a sentence's begin and within it; one in small letters with capitals too."""
        known, found = Forbid((), self.pieces), list[str]()
        for word in map(self._spelled, self.wishes.forbidden):
            if len(word) > LONGEST_FORBIDDEN:
                raise DataError(
                    f"{word[:20] + '...'!r} has {len(word):,} letters, and a word or phrase of at most "
                    f"{LONGEST_FORBIDDEN} can be forbidden; give its words one by one"
                )
            cases = [word, word.capitalize(), word.upper()] if word.islower() else [word]
            forms = [form for case in cases for form in (f" {case}", case if is_unspaced(case) else f" {case}")]
            spelled = [form.replace(" ", SPACE) for form in dict.fromkeys(forms)]
            written = [form for form in spelled if known.can_write(form)]
            if not written:
                raise DataError(f"the vocabulary cannot write {word!r}, so there is nothing to forbid")
            found += written
        return Forbid(found, self.pieces)

    def _spelled(self, word: str) -> str:
        """A word as its tokens spell it."""
        return "".join(self.tokenizer.cut(normalise(word))).replace(SPACE, " ").strip()

    def prefix(self, text: str, source: Hidden) -> tuple[list[int], bool]:
        """The tokens that the translation of a source is to begin with, as far as it can be written; and whether it
        can be to its end, with nothing that is forbidden."""
        ids = _tokens([self.protection.hide_known(normalise(text), source)], self.tokenizer)[0] if text.strip() else []
        if UNKNOWN not in ids:
            return ids, not self._is_forbidden(ids)
        ids = ids[: ids.index(UNKNOWN)]
        return ids[:-1] if ids and self.pieces[ids[-1]] == SPACE else ids, False

    def vocabulary(self, source: Sequence[int]) -> np.ndarray | None:
        """What the shortlist lets a source be written with; its marks in any case."""
        if self.shortlist is None:
            return None
        marks = [] if self.marks is None else [token for tokens in self.marks.ids(source) for token in tokens]
        return np.union1d(self.shortlist.of(source), np.array(marks, np.int64))

    def terms(self, sentence: Sentence) -> tuple[list[Term], bool]:
        """What must be written for a source: its glossary entries, and what is to be taken over unchanged and no mark
        hides; and whether all of it can be written."""
        typed = without_marks(sentence.typed)  # which hide what is kept already
        kept = [] if self._keep is None else [match.group() for match in self._keep.finditer(typed) if match.group()]
        found = [self._term((text,)) for text in kept]
        if self.wishes.glossary is not None:
            rest = sentence.asked if self._keep is None else self._keep.sub(" ", sentence.asked)
            entries = self.wishes.glossary.find(rest, sentence.small)
            found += [self._term(entry.translations) for entry in entries]
        terms = [term for term in found if term is not None]
        return terms, len(terms) == len(found)

    def _term(self, forms: tuple[str, ...]) -> Term | None:
        """The forms that may be written, and that the vocabulary can write; None: there is no such."""
        alternatives = []
        for form, ids in zip(forms, _tokens(forms, self.tokenizer), strict=True):
            if not _is_written(ids) or self._is_forbidden(ids):
                continue
            alone = self.tokenizer.pieces(ids[:1])[0] == SPACE and len(ids) > 1 and is_unspaced(form)
            alternatives.append(tuple(ids[1:] if alone else ids))
        return Term(tuple(alternatives), whole_words=not any(map(is_unspaced, forms))) if alternatives else None

    def _is_forbidden(self, ids: list[int]) -> bool:
        """Whether a forbidden word is among these tokens."""
        return bool(self.wishes.forbidden) and self.forbid.is_in(ids)

    def are_missing(self, sentence: Sentence, tokens: Sequence[int]) -> bool:
        """Whether a translation does not have all that was asked for with its source, and can be written."""
        if not self.has_terms:
            return False
        (terms, _), written = self.terms(sentence), Written()
        for token in tokens:
            written = written.advance(token, terms)
        return written.remaining(terms) > 0


def _tokens(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """The tokens of parts of a translation, without what stands before all of it."""
    return [ids[len(tokenizer.begin) :] for ids in tokenizer.encode(texts)]


@lru_cache(maxsize=16)  # a service gives the same one with every sentence
def _check_glossary(glossary: Glossary, tokenizer: Any) -> None:
    """Complain now, not when a word comes up in a long text."""
    forms = [form for entry in glossary.entries.values() for form in entry.translations]
    missing = [form for form, ids in zip(forms, _tokens(forms, tokenizer), strict=True) if not _is_written(ids)]
    if missing:
        named = ", ".join(map(repr, missing[:SHOWN])) + (
            f" and {len(missing) - SHOWN:,} more" if missing[SHOWN:] else ""
        )
        raise DataError(f"the vocabulary cannot write {named}; leave it out of the glossary")


def _is_written(ids: Sequence[int]) -> bool:
    return bool(ids) and UNKNOWN not in ids
