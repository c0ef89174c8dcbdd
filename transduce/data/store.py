"""Tokens on disk: a corpus is tokenized once, in parallel, and read through a memory map from then on.

A store is a folder: `source.tokens` and `target.tokens` (all sentences end to end), `index` (where each begins, its
length and its place in the corpus), `store.json` (sizes, counts, and every dropped pair by reason). Its name is a hash
of text, tokenizer and filters, so a store is reused exactly as long as it would be the same. Tokens and index stay on
disk; memory holds the lengths, and while training the plan of an epoch: some 30 bytes a pair (70 for packed rows).

With subword sampling a store holds several segmentations of every pair, its variants, side by side; an epoch takes one
of each. So batches know of no randomness but their order, and any layout will do.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import mmap
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transduce.config import DataSettings, TextSettings
from transduce.data.corpus import Corpus, Every, Pair, normalised
from transduce.errors import DataError
from transduce.report import SILENT, Report
from transduce.text.tokenizer import Tokenizer, Tokenizers

CHUNK = 10_000  # pairs handed to a worker at a time
FORMAT = 3  # of the files; part of the hash

COLUMNS = 5  # of the index: source begin, source length, target begin, target length, place in the corpus
REASONS = ("empty", "too long", "length ratio", "identical", "duplicate")


class Sampling(NamedTuple):
    """Several segmentations of each pair."""

    amount: float  # BPE dropout rate, or unigram smoothing
    variants: int
    seed: int


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
    """An opened store: `len`, the number of pairs; and their tokens by their place, `variants` places a pair."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        facts = json.loads((folder / "store.json").read_text())
        for name, size in facts["sizes"].items():
            if (folder / name).stat().st_size != size:
                raise ValueError(f"{name} is not {size} bytes long")
        self.counts = Counts(**facts["counts"])
        self.variants = int(facts["variants"])
        self._maps: list[mmap.mmap] = []
        self._index = self._map("index", "int64").reshape(-1, COLUMNS)
        self.source, self.target = self.sides = tuple(
            Side(
                self._map(f"{name}.tokens", facts["dtype"]),
                self._index[:, i],
                self._index[:, i + 1].astype(np.int32),
            )
            for name, i in (("source", 0), ("target", 2))
        )
        self.longest = int(max(side.lengths.max(initial=0) for side in self.sides))
        self.release()

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

    def places(self, pairs: np.ndarray, epoch: int) -> np.ndarray:
        """Where the variants lie that an epoch uses of these pairs: all of one after the other, from another first."""
        return pairs * self.variants + (epoch + pairs) % self.variants

    def lines(self, places: np.ndarray) -> np.ndarray:
        """Which pairs of the text, from 1, lie there; those that were left out, or set aside, count."""
        return self._index[places, 4]


class _Chunk(NamedTuple):
    """A worker's answer: tokens end to end, an index into them, a hash a pair, and what it left out."""

    source: np.ndarray
    target: np.ndarray
    places: np.ndarray  # (pairs, 5), counted from the beginning of the chunk
    hashes: np.ndarray
    dropped: dict[str, int]
    read: int


def build(
    corpus: Corpus,
    tokenizers: Tokenizers,
    settings: DataSettings,
    cache: Path,
    report: Report = SILENT,
    sampling: Sampling | None = None,
) -> Store:
    """The store of this corpus in `cache`, made now or found from before."""
    folder = cache / _name(corpus, tokenizers, settings, sampling)
    try:
        return Store(folder)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or not whole
    beside = folder.with_name(f"{folder.name}.{platform.node()}.{os.getpid()}.part")
    try:
        _remove_abandoned(cache)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        _write(beside, corpus, _Work(tokenizers, settings, sampling), report)
        for path in beside.iterdir():
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(beside, folder)
        return Store(folder)
    except OSError as error:
        raise DataError(f"cannot write the token store {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _remove_abandoned(cache: Path) -> None:
    """What processes of this machine were writing when they were killed."""
    for left in cache.glob(f"*.{platform.node()}.*.part"):
        number = left.name.split(".")[-2]
        if number.isdigit() and not _is_alive(int(number)):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


class _Work(NamedTuple):
    """What is done to every pair."""

    tokenizers: Tokenizers
    settings: DataSettings
    sampling: Sampling | None

    @property
    def variants(self) -> int:
        return self.sampling.variants if self.sampling else 1


def _write(folder: Path, corpus: Corpus, work: _Work, report: Report) -> None:
    tokenizers, settings = work.tokenizers, work.settings
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
        for chunk in _tokenized(corpus, work):
            source.write(chunk.source.astype(dtype).tobytes())
            target.write(chunk.target.astype(dtype).tobytes())
            places = chunk.places + [source_tokens, 0, target_tokens, 0, read]
            if isinstance(corpus, Every):
                places[:, 4] = corpus.lines(places[:, 4])
            index.write(places.tobytes())
            if settings.drop_duplicates:
                hashes.append(chunk.hashes)
            source_tokens += len(chunk.source)
            target_tokens += len(chunk.target)
            read += chunk.read
            for reason, count in chunk.dropped.items():
                dropped[reason] += count
            progress.update(read, lines=f"{read:,}")
    places = np.fromfile(folder / "index", "int64").reshape(-1, COLUMNS)
    if settings.drop_duplicates:
        _, first = np.unique(np.concatenate(hashes), return_index=True)
        by_pair = places.reshape(-1, work.variants, COLUMNS)
        dropped["duplicate"] = len(by_pair) - len(first)
        places = by_pair[np.sort(first)].reshape(-1, COLUMNS)
        (folder / "index").write_bytes(places.tobytes())
    kept, source_tokens, target_tokens = (int(n) // work.variants for n in (len(places), *places[:, [1, 3]].sum(0)))
    counts = Counts(read, kept, dropped, source_tokens, target_tokens)
    sizes = {name: (folder / name).stat().st_size for name in ("source.tokens", "target.tokens", "index")}
    facts = {"dtype": dtype.name, "sizes": sizes, "variants": work.variants, "counts": asdict(counts)}
    (folder / "store.json").write_text(json.dumps(facts, indent=1))


def _tokenized(corpus: Corpus, work: _Work) -> Iterator[_Chunk]:
    """Chunks in order; on all cores once there is more than one chunk's worth of text."""
    chunks = enumerate(_chunks(corpus, CHUNK))
    head = list(itertools.islice(chunks, 2))
    if len(head) < 2:
        yield from (_tokenize(chunk, number, work) for number, chunk in head)
        return
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # fork, where there is one, does not run the user's script again; workers touch neither torch nor a GPU
    start = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    given = (work.tokenizers.files(), work.tokenizers.settings, work.settings, work.sampling)
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, start, _start_worker, given) as pool:
        pending: list[Future[_Chunk]] = []
        try:
            for number, chunk in itertools.chain(head, chunks):
                pending.append(pool.submit(_tokenize_there, chunk, number))
                if len(pending) > 2 * workers:  # a bound on what waits in memory
                    yield pending.pop(0).result()
            for future in pending:
                yield future.result()
        except BrokenProcessPool as error:
            raise DataError(
                "a process that tokenized text was ended from outside, perhaps for lack of memory; start again with "
                "more of it"
            ) from error
        except BaseException:  # Ctrl-C, say: nobody waits for what they still have to do
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise


def _chunks(corpus: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    pairs = iter(corpus)
    while chunk := list(itertools.islice(pairs, size)):
        yield chunk


_worker: _Work


def _start_worker(
    files: dict[str, bytes], text: TextSettings, settings: DataSettings, sampling: Sampling | None
) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = _Work(Tokenizers.from_files(files, text), settings, sampling)


def _end_with_parent() -> None:
    """Who is killed cannot tell its workers to go."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _tokenize_there(chunk: list[Pair], number: int) -> _Chunk:
    return _tokenize(chunk, number, _worker)


def _tokenize(chunk: list[Pair], number: int, work: _Work) -> _Chunk:
    """Filter, then encode; `number` is that of the chunk."""
    settings, dropped = work.settings, dict.fromkeys(REASONS, 0)
    pairs, lines = [], []
    for line, pair in enumerate(normalised(chunk), 1):
        if settings.drop_empty and not (pair.source and pair.target):
            dropped["empty"] += 1
        elif settings.drop_identical and pair.source == pair.target:
            dropped["identical"] += 1
        else:
            pairs.append(pair)
            lines.append(line)
    sides = [
        (work.tokenizers.source, [pair.source for pair in pairs]),
        (work.tokenizers.target, [pair.target for pair in pairs]),
    ]
    encoded = list(zip(*(tokenizer.encode(texts) for tokenizer, texts in sides), strict=True))
    keep: list[int] = []
    for i, pair_of_ids in enumerate(encoded):
        shorter, longer = sorted(map(len, pair_of_ids))
        if longer + 1 > settings.max_tokens:  # + 1: the end of the sentence
            dropped["too long"] += 1
        elif settings.max_ratio is not None and longer > settings.max_ratio * max(shorter, 1):
            dropped["length ratio"] += 1
        else:
            keep.append(i)
    digests = (hashlib.blake2b("\t".join(pairs[i]).encode(), digest_size=8).digest() for i in keep)
    encoded = [encoded[i] for i in keep]
    if work.sampling:
        encoded = _sampled(encoded, [(tokenizer, [texts[i] for i in keep]) for tokenizer, texts in sides], number, work)
    sources, targets = zip(*encoded, strict=True) if encoded else ((), ())
    return _Chunk(
        source=np.fromiter(itertools.chain.from_iterable(sources), np.uint32),
        target=np.fromiter(itertools.chain.from_iterable(targets), np.uint32),
        places=np.column_stack(
            [
                *_begin_length(sources),
                *_begin_length(targets),
                np.array(lines, np.int64)[keep].repeat(work.variants),
            ]
        ),
        hashes=np.frombuffer(b"".join(digests), np.uint64),
        dropped=dropped,
        read=len(chunk),
    )


Ids = tuple[list[int], list[int]]  # of a pair


def _sampled(encoded: list[Ids], sides: list[tuple[Tokenizer, list[str]]], number: int, work: _Work) -> list[Ids]:
    """The variants of each pair, one after the other; a pair stays as it was encoded where one side grew too long."""
    assert work.sampling is not None
    drawn = []
    for variant in range(work.variants):
        seed = hash((work.sampling.seed, number, variant))  # of numbers: the same in every process
        samples = (tokenizer.sample(texts, work.sampling.amount, seed) for tokenizer, texts in sides)
        drawn.append(list(zip(*samples, strict=True)))
    longest = work.settings.max_tokens - 1
    return [
        variant if max(map(len, variant)) <= longest else plain
        for plain, *variants in zip(encoded, *drawn, strict=True)
        for variant in variants
    ]


def _begin_length(sentences: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    return np.cumsum(lengths) - lengths, lengths


def _name(corpus: Corpus, tokenizers: Tokenizers, settings: DataSettings, sampling: Sampling | None) -> str:
    """A hash of everything the store depends on."""
    digest = hashlib.sha256()
    for source, target in corpus:
        digest.update(f"{len(source)} {len(target)} {source}{target}".encode("utf-8", "surrogatepass"))
    for content in tokenizers.files().values():
        digest.update(content)
    drops = [settings.drop_empty, settings.drop_identical, settings.drop_duplicates]
    filters = [*drops, settings.max_tokens, settings.max_ratio]
    digest.update(repr([FORMAT, tokenizers.settings.lowercase, filters, sampling]).encode())
    return digest.hexdigest()[:16]
