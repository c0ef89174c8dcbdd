"""Filters: each takes a pair and gives the reason to leave it out, or None. The first reason counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from transduce.data.corpus import Pair
from transduce.settings.sections import DataSettings

REASONS = ("empty", "too long", "length ratio", "identical", "duplicate")  # as counts list them
Item = TypeVar("Item")


class Ids(NamedTuple):
    """The tokens of a pair."""

    source: list[int]
    target: list[int]


TextFilter = Callable[[Pair], str | None]
TokenFilter = Callable[[Ids], str | None]


def text_filters(settings: DataSettings) -> list[TextFilter]:
    """What is decided by normalised text, before it is tokenized."""
    wanted: list[tuple[bool, TextFilter]] = [(settings.drop_empty, empty), (settings.drop_identical, identical)]
    return [keep_out for is_wanted, keep_out in wanted if is_wanted]


def token_filters(settings: DataSettings) -> list[TokenFilter]:
    """What is decided by the number of tokens."""
    filters: list[TokenFilter] = [too_long(settings.max_tokens)]
    return [*filters, length_ratio(settings.max_ratio)] if settings.max_ratio is not None else filters


def first_reason(filters: Sequence[Callable[[Item], str | None]], item: Item) -> str | None:
    """Why an item is left out; None: it stays."""
    return next((reason for keep_out in filters if (reason := keep_out(item))), None)


def empty(pair: Pair) -> str | None:
    return None if pair.source and pair.target else "empty"


def identical(pair: Pair) -> str | None:
    return "identical" if pair.source == pair.target else None


def too_long(most: int) -> TokenFilter:
    """A side of more than `most` tokens, the end of the sentence counted."""
    return lambda ids: "too long" if max(map(len, ids)) + 1 > most else None


def length_ratio(most: float) -> TokenFilter:
    """One side more than `most` times as long as the other."""

    def keep_out(ids: Ids) -> str | None:
        shorter, longer = sorted(map(len, ids))
        return "length ratio" if longer > most * max(shorter, 1) else None

    return keep_out
