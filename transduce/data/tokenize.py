"""From a chunk of pairs to tokens: filter, encode, filter again, and where it is wanted draw several segmentations."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from transduce.data.corpus import Pair
from transduce.data.filters import REASONS, Ids, first_reason, text_filters, token_filters
from transduce.settings.sections import DataSettings
from transduce.settings.task import task_of
from transduce.text.normalise import normalise
from transduce.text.tokenizers import Tokenizers

ALL_CAPS, SMALL_LETTERS = 0.02, 0.05  # shares of pairs that are changed so, where case has marks


class Sampling(NamedTuple):
    """Several segmentations of each pair."""

    amount: float  # BPE dropout rate, or unigram smoothing
    variants: int
    seed: int


class Job(NamedTuple):
    """What is done to every pair."""

    tokenizers: Tokenizers
    settings: DataSettings
    sampling: Sampling | None = None
    teaches: bool = False  # text to learn from: with what corpora hardly have, and a model must know all the same

    @property
    def variants(self) -> int:
        return self.sampling.variants if self.sampling else 1


class _Kept(NamedTuple):
    """A pair that no filter keeps out."""

    text: Pair
    digest: bytes  # of the pair as it was, before anything was hidden
    ids: Ids


class Chunk(NamedTuple):
    """Some pairs of a part of a corpus."""

    part: int
    number: int  # of the chunk in its part, from 0: what sampling draws depends on it
    pairs: list[Pair]


class Tokenized(NamedTuple):
    """What became of a chunk: tokens end to end, an index into them, a hash a pair, and what was left out."""

    part: int
    source: np.ndarray
    target: np.ndarray
    places: np.ndarray  # (pairs x variants, 5) for the index of store.py, counted from the beginning of the chunk
    hashes: np.ndarray
    dropped: dict[str, int]
    read: int


def tokenize(chunk: Chunk, job: Job) -> Tokenized:
    """Every pair of a chunk that no filter keeps out, as tokens."""
    dropped = dict.fromkeys(REASONS, 0)
    of_text, of_tokens = text_filters(job.settings), token_filters(job.settings)
    pairs = []
    for pair in (Pair(normalise(source), normalise(target), line) for source, target, line in chunk.pairs):
        if reason := first_reason(of_text, pair):
            dropped[reason] += 1
        else:
            pairs.append(pair)
    digests = [hashlib.blake2b(f"{p.source}\t{p.target}".encode(), digest_size=8).digest() for p in pairs]
    texts = [_as_read(pair, digest, job) for pair, digest in zip(pairs, digests, strict=True)]
    sources = job.tokenizers.source.encode([text.source for text in texts])
    targets = job.tokenizers.target.encode([text.target for text in texts])
    kept: list[_Kept] = []
    for text, digest, ids in zip(texts, digests, map(Ids, sources, targets), strict=True):
        if reason := first_reason(of_tokens, ids):
            dropped[reason] += 1
        else:
            kept.append(_Kept(text, digest, ids))
    everything = _sampled(kept, chunk.number, job) if job.sampling else [pair.ids for pair in kept]
    lines = np.array([pair.text.line for pair in kept], np.int64).repeat(job.variants)
    return Tokenized(
        part=chunk.part,
        source=np.fromiter(itertools.chain.from_iterable(ids.source for ids in everything), np.uint32),
        target=np.fromiter(itertools.chain.from_iterable(ids.target for ids in everything), np.uint32),
        places=np.column_stack([
            *_begin_length([ids.source for ids in everything]),
            *_begin_length([ids.target for ids in everything]),
            lines,
        ]),
        hashes=np.frombuffer(b"".join(pair.digest for pair in kept), np.uint64),
        dropped=dropped,
        read=len(chunk.pairs),
    )  # fmt: skip


def _as_read(pair: Pair, digest: bytes, job: Job) -> Pair:
    """A normalised pair as tokenizers read it: what passes through is hidden; and of text that teaches, where case has
    marks, a share is put into ALL CAPS, and of another the source into small letters, as many people type. Chance comes
    from the pair itself, so it is the same in every process."""
    protection, has_marks = job.tokenizers.protection, job.tokenizers.settings.case == "marks"
    if not (protection or (job.teaches and has_marks)):
        return pair
    draw = Random(digest) if job.teaches else None
    source, target = (hidden.text for hidden in protection.hide_pair(pair.source, pair.target, draw))
    chance = draw.random() if draw is not None and has_marks else 1.0
    if chance < ALL_CAPS:
        source = source.upper()
        target = target if task_of(job.tokenizers.settings).labels else target.upper()
    elif chance < ALL_CAPS + SMALL_LETTERS:
        source = source.lower()
    return Pair(source, target, pair.line)


def _sampled(kept: list[_Kept], number: int, job: Job) -> list[Ids]:
    """The variants of each pair, one after the other; a pair stays as it was encoded where one side grew too long."""
    assert job.sampling is not None
    amount, texts = job.sampling.amount, [pair.text for pair in kept]
    drawn = []
    for variant in range(job.variants):
        seed = hash((job.sampling.seed, number, variant))  # of numbers: the same in every process
        sources = job.tokenizers.source.sample([pair.source for pair in texts], amount, seed)
        targets = job.tokenizers.target.sample([pair.target for pair in texts], amount, seed)
        drawn.append(list(map(Ids, sources, targets)))
    longest = job.settings.max_tokens - 1
    return [
        variant if max(map(len, variant)) <= longest else plain
        for (_, _, plain), *variants in zip(kept, *drawn, strict=True)
        for variant in variants
    ]


def _begin_length(sentences: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    return np.cumsum(lengths) - lengths, lengths
