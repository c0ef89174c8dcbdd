"""Product quantisation (Jégou et al., 2011): a row is cut into pieces of two numbers, and each piece replaced by the
nearest of 256 that were found for its place. A piece is then one byte instead of eight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.errors import SettingsError

CENTROIDS = 256  # what a byte can say
PIECE = 2  # numbers
SAMPLE = 256 * 256  # rows that centroids are found on
ROUNDS = 25
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Codebook:
    """The pieces of each place; the last place may have fewer numbers."""

    dimension: int
    piece: int
    centroids: list[Floats]  # a (256, piece) for each place

    def decode(self, codes: NDArray[np.uint8]) -> Floats:
        """Rows from their codes (N, places)."""
        return np.concatenate([book[codes[:, place]] for place, book in enumerate(self.centroids)], axis=1)


@dataclass(frozen=True)
class Quantised:
    """A matrix in bytes: directions, and lengths apart where that was wished."""

    codes: NDArray[np.uint8]  # (N, places)
    book: Codebook
    norm_codes: NDArray[np.uint8] | None = None  # (N,)
    norm_book: Codebook | None = None

    def decode(self) -> Floats:
        rows = self.book.decode(self.codes)
        if self.norm_codes is not None and self.norm_book is not None:
            with np.errstate(invalid="ignore", over="ignore"):  # a damaged file; whoever reads it looks for that
                rows *= self.norm_book.decode(self.norm_codes[:, None])
        return rows


def quantise(matrix: Floats, with_norms: bool = True, seed: int = 1) -> Quantised:
    """Each row by its direction and its length."""
    if len(matrix) < CENTROIDS:
        raise SettingsError(f"{len(matrix)} rows cannot be quantised: at least {CENTROIDS} are needed")
    if not with_norms:
        return Quantised(*_quantise(matrix, PIECE, seed))
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    codes, book = _quantise(matrix / np.maximum(norms, 1e-12), PIECE, seed)
    norm_codes, norm_book = _quantise(norms, 1, seed)
    return Quantised(codes, book, norm_codes[:, 0], norm_book)


def _quantise(matrix: Floats, piece: int, seed: int) -> tuple[NDArray[np.uint8], Codebook]:
    draw = np.random.default_rng(seed)
    width = matrix.shape[1]
    some = matrix if len(matrix) <= SAMPLE else matrix[draw.choice(len(matrix), SAMPLE, replace=False)]
    books, codes = [], []
    for begin in range(0, width, piece):
        book = _k_means(np.ascontiguousarray(some[:, begin : begin + piece]), draw)
        books.append(book)
        codes.append(_nearest(np.ascontiguousarray(matrix[:, begin : begin + piece]), book))
    return np.stack(codes, axis=1), Codebook(width, piece, books)


def _k_means(points: Floats, draw: np.random.Generator) -> Floats:
    """256 centres, each the mean of the points that are nearest to it (Lloyd, 1982). One that nobody is near to moves
    beside the most crowded."""
    centres = points[draw.choice(len(points), CENTROIDS, replace=False)].copy()
    for _ in range(ROUNDS):
        own = _nearest(points, centres)
        counts = np.bincount(own, minlength=CENTROIDS)
        sums = np.stack([np.bincount(own, points[:, d], CENTROIDS) for d in range(points.shape[1])], axis=1)
        empty = counts == 0
        centres[~empty] = (sums[~empty] / counts[~empty, None]).astype(np.float32)
        centres[empty] = centres[counts.argmax()] * (1 + 1e-3 * draw.standard_normal((empty.sum(), 1)))
    return centres


def _nearest(points: Floats, centres: Floats) -> NDArray[np.uint8]:
    squares = (centres**2).sum(1)
    found = np.empty(len(points), np.uint8)
    for begin in range(0, len(points), SAMPLE):
        block = points[begin : begin + SAMPLE]
        found[begin : begin + SAMPLE] = (squares - 2 * block @ centres.T).argmin(1)
    return found
