"""Another system's vocabulary in our numbers: special tokens come first, in our order, then all others in theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.core.special import BEGIN, SPECIAL
from transduce.errors import ModelError
from transduce.formats.pieces import kind_of

NEVER = -30.0  # on the logit of a token that is never written: nothing beside the others, and no infinity


class Special(NamedTuple):
    """Their ids of what is special here; None: there is no such token. Several systems begin with the token that also
    pads or ends."""

    pad: int | None
    unknown: int | None
    begin: int
    end: int


class Vocabulary(NamedTuple):
    """Tokens in our order, and which row of their tables each had."""

    tokens: list[str]
    rows: list[int]
    size: int  # of their tables
    added: list[int]  # special tokens here that have no row of their own there: a copy, or nothing

    @staticmethod
    def of(names: Mapping[int, str], size: int, special: Special) -> Vocabulary:
        """`names`: their tokens by id; a table may have more rows than there are names."""
        if size > 2 * len(names) + 1000:  # tables are padded a little, not more
            raise ModelError(f"its config counts {size:,} tokens, where its vocabulary has {len(names):,}")
        named = {name: i for name, i in special._asdict().items() if i is not None}
        wrong = [f"{name} {i}" for name, i in named.items() if not 0 <= i < size]
        apart = [i for name, i in named.items() if name != "begin"]
        if wrong or len(set(apart)) < len(apart):
            raise ModelError(
                f"its special tokens have no ids of their own among {size:,} tokens: {', '.join(wrong) or special}"
            )
        others = [i for i in range(size) if i not in special]
        tokens = [*SPECIAL, *(_plain_name(names.get(i), i) for i in others)]
        if len(set(tokens)) < len(tokens):
            twice, _ = Counter(tokens).most_common(1)[0]
            raise ModelError(f"its vocabulary has the token {twice[:40]!r} twice")
        rows = [size if i is None else i for i in special]
        added = [place for place, i in enumerate(special) if i is None]
        added += [BEGIN] if special.begin in apart else []
        return Vocabulary(tokens, [*rows, *others], size, added)

    def table(self, theirs: Tensor) -> Tensor:
        """The rows of an embedding, or of a projection onto the vocabulary; zeros for what is not there."""
        theirs = torch.cat([theirs, theirs.new_zeros(1, *theirs.shape[1:])]) if self.size in self.rows else theirs
        return theirs[torch.tensor(self.rows)]

    def bias(self, theirs: Tensor) -> Tensor:
        """The bias of the projection. What was added must not take its share of the probability."""
        bias = self.table(theirs.flatten())
        bias[self.added] += NEVER
        return bias


def text_settings(source: Vocabulary, target: Vocabulary, models: Sequence[bytes]) -> dict[str, Any]:
    """The settings of the section `text`, for two SentencePiece models, or one for both languages: one vocabulary, two
    with the same ids, or two."""
    shared = source.tokens == target.tokens
    joint = shared and len(models) == 1
    sizes = {"vocabulary": len(source.tokens)} | ({} if joint else {"target_vocabulary": len(target.tokens)})
    return {"tokenizer": kind_of(models[0]), "joint": joint, "same_ids": shared and not joint, **sizes}


def _plain_name(name: str | None, number: int) -> str:
    """A token that has no name, or that of a special one (some vocabularies list a <s> that nobody uses), gets one."""
    return f"<unused {number}>" if name is None or name in SPECIAL else name


def mark_in_text(name: str) -> str:
    """A mark such as >>fra<<, which a source of OPUS-MT may begin with, is a word of its own in our text."""
    return f"▁{name}" if name.startswith(">>") and name.endswith("<<") else name


def marks_in_text(tokens: Sequence[str]) -> list[str]:
    return [token for token in tokens if token.startswith("▁>>") and token.endswith("<<")]


def token_lines(text: str) -> list[str]:
    """Tokens, one a line. A carriage return may be the end of a token; if all have one, it is that of the lines."""
    lines = text.removesuffix("\n").split("\n")
    return [line[:-1] for line in lines] if all(line.endswith("\r") for line in lines) else lines


def by_id(names: Mapping[str, int] | Sequence[str]) -> dict[int, str]:
    """A vocabulary as it lies in files: names with ids, or a list."""
    if isinstance(names, Mapping):
        if not all(isinstance(i, int) and isinstance(name, str) for name, i in names.items()):
            raise ModelError("its vocabulary must be names with numbers")
        found = {i: name for name, i in names.items()}
        if len(found) < len(names):
            raise ModelError("its vocabulary gives one number to two tokens")
        return found
    if not all(isinstance(name, str) for name in names):
        raise ModelError("its vocabulary must be a list of tokens")
    return dict(enumerate(names))
