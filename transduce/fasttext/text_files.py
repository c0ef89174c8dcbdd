"""Vectors as others write them: .vec and word2vec text (a header, then a word and its numbers a line), GloVe (the same
without a header), word2vec binary. What a header claims is compared with the size of the file before room is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.lines import read_lines
from transduce.errors import DataError
from transduce.files.reading import open_regular, problem_with

LONGEST_WORD = 1000  # bytes
MOST_NUMBERS = 100_000  # in a vector


class Table(NamedTuple):
    """Words with a vector each."""

    words: Sequence[str]
    vectors: NDArray[np.float32]  # (V, D)


def read_table(path: Path) -> Table:
    """The table of a file, whichever of these kinds it is."""
    if problem := problem_with(path):
        raise DataError(f"{path} {problem}")
    if _is_binary(path):
        return read_word2vec_binary(path)
    return read_text(path)


def _is_binary(path: Path) -> bool:
    """A header of two numbers, and behind it what is no text."""
    if path.suffix in (".gz", ".xz", ".zst"):
        return False
    with open_regular(path) as stream:
        head = stream.readline(100).split()
        body = stream.read(2000)
    if len(head) != 2 or not all(one.isdigit() for one in head):
        return False
    return any(byte < 9 for byte in body) or _is_no_text(body)


def _is_no_text(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start < len(body) - 4  # but for a character that the reading has cut
    return False


def read_text(path: Path) -> Table:
    """A word and its numbers a line; the first line may say how many there are of both."""
    first = next(read_lines(path), "").split()
    claimed, width = None, len(first) - 1
    if len(first) == 2 and all(one.isdecimal() and len(one) < 12 for one in first):
        claimed, width = int(first[0]), int(first[1])
    if not 1 <= width <= MOST_NUMBERS:
        raise DataError(f"{path} is no file of vectors: line 1 has no numbers behind a word")
    words: dict[str, None] = {}
    rows: list[NDArray[np.float32]] = []
    for number, line in enumerate(read_lines(path), 1):
        if (number > 1 or claimed is None) and line.strip():
            word, numbers = _row(line, width, f"{path}, line {number}")
            if word not in words:  # GloVe's has some twice
                words[word] = None
                rows.append(numbers)
    if claimed is not None and claimed < len(rows):
        raise DataError(f"{path} says that it has {claimed:,} words, and has {len(rows):,}: it was altered")
    if claimed is not None and claimed > number - 1:
        raise DataError(f"{path} says that it has {claimed:,} words, and has {number - 1:,}: it was cut short")
    if not rows:
        raise DataError(f"{path} holds no vectors")
    return Table(list(words), np.stack(rows))


def _row(line: str, width: int, where: str) -> tuple[str, NDArray[np.float32]]:
    """The word of a line, which may hold spaces, and its numbers."""
    parts = line.rstrip().rsplit(" ", width)
    if len(parts) != width + 1:
        raise DataError(f"{where}: expected a word and {width} numbers")
    try:
        numbers = np.array(parts[1:], np.float32)
    except ValueError as error:
        raise DataError(f"{where}: expected a word and {width} numbers") from error
    if not np.isfinite(numbers).all():
        raise DataError(f"{where}: a number is infinite or none (NaN)")
    return parts[0], numbers


def read_word2vec_binary(path: Path) -> Table:
    """word2vec's own: a line with two numbers, then for each word its letters, a space, and its numbers as bytes."""
    size = path.stat().st_size
    with open_regular(path) as stream:
        claimed, width = (int(one[:12]) for one in stream.readline(100).split())
        if not 1 <= width <= MOST_NUMBERS or claimed * (4 * width + 1) > size:
            raise DataError(
                f"{path} says that it has {claimed:,} words of {width:,} numbers, for which it is too small"
            )
        words, vectors = [], np.empty((claimed, width), np.float32)
        for row in range(claimed):
            letters = bytearray()
            while (byte := stream.read(1)) not in (b" ", b""):
                letters += byte.replace(b"\n", b"")
                if len(letters) > LONGEST_WORD:
                    raise DataError(f"{path}: word {row + 1:,} has no end")
            numbers = stream.read(4 * width)
            if len(numbers) < 4 * width:
                raise DataError(f"{path} was cut short: it ends in word {row + 1:,} of {claimed:,}")
            words.append(letters.decode("utf-8", errors="replace"))
            vectors[row] = np.frombuffer(numbers, "<f4")
    if not np.isfinite(vectors).all():
        raise DataError(f"{path}: a number is infinite or none (NaN)")
    if len(set(words)) != len(words):
        raise DataError(f"{path}: a word comes twice")
    return Table(words, vectors)


def vec_lines(words: Sequence[str], vectors: Iterable[NDArray[np.float32]], width: int) -> Iterator[str]:
    """The lines of a .vec file."""
    yield f"{len(words)} {width}"
    for word, vector in zip(words, vectors, strict=True):
        yield f"{word} {' '.join(f'{number:.6g}' for number in vector.tolist())}"
