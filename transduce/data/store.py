"""Tokens on disk, read through a memory map.

A store is a folder: `source.tokens` and `target.tokens` (all sentences end to end), `index` (where each begins, its
length and its line in the corpus), `text.jsonl` (some lines as they were, where text is to be decoded), and
`store.json` (counts, every dropped pair by reason, and the checksum of each file). Tokens and index stay on disk;
memory holds the lengths, and while training the plan of an epoch: some 30 bytes a pair (70 for packed rows).

With subword sampling a store holds several segmentations of every pair, its variants, side by side; an epoch takes one
of each. So batches know of no randomness but their order, and any layout will do. Stores are made by build.py.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transduce.core.special import UNKNOWN
from transduce.data.drawn import drawn
from transduce.errors import DataError
from transduce.files import strict_json
from transduce.files.reading import SMALL, problem_with, read_bytes, sha256

COLUMNS = 5  # of the index: source begin, source length, target begin, target length, line in the corpus
SOURCE, TARGET, INDEX, TEXT, FACTS = "source.tokens", "target.tokens", "index", "text.jsonl", "store.json"
DTYPES = ("uint16", "uint32")  # of tokens
SCANNED = 10_000_000  # tokens looked through in one go


@dataclass(frozen=True)
class Counts:
    """What became of the pairs that were read."""

    read: int
    kept: int
    dropped: dict[str, int]
    source_tokens: int
    target_tokens: int

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items() if count)
        kept = f"{self.kept:,} of {self.read:,} pairs kept ({self.target_tokens:,} target tokens)"
        return f"{kept}; dropped: {reasons or 'none'}"


class Side(NamedTuple):
    """One language of a store: all its sentences end to end, and where each lies."""

    ids: np.ndarray  # a memory map
    begins: np.ndarray
    lengths: np.ndarray

    def sentence(self, i: int) -> np.ndarray:
        return self.ids[self.begins[i] : self.begins[i] + self.lengths[i]]


class Damaged(ValueError):
    """A store that is not there, not whole, or not what its checksums say."""


class Store:
    """An opened store: `len`, the number of pairs; and their tokens by their place, `variants` places a pair."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        facts = _verified_facts(folder)
        try:
            self._open(facts)
        except (TypeError, ValueError, KeyError) as error:  # facts that were written by somebody else
            raise Damaged(f"{folder}: {error}") from error
        self._refuse_what_leads_out()
        self.release()

    def _open(self, facts: dict[str, Any]) -> None:
        self.counts = Counts(**facts["counts"])
        self.variants = int(facts["variants"])
        source, target = (int(size) for size in facts["vocabularies"])
        self.sizes = (source, target)
        self._maps: list[mmap.mmap] = []
        self._index = self._map(INDEX, "int64").reshape(-1, COLUMNS)
        self.source, self.target = self.sides = tuple(
            Side(self._map(name, facts["dtype"]), self._index[:, i], self._index[:, i + 1].astype(np.int32))
            for name, i in ((SOURCE, 0), (TARGET, 2))
        )
        self.longest = int(max(side.lengths.max(initial=0) for side in self.sides))

    def _refuse_what_leads_out(self) -> None:
        """Places beyond the tokens and ids beyond the vocabulary would only be noticed far from here."""
        for side, size in zip(self.sides, self.sizes, strict=True):
            ends = side.begins + side.lengths
            inside = side.begins.min(initial=0) >= 0 and side.lengths.min(initial=0) >= 0
            if not inside or ends.max(initial=0) > len(side.ids) or int(side.ids.max(initial=0)) >= size:
                raise Damaged(f"{self.folder}: an entry of the index, or a token, is out of range")

    def _map(self, name: str, dtype: str) -> np.ndarray:
        if (self.folder / name).stat().st_size == 0:
            return np.empty(0, dtype)  # there is no map of nothing
        with open(self.folder / name, "rb") as stream:
            self._maps.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        return np.frombuffer(self._maps[-1], dtype)

    def release(self) -> None:
        """Let go of what was read. The system would take it back when it needs room; but until then it would count as
        this process's memory, and where memory is limited by a scheduler that can end a run."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)

    def __len__(self) -> int:
        return len(self._index) // self.variants

    @cached_property
    def learned_tokens(self) -> np.ndarray:
        """(places,) target tokens that a loss is taken of: with the sentence's end, and without what the vocabulary
        cannot write (UNKNOWN)."""
        ids, found = self.target.ids, []
        for begin in range(0, len(ids), SCANNED):
            found.append(begin + np.flatnonzero(ids[begin : begin + SCANNED] == UNKNOWN))
        self.release()
        unknown = np.concatenate([np.zeros(0, np.int64), *found])
        before, behind = (np.searchsorted(unknown, self.target.begins + n) for n in (0, self.target.lengths))
        return (self.target.lengths + 1 - (behind - before)).astype(np.int32)

    def places(self, pairs: np.ndarray, epoch: int) -> np.ndarray:
        """Where the variants lie that an epoch uses of these pairs: all of one after the other, from another first."""
        return pairs * self.variants + (epoch + pairs) % self.variants

    def lines(self, places: np.ndarray) -> np.ndarray:
        """Which lines of the text, from 1, lie there; those that were left out, or set aside, count."""
        return self._index[places, 4]

    def text(self, most: int) -> list[tuple[str, str]]:
        """So many pairs as they were written, drawn from all that are kept here; none where the store has no text."""
        try:
            with open(self.folder / TEXT, encoding="utf-8", errors="surrogatepass") as stream:
                lines = stream.readlines()
            return [tuple(strict_json.loads(line)) for line in drawn(lines, most)]
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                f"{self.folder / TEXT} is damaged; remove {self.folder} and it is made again: {str(error)[:100]}"
            ) from error


def _verified_facts(folder: Path) -> dict[str, Any]:
    """store.json, once every file is what it says."""
    try:
        facts = strict_json.loads(read_bytes(folder / FACTS, SMALL))
        for name in (SOURCE, TARGET, INDEX, TEXT):
            size = facts["bytes"][name]
            if problem_with(folder / name) or (folder / name).stat().st_size != size:
                raise Damaged(f"{name} is not {size} bytes long")
            if sha256(folder / name) != facts["sha256"][name]:
                raise Damaged(f"{name} was altered")
        if facts["dtype"] not in DTYPES or not 1 <= facts["variants"] < 1_000_000:
            raise Damaged("its tokens are of no known type")
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{folder}: {error}") from error
    return facts
