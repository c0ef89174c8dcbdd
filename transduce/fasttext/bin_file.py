"""fastText's own files, .bin and .ftz, read and written: the fastText program loads ours, we load its.

    magic, version | args | dictionary | is quantised, input matrix | is quantised, output matrix

Everything is little-endian. No size that a file claims is believed before it is compared with the size of the file.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError, ModelError, SettingsError
from transduce.fasttext.dictionary import LABEL, Dictionary, decoded, encoded
from transduce.fasttext.folder import misfit
from transduce.fasttext.network import Network
from transduce.fasttext.quantise import CENTROIDS, Codebook, Quantised, quantise
from transduce.files.atomic import beside, explained, flush
from transduce.files.byte_reader import ByteReader
from transduce.files.reading import open_regular, problem_with
from transduce.settings.compose import compose
from transduce.settings.sections import VectorSettings

MAGIC, VERSION = 793712314, 12
ARGS = struct.Struct("<12id")
NAMES = ("dimension", "window", "epochs", "min_count", "negatives", "word_ngrams")  # the first six of them
LOSSES = {1: "hs", 2: "ns", 3: "softmax", 4: "ova"}
OBJECTIVES = {1: "cbow", 2: "skipgram", 3: "labels"}
BLOCK = 100_000  # rows that are looked at in one go
LONGEST_WORD = 100_000  # bytes
Floats = NDArray[np.float32]


def is_fasttext_file(path: Path) -> bool:
    if problem_with(path):
        return False
    with open_regular(path) as stream:
        return stream.read(4) == struct.pack("<i", MAGIC)


def read_fasttext(path: Path) -> Network:
    """A model from a .bin or .ftz file."""
    if problem := problem_with(path):
        raise DataError(f"{path} {problem}")
    with open_regular(path) as stream:
        try:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                network = _read(_Reader(content))
        except (ValueError, struct.error, IndexError, OverflowError, SettingsError) as error:
            raise ModelError(f"{path} is no model of fastText, or damaged: {str(error)[:150]}") from error
    if problem := misfit(network):
        raise ModelError(f"{path} is damaged: {problem}")
    return network


class _Reader(ByteReader):
    """Arrays and words too."""

    def array(self, dtype: Any, count: int) -> Any:
        return np.frombuffer(self.bytes(count * np.dtype(dtype).itemsize), dtype).copy()

    def word(self) -> Any:
        end = self.content.find(b"\0", self.place, self.place + LONGEST_WORD)
        if end < 0:
            raise ValueError("a word has no end")
        found = self.bytes(end - self.place)
        self.place += 1
        return found


def _read(reader: _Reader) -> Network:
    magic, version = reader.numbers("2i")
    if magic != MAGIC:
        raise ValueError("its first bytes are others")
    if version not in (11, 12):
        raise ValueError(f"version {version} of the format is not known")
    *whole, subsample = ARGS.unpack(reader.bytes(ARGS.size))
    loss, objective, buckets, shortest, longest = whole[6:11]
    if loss not in LOSSES or objective not in OBJECTIVES:
        raise ValueError(f"loss {loss} of objective {objective} is not known")
    if version == 11 and objective == 3:
        longest = 0  # that version had no character n-grams there, whatever it says
    dictionary, pruned = _read_dictionary(reader)
    E, U = _read_matrix(reader), _read_matrix(reader)
    some: dict[str, Any] = dict(zip(NAMES, whole[:6], strict=True))
    some |= {"loss": LOSSES[loss], "objective": OBJECTIVES[objective], "subsample": subsample}
    some |= {"shortest": max(1, shortest), "longest": longest, "buckets": max(1, buckets)}
    some["unseen"] = "zero" if pruned is None else "skipped"
    settings = checked(some)
    used = pruned if pruned is not None else np.arange(max(0, buckets), dtype=np.int32)
    E, used = _without_empty(E, used, len(dictionary.words))
    if settings.loss == "hs" and len(U) == len(dictionary.labels or dictionary.words):
        U = U[: max(1, len(U) - 1)]  # a tree of n leaves has n - 1 nodes; fastText keeps a row more
    return Network(settings, dictionary, E, U, used)


def checked(values: dict[str, Any]) -> VectorSettings:
    """Settings from a file, each within its range."""
    return compose({"vectors": values}).vectors


def _read_dictionary(reader: _Reader) -> tuple[Dictionary, NDArray[np.int32] | None]:
    """The words and labels, and for a pruned model the bucket of each row that is left."""
    size, words, labels, tokens, pruned = reader.numbers("3i2q")
    if size != words + labels or min(words, labels, tokens) < 0 or size * 10 > len(reader.content):
        raise ValueError(f"it cannot have {words:,} words and {labels:,} labels")
    entries: tuple[list[str], list[str]] = ([], [])
    counts: tuple[list[int], list[int]] = ([], [])
    for _ in range(size):
        word = reader.word()
        number, kind = reader.numbers("qb")
        if kind not in (0, 1):
            raise ValueError(f"an entry of kind {kind} is not known")
        entries[kind].append(decoded(word))
        counts[kind].append(number)
    if len(entries[0]) != words:
        raise ValueError(f"it has {len(entries[0]):,} words, and says {words:,}")
    names = [label.removeprefix(LABEL) for label in entries[1]]
    numbers = [np.array(some, np.int64) for some in counts]
    kept = None
    if pruned >= 0:
        pairs = reader.array("<i4", 2 * pruned).reshape(-1, 2)
        kept = np.full(pruned, -1, np.int32)
        if len(pairs) and (pairs[:, 1].min() < 0 or pairs[:, 1].max() >= pruned):
            raise ValueError("its pruned rows do not fit their number")
        kept[pairs[:, 1]] = pairs[:, 0]
    return Dictionary(entries[0], numbers[0], names, numbers[1], tokens), kept


def _read_matrix(reader: _Reader) -> Floats:
    (is_quantised,) = reader.numbers("?")
    if not is_quantised:
        rows, width = reader.numbers("2q")
        if min(rows, width) < 0:
            raise ValueError(f"a matrix of {rows} x {width} cannot be")
        return reader.array("<f4", rows * width).reshape(rows, width)
    has_norms, rows, width, codes = reader.numbers("?2qi")
    places = codes // max(1, rows)
    if min(rows, width, codes) < 0 or places * rows != codes or rows * width > 64 * len(reader.content):
        raise ValueError(f"a quantised matrix of {rows} x {width} in {codes} bytes cannot be")
    table = reader.array(np.uint8, codes).reshape(rows, places)
    book = _read_book(reader, width, places)
    if not has_norms:
        return Quantised(table, book).decode()
    lengths = reader.array(np.uint8, rows)
    return Quantised(table, book, lengths, _read_book(reader, 1, 1)).decode()


def _read_book(reader: _Reader, width: int, places: int) -> Codebook:
    dimension, count, piece, last = reader.numbers("4i")
    if dimension != width or count != places or piece < 1 or last != dimension - (count - 1) * piece:
        raise ValueError("a table of pieces does not fit its matrix")
    numbers = reader.array("<f4", dimension * CENTROIDS)
    books, place = [], 0
    for number in range(count):
        own = last if number == count - 1 else piece
        books.append(numbers[place : place + CENTROIDS * own].reshape(CENTROIDS, own))
        place += CENTROIDS * own
    return Codebook(dimension, piece, books)


def _without_empty(E: Floats, used: NDArray[np.int32], words: int) -> tuple[Floats, NDArray[np.int32]]:
    """Without rows of buckets that are 0: ours writes them so."""
    if len(E) != words + len(used):
        raise ValueError(f"its input matrix has {len(E):,} rows, not {words + len(used):,}")
    blocks = range(words, len(E), BLOCK)
    kept = [np.flatnonzero((E[begin : begin + BLOCK] != 0).any(1)) + begin for begin in blocks]
    full = np.concatenate([np.arange(0), *kept])
    if len(full) == len(used):
        return E, used
    return np.concatenate([E[:words], E[full]]), used[full - words]


# ---- writing


def write_fasttext(network: Network, path: Path, small: bool = False) -> None:
    """A .bin, or with `small` a quantised .ftz; it appears when it is whole."""
    part = beside(path)
    with explained(path):
        try:
            with open(part, "xb") as stream:
                _write(stream, network, small)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        flush(path.parent)


def _write(stream: IO[bytes], network: Network, small: bool) -> None:
    s, d = network.settings, network.dictionary
    uses_buckets = s.longest > 0 or s.word_ngrams > 1
    buckets = s.buckets if uses_buckets else 0
    loss = next(number for number, name in LOSSES.items() if name == s.loss)
    objective = next(number for number, name in OBJECTIVES.items() if name == s.objective)
    shortest = s.shortest if s.longest else 0
    numbers = (*(getattr(s, name) for name in NAMES), loss, objective, buckets, shortest, s.longest, 100)
    stream.write(struct.pack("<2i", MAGIC, VERSION) + ARGS.pack(*numbers, s.subsample))
    sizes = (len(d.words) + len(d.labels), len(d.words), len(d.labels), d.tokens)
    stream.write(struct.pack("<3i2q", *sizes, len(network.buckets) if small else -1))
    for word, number, kind in _entries(d):
        stream.write(word + b"\0" + struct.pack("<qb", number, kind))
    if small:
        pairs = np.stack([network.buckets, np.arange(len(network.buckets), dtype=np.int32)], axis=1)
        stream.write(pairs.astype("<i4").tobytes())
        _write_quantised(stream, quantise(network.E))
    else:
        _write_input(stream, network, buckets)
    U = network.U
    if s.loss == "hs":
        U = np.concatenate([U, np.zeros((len(network.counts) - len(U), s.dimension), np.float32)])
    stream.write(struct.pack("<?2q", False, *U.shape) + U.astype("<f4").tobytes())


def _entries(d: Dictionary) -> Iterator[tuple[bytes, int, int]]:
    for words, counts, kind, prefix in ((d.words, d.counts, 0, ""), (d.labels, d.label_counts, 1, LABEL)):
        for word, number in zip(words, counts.tolist(), strict=True):
            if "\0" in word:
                raise SettingsError(f"{word[:60]!r} holds a zero byte, which ends a word in fastText's files")
            yield encoded(prefix + word), number, kind


def _write_input(stream: IO[bytes], network: Network, buckets: int) -> None:
    """All rows of all buckets; those that nobody has used are holes in the file, which are 0."""
    words, width = len(network.dictionary.words), network.settings.dimension
    stream.write(struct.pack("<?2q", False, words + buckets, width))
    stream.write(network.E[:words].astype("<f4").tobytes())
    begin = stream.tell()
    order = np.argsort(network.buckets)
    for bucket, row in zip(network.buckets[order].tolist(), order.tolist(), strict=True):
        stream.seek(begin + bucket * width * 4)
        stream.write(network.E[words + row].astype("<f4").tobytes())
    stream.truncate(begin + buckets * width * 4)
    stream.seek(begin + buckets * width * 4)


def _write_quantised(stream: IO[bytes], q: Quantised) -> None:
    rows, places = q.codes.shape
    has_norms = q.norm_codes is not None
    stream.write(struct.pack("<??2qi", True, has_norms, rows, q.book.dimension, rows * places) + q.codes.tobytes())
    _write_book(stream, q.book)
    if q.norm_codes is not None and q.norm_book is not None:
        stream.write(q.norm_codes.tobytes())
        _write_book(stream, q.norm_book)


def _write_book(stream: IO[bytes], book: Codebook) -> None:
    last = book.centroids[-1].shape[1]
    stream.write(struct.pack("<4i", book.dimension, len(book.centroids), book.piece, last))
    stream.write(b"".join(one.astype("<f4").tobytes() for one in book.centroids))


def pruned(network: Network, rows: int) -> Network:
    """With only so many rows, those with the longest vectors; the end of a line stays (fastText's --cutoff)."""
    d = network.dictionary
    lengths = np.linalg.norm(network.E, axis=1)
    lengths[d.ids.get("</s>", 0)] = np.inf
    kept = np.sort(np.argsort(-lengths, kind="stable")[:rows])
    words, others = kept[kept < len(d.words)], kept[kept >= len(d.words)]
    dictionary = replace(d, words=[d.words[i] for i in words], counts=d.counts[words])
    return replace(network, dictionary=dictionary, E=network.E[kept], buckets=network.buckets[others - len(d.words)])
