"""Tokens on disk: a corpus is tokenized once, in parallel, and read through a memory map from then on.

A store is a folder: `source.tokens` and `target.tokens` (all sentences end to end), `index` (where each begins, its
length and its place in the corpus), `store.json` (sizes, counts, and every dropped pair by reason). Its name is a hash
of text, tokenizer and filters, so a store is reused exactly as long as it would be the same. Tokens and index stay on
disk; memory holds the lengths, and while training the plan of an epoch: some 30 bytes a pair (70 for packed rows).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transduce.config import DataSettings, TextSettings
from transduce.data.corpus import Corpus, Pair, normalised
from transduce.errors import DataError
from transduce.report import SILENT, Report
from transduce.text.tokenizer import Tokenizers

CHUNK = 10_000  # pairs handed to a worker at a time
FORMAT = 2  # of the files; part of the hash

COLUMNS = 5  # of the index: source begin, source length, target begin, target length, place in the corpus
REASONS = ("empty", "too long", "length ratio", "identical", "duplicate")


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


class Store:
    """An opened store: `len`, and the tokens of a pair by its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        facts = json.loads((folder / "store.json").read_text())
        for name, size in facts["sizes"].items():
            if (folder / name).stat().st_size != size:
                raise ValueError(f"{name} is not {size} bytes long")
        self.counts = Counts(**facts["counts"])
        self._index = _map(folder / "index", "int64").reshape(-1, COLUMNS)
        self.source, self.target = self.sides = tuple(
            Side(
                _map(folder / f"{name}.tokens", facts["dtype"]),
                self._index[:, i],
                self._index[:, i + 1].astype(np.int32),
            )
            for name, i in (("source", 0), ("target", 2))
        )
        self.longest = int(max(side.lengths.max(initial=0) for side in self.sides))

    def __len__(self) -> int:
        return len(self._index)

    def place(self, i: int) -> int:
        """Which pair of the corpus, from 1, pair `i` is; those that were left out count."""
        return int(self._index[i, 4])


def _map(path: Path, dtype: str) -> np.ndarray:
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)  # no map of nothing


class _Chunk(NamedTuple):
    """A worker's answer: tokens end to end, an index into them, a hash a pair, and what it left out."""

    source: np.ndarray
    target: np.ndarray
    places: np.ndarray  # (pairs, 5), counted from the beginning of the chunk
    hashes: np.ndarray
    dropped: dict[str, int]
    read: int


def build(
    corpus: Corpus, tokenizers: Tokenizers, settings: DataSettings, cache: Path, report: Report = SILENT
) -> Store:
    """The store of this corpus in `cache`, made now or found from before."""
    folder = cache / _name(corpus, tokenizers, settings)
    try:
        return Store(folder)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or not whole
    beside = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        _write(beside, corpus, tokenizers, settings, report)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(beside, folder)
        return Store(folder)
    except OSError as error:
        raise DataError(f"cannot write the token store {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write(folder: Path, corpus: Corpus, tokenizers: Tokenizers, settings: DataSettings, report: Report) -> None:
    wide = max(tokenizers.source.size, tokenizers.target.size) > np.iinfo(np.uint16).max
    dtype = np.dtype(np.uint32 if wide else np.uint16)
    dropped = dict.fromkeys(REASONS, 0)
    hashes = [np.zeros(0, np.uint64)]
    source_tokens = target_tokens = read = 0
    with (
        open(folder / "source.tokens", "wb") as source,
        open(folder / "target.tokens", "wb") as target,
        open(folder / "index", "wb") as index,
        report.progress("tokenize") as progress,
    ):
        for chunk in _tokenized(corpus, tokenizers, settings):
            source.write(chunk.source.astype(dtype).tobytes())
            target.write(chunk.target.astype(dtype).tobytes())
            index.write((chunk.places + [source_tokens, 0, target_tokens, 0, read]).tobytes())
            if settings.drop_duplicates:
                hashes.append(chunk.hashes)
            source_tokens += len(chunk.source)
            target_tokens += len(chunk.target)
            read += chunk.read
            for reason, count in chunk.dropped.items():
                dropped[reason] += count
            progress.update(read, lines=f"{read:,}")
    places = _map(folder / "index", "int64").reshape(-1, COLUMNS)
    if settings.drop_duplicates:
        _, first = np.unique(np.concatenate(hashes), return_index=True)
        dropped["duplicate"] = len(places) - len(first)
        places = places[np.sort(first)]
        (folder / "index").write_bytes(places.tobytes())
    counts = Counts(read, len(places), dropped, int(places[:, 1].sum()), int(places[:, 3].sum()))
    sizes = {name: (folder / name).stat().st_size for name in ("source.tokens", "target.tokens", "index")}
    facts = {"dtype": dtype.name, "sizes": sizes, "counts": asdict(counts)}
    (folder / "store.json").write_text(json.dumps(facts, indent=1))


def _tokenized(corpus: Corpus, tokenizers: Tokenizers, settings: DataSettings) -> Iterator[_Chunk]:
    """Chunks in order; on all cores once there is more than one chunk's worth of text."""
    chunks = _chunks(corpus, CHUNK)
    head = list(itertools.islice(chunks, 2))
    if len(head) < 2:
        yield from (_tokenize(chunk, tokenizers, settings) for chunk in head)
        return
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # fork, where there is one, does not run the user's script again; workers touch neither torch nor a GPU
    start = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    files, text = tokenizers.files(), tokenizers.settings
    with ProcessPoolExecutor(workers, start, _start_worker, (files, text, settings)) as pool:
        pending: list[Future[_Chunk]] = []
        for chunk in itertools.chain(head, chunks):
            pending.append(pool.submit(_work, chunk))
            if len(pending) > 2 * workers:  # a bound on what waits in memory
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()


def _chunks(corpus: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    pairs = iter(corpus)
    while chunk := list(itertools.islice(pairs, size)):
        yield chunk


_worker: tuple[Tokenizers, DataSettings]


def _start_worker(files: dict[str, bytes], text: TextSettings, settings: DataSettings) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _worker = (Tokenizers.from_files(files, text), settings)


def _work(chunk: list[Pair]) -> _Chunk:
    return _tokenize(chunk, *_worker)


def _tokenize(chunk: list[Pair], tokenizers: Tokenizers, settings: DataSettings) -> _Chunk:
    dropped = dict.fromkeys(REASONS, 0)
    pairs, lines = [], []
    for line, pair in enumerate(normalised(chunk), 1):
        if settings.drop_empty and not (pair.source and pair.target):
            dropped["empty"] += 1
        elif settings.drop_identical and pair.source == pair.target:
            dropped["identical"] += 1
        else:
            pairs.append(pair)
            lines.append(line)
    sources = tokenizers.source.encode([pair.source for pair in pairs])
    targets = tokenizers.target.encode([pair.target for pair in pairs])
    keep: list[int] = []
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        shorter, longer = sorted((len(source), len(target)))
        if longer + 1 > settings.max_tokens:  # + 1: the end of the sentence
            dropped["too long"] += 1
        elif settings.max_ratio is not None and longer > settings.max_ratio * max(shorter, 1):
            dropped["length ratio"] += 1
        else:
            keep.append(i)
    digests = (hashlib.blake2b("\t".join(pairs[i]).encode(), digest_size=8).digest() for i in keep)
    return _Chunk(
        source=np.fromiter(itertools.chain.from_iterable(sources[i] for i in keep), np.uint32),
        target=np.fromiter(itertools.chain.from_iterable(targets[i] for i in keep), np.uint32),
        places=np.column_stack(
            [*_begin_length(sources, keep), *_begin_length(targets, keep), np.array(lines, np.int64)[keep]]
        ),
        hashes=np.frombuffer(b"".join(digests), np.uint64),
        dropped=dropped,
        read=len(chunk),
    )


def _begin_length(sentences: list[list[int]], keep: list[int]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(sentences[i]) for i in keep], np.int64)
    return np.cumsum(lengths) - lengths, lengths


def _name(corpus: Corpus, tokenizers: Tokenizers, settings: DataSettings) -> str:
    """A hash of everything the store depends on."""
    digest = hashlib.sha256()
    for source, target in corpus:
        digest.update(f"{len(source)} {len(target)} {source}{target}".encode("utf-8", "surrogatepass"))
    for content in tokenizers.files().values():
        digest.update(content)
    filters = [settings.drop_empty, settings.drop_identical, settings.drop_duplicates]
    if tokenizers.settings.lowercase:
        filters.append(True)  # only then, so that stores made before it are found again
    digest.update(repr([FORMAT, *filters, settings.max_tokens, settings.max_ratio]).encode())
    return digest.hexdigest()[:16]
