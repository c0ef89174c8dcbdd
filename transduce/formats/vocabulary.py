"""Another system's vocabulary in our numbers: special tokens come first, in our order, then all others in theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.text.special import BEGIN, SPECIAL

NEVER = -30.0  # on the logit of a token that is never written: nothing beside the others, and no infinity


class Special(NamedTuple):
    """Their ids of what is special here. Several systems begin with the token that also pads or ends."""

    pad: int
    unknown: int
    begin: int
    end: int


class Vocabulary(NamedTuple):
    """Tokens in our order, and which row of their tables each had."""

    tokens: list[str]
    rows: list[int]
    begin_is_copied: bool  # their begin is also another special token, so there is one row more here

    @staticmethod
    def of(names: Mapping[int, str], size: int, special: Special) -> Vocabulary:
        """`names`: their tokens by id; a table may have more rows than there are names."""
        if size > 2 * len(names) + 1000:  # tables are padded a little, not more
            raise ModelError(f"its config counts {size:,} tokens, where its vocabulary has {len(names):,}")
        wrong = [f"{name} {i}" for name, i in special._asdict().items() if not 0 <= i < size]
        if wrong or len({special.pad, special.unknown, special.end}) < 3:
            raise ModelError(
                f"its special tokens have no ids of their own among {size:,} tokens: {', '.join(wrong) or special}"
            )
        others = [i for i in range(size) if i not in special]
        tokens = [*SPECIAL, *(_plain_name(names.get(i), i) for i in others)]
        if len(set(tokens)) < len(tokens):
            twice, _ = Counter(tokens).most_common(1)[0]
            raise ModelError(f"its vocabulary has the token {twice[:40]!r} twice")
        begin_is_copied = special.begin in (special.pad, special.unknown, special.end)
        return Vocabulary(tokens, [*special, *others], begin_is_copied)

    def table(self, theirs: Tensor) -> Tensor:
        """The rows of an embedding, or of a projection onto the vocabulary."""
        return theirs[torch.tensor(self.rows)]

    def bias(self, theirs: Tensor) -> Tensor:
        """Of the projection. A begin that is a copy must not take its share of the probability."""
        bias = self.table(theirs.flatten())
        if self.begin_is_copied:
            bias[BEGIN] += NEVER
        return bias


def _plain_name(name: str | None, number: int) -> str:
    """A token that has no name, or that of a special one (some vocabularies list a <s> that nobody uses), gets one."""
    return f"<unused {number}>" if name is None or name in SPECIAL else name


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
