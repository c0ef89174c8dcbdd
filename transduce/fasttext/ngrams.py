"""N-grams as numbers: character n-grams of a word, word n-grams of a line, hashed into buckets as fastText does.

A word nobody has seen has n-grams that others have: "kitchens" shares <ki, kit, itch with "kitchen". There are far more
n-grams than rows in a table, so a hash says which row; two n-grams may share one. This file is the readable form;
kernels/hashing.py is the fast one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

END_OF_LINE = "</s>"  # fastText counts the end of a line as a word
FNV_BASIS, FNV_PRIME = 2166136261, 16777619  # of the hash FNV-1a, 32 bits
WORD_FACTOR = 116049371  # of fastText's hash of a sequence of words
BITS_32, BITS_64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def fnv1a(text: bytes) -> int:
    """FNV-1a, 32 bits, as fastText computes it: a byte above 127 is a negative number there, and its sign fills the
    upper bits."""
    value = FNV_BASIS
    for byte in text:
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * FNV_PRIME) & BITS_32
    return value


def character_ngrams(word: str, shortest: int, longest: int) -> Iterator[str]:
    """Those of <word>: of each length, in fastText's order; the bare marks < and > are none."""
    marked = f"<{word}>"
    for begin in range(len(marked)):
        for length in range(1, min(longest, len(marked) - begin) + 1):
            is_mark = length == 1 and (begin == 0 or begin + length == len(marked))
            if length >= shortest and not is_mark:
                yield marked[begin : begin + length]


def character_buckets(word: str, shortest: int, longest: int, buckets: int) -> list[int]:
    """The bucket of each n-gram of a word; the end of a line has none."""
    if word == END_OF_LINE or longest <= 0 or buckets <= 0:
        return []
    return [fnv1a(ngram.encode()) % buckets for ngram in character_ngrams(word, shortest, longest)]


def word_buckets(words: Sequence[str], longest: int, buckets: int) -> list[int]:
    """The bucket of each sequence of 2 to `longest` words that follow each other."""
    signed = [fnv1a(word.encode()) for word in words]
    signed = [value - 2**32 if value >= 2**31 else value for value in signed]  # as fastText keeps them
    found = []
    for begin in range(len(words)):
        value = signed[begin] & BITS_64
        for following in signed[begin + 1 : begin + longest]:
            value = (value * WORD_FACTOR + following) & BITS_64
            found.append(value % buckets)
    return found
