"""Building stores: a corpus is tokenized once, on all cores, in one pass for all parts of it.

A store's name is a hash of text, tokenizer and filters, so that it is used again exactly as long as it would be the
same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from transduce.data.corpus import Corpus, Pair
from transduce.data.filters import REASONS
from transduce.data.pool import tokenize_all
from transduce.data.store import COLUMNS, FACTS, INDEX, SOURCE, TARGET, TEXT, Counts, Damaged, Store
from transduce.data.survey import survey
from transduce.data.tokenize import Chunk, Job, Sampling, Tokenized
from transduce.errors import DataError
from transduce.files import strict_json
from transduce.files.reading import sha256
from transduce.report import SILENT, Report
from transduce.settings.sections import TEXT_KEPT, DataSettings
from transduce.text.tokenizers import Tokenizers

CHUNK = 10_000  # pairs handed to a worker at a time
FORMAT = 4  # of the files; part of the hash


class Part(NamedTuple):
    """Some lines of a corpus that become a store of their own."""

    job: Job
    takes: Callable[[int], bool] = lambda line: True  # which lines
    rule: str = "all"  # the same in words, for the store's name
    text: bool = False  # whether some of the lines, drawn, are kept as text too
    weights: tuple[tuple[int, int], ...] = ()  # (lines, how often an epoch goes through them), in order; none: once


def build_store(
    corpus: Corpus,
    tokenizers: Tokenizers,
    settings: DataSettings,
    cache: Path,
    report: Report = SILENT,
    sampling: Sampling | None = None,
) -> Store:
    """The store of a whole corpus."""
    part = Part(Job(tokenizers, settings, sampling))
    return build_stores(corpus, survey(corpus).digest, [part], cache, report)[0]


def build_stores(
    corpus: Corpus, digest: str, parts: Sequence[Part], cache: Path, report: Report = SILENT
) -> list[Store]:
    """The stores of some parts of a corpus in `cache`, made now or found from before. `digest`: of its text."""
    folders = [cache / store_name(digest, part) for part in parts]
    stores = [_open(folder, part) for folder, part in zip(folders, parts, strict=True)]
    if all(store is not None for store in stores):
        return [store for store in stores if store is not None]
    try:
        _remove_abandoned(cache)
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(_Writer(folder, part)) for folder, part in zip(folders, parts, strict=True)]
            _write(corpus, parts, writers, report)
        return [Store(folder) for folder in folders]
    except OSError as error:
        raise DataError(f"cannot write the token store {folders[0]}: {error.strerror}") from error


def _open(folder: Path, part: Part) -> Store | None:
    """The store of a part that was made before; None where there is none, or what is there is not what it should be."""
    try:
        store = Store(folder)
    except Damaged:
        return None
    sizes = (part.job.tokenizers.source.size, part.job.tokenizers.target.size)
    return store if (store.variants, store.sizes) == (part.job.variants, sizes) else None


def _write(corpus: Corpus, parts: Sequence[Part], writers: Sequence[_Writer], report: Report) -> None:
    with report.progress("tokenize") as progress:
        read = 0
        for tokenized in tokenize_all(_chunks(corpus, parts, writers), [part.job for part in parts]):
            writers[tokenized.part].add(tokenized)
            read += tokenized.read
            progress.update(read, lines=f"{read:,}")
    for writer in writers:
        writer.finish()


def _chunks(corpus: Corpus, parts: Sequence[Part], writers: Sequence[_Writer]) -> Iterator[Chunk]:
    """The pairs of each part in chunks of its own, as they fill up."""
    waiting: list[list[Pair]] = [[] for _ in parts]
    numbers = [0] * len(parts)
    for pair in corpus:
        for place, part in enumerate(parts):
            if part.takes(pair.line):
                writers[place].keep_text(pair)
                waiting[place].append(pair)
            if len(waiting[place]) == CHUNK:
                yield Chunk(place, numbers[place], waiting[place])
                waiting[place], numbers[place] = [], numbers[place] + 1
    for place, pairs in enumerate(waiting):
        if pairs:
            yield Chunk(place, numbers[place], pairs)


class _Writer:
    """A store that is being written beside its place."""

    def __init__(self, folder: Path, part: Part) -> None:
        self.folder, self.part = folder, part
        self.beside = folder.with_name(f"{folder.name}.{platform.node()}.{os.getpid()}.part")
        sizes = (part.job.tokenizers.source.size, part.job.tokenizers.target.size)
        self.dtype = np.dtype(np.uint32 if max(sizes) > np.iinfo(np.uint16).max else np.uint16)
        self.dropped = dict.fromkeys(REASONS, 0)
        self.hashes = [np.zeros(0, np.uint64)]
        self.tokens = [0, 0]  # written so far
        self.read = self.texts = 0
        self.text: list[tuple[int, bytes]] = []  # lines that are kept as they are, with their numbers
        self.draw = Random(1)

    def __enter__(self) -> _Writer:
        shutil.rmtree(self.beside, ignore_errors=True)
        self.beside.mkdir(parents=True)
        self.files = {name: open(self.beside / name, "wb") for name in (SOURCE, TARGET, INDEX, TEXT)}  # noqa: SIM115
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self.files.values():
            stream.close()
        shutil.rmtree(self.beside, ignore_errors=True)

    def keep_text(self, pair: Pair) -> None:
        """Of more than TEXT_KEPT lines so many, drawn: a text may be sorted. Every line takes the place of one that was
        kept, or of none, so that all are equally probable (reservoir sampling; Vitter, 1985)."""
        if not self.part.text:
            return
        place = self.texts if self.texts < TEXT_KEPT else self.draw.randrange(self.texts + 1)
        self.texts += 1
        if place < TEXT_KEPT:
            line = strict_json.dumps([pair.source, pair.target]) + "\n"
            self.text[place : place + 1] = [(self.texts, line.encode("utf-8", "surrogatepass"))]

    def add(self, tokenized: Tokenized) -> None:
        self.files[SOURCE].write(tokenized.source.astype(self.dtype).tobytes())
        self.files[TARGET].write(tokenized.target.astype(self.dtype).tobytes())
        self.files[INDEX].write((tokenized.places + [self.tokens[0], 0, self.tokens[1], 0, 0]).tobytes())
        if self.part.job.settings.drop_duplicates:
            self.hashes.append(tokenized.hashes)
        self.tokens = [self.tokens[0] + len(tokenized.source), self.tokens[1] + len(tokenized.target)]
        self.read += tokenized.read
        for reason, count in tokenized.dropped.items():
            self.dropped[reason] += count

    def finish(self) -> None:
        """Without duplicates, with its facts, onto the disk and into its place."""
        self.files[TEXT].writelines(line for _, line in sorted(self.text))
        for stream in self.files.values():
            stream.close()
        index = np.fromfile(self.beside / INDEX, "int64").reshape(-1, COLUMNS)
        if self.part.job.settings.drop_duplicates:
            index = self._without_duplicates(index)
            (self.beside / INDEX).write_bytes(index.tobytes())
        counts = self._counts(index)
        if self.part.weights:
            index = self._weighted(index)
            (self.beside / INDEX).write_bytes(index.tobytes())
        (self.beside / FACTS).write_text(strict_json.dumps(self._facts(counts), indent=1), encoding="utf-8")
        for path in self.beside.iterdir():
            with open(path, "rb") as written:
                os.fsync(written.fileno())
        self._put_into_place()

    def _put_into_place(self) -> None:
        """As a whole; where another process was faster, its store stays, which others may be reading already."""
        try:
            os.replace(self.beside, self.folder)
        except OSError:  # a folder that is not empty lies there
            if _open(self.folder, self.part) is None:  # damaged
                shutil.rmtree(self.folder, ignore_errors=True)
                os.replace(self.beside, self.folder)

    def _without_duplicates(self, index: np.ndarray) -> np.ndarray:
        """The first of equal pairs stays."""
        _, first = np.unique(np.concatenate(self.hashes), return_index=True)
        by_pair = index.reshape(-1, self.part.job.variants, COLUMNS)
        self.dropped["duplicate"] = len(by_pair) - len(first)
        return by_pair[np.sort(first)].reshape(-1, COLUMNS)

    def _weighted(self, index: np.ndarray) -> np.ndarray:
        """Every pair as often as its weight says; tokens stay on disk once."""
        lines, weights = np.array(self.part.weights, np.int64).T
        by_pair = index.reshape(-1, self.part.job.variants, COLUMNS)
        stretch = np.searchsorted(np.cumsum(lines), by_pair[:, 0, 4])  # that a pair's line lies in
        return by_pair.repeat(weights[stretch], 0).reshape(-1, COLUMNS)

    def _counts(self, index: np.ndarray) -> Counts:
        """Counts of pairs that differ: weights are not counted."""
        sums = (len(index), *index[:, [1, 3]].sum(0))
        kept, source, target = (int(n) // self.part.job.variants for n in sums)
        return Counts(self.read, kept, self.dropped, source, target)

    def _facts(self, counts: Counts) -> dict:
        job = self.part.job
        names = (SOURCE, TARGET, INDEX, TEXT)
        return {
            "dtype": self.dtype.name,
            "variants": job.variants,
            "vocabularies": [job.tokenizers.source.size, job.tokenizers.target.size],
            "counts": asdict(counts),
            "bytes": {name: (self.beside / name).stat().st_size for name in names},
            "sha256": {name: sha256(self.beside / name) for name in names},
        }


def store_name(digest: str, part: Part) -> str:
    """A hash of everything the store depends on."""
    settings, tokenizers = part.job.settings, part.job.tokenizers
    drops = [settings.drop_empty, settings.drop_identical, settings.drop_duplicates]
    filters = [*drops, settings.max_tokens, settings.max_ratio]
    facts = [FORMAT, digest, part.rule, part.text, tokenizers.settings.lowercase, filters, part.job.sampling]
    facts += [part.weights] if part.weights else []  # without, the names are those of stores that are there
    rewriting = [getattr(tokenizers.settings, key) for key in ("case", "protect", "protect_pattern")]
    if rewriting != ["typed", None, None]:  # else the name is what it was before these were there
        facts += [rewriting, part.job.teaches]
    languages = [getattr(tokenizers.settings, key) for key in ("source_language", "target_language", "mark_place")]
    if languages[:2] != [None, None]:
        facts += [languages]
    name = hashlib.sha256(repr(facts).encode())
    for content in tokenizers.files().values():
        name.update(content)
    return name.hexdigest()[:16]


def _remove_abandoned(cache: Path) -> None:
    """What processes of this machine were writing when they were killed."""
    for left in cache.glob(f"*.{platform.node()}.*.part"):
        number = left.name.split(".")[-2]
        if number.isdigit() and not _is_alive(int(number)):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # somebody else's
    return True
