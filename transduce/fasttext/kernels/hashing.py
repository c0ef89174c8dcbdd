"""The hashes of ngrams.py over bytes: all words of a dictionary at once.

`letters` holds the words one behind the other in UTF-8; those of word i are letters[starts[i]:starts[i + 1]].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transduce.compiled import exact

FNV_BASIS, FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)
WORD_FACTOR = np.uint64(116049371)


@exact
def fnv1a_step(value, byte):
    signed = np.uint32(byte) | np.uint32(0xFFFFFF00) if byte > 127 else np.uint32(byte)
    return np.uint32((value ^ signed) * FNV_PRIME)


@exact
def hash_words(letters: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int32]:
    """The hash of each word, signed as fastText keeps it."""
    found = np.empty(len(starts) - 1, np.int32)
    for word in range(len(starts) - 1):
        value = FNV_BASIS
        for place in range(starts[word], starts[word + 1]):
            value = fnv1a_step(value, letters[place])
        found[word] = np.int32(value)
    return found


@exact
def is_inside(byte):
    """Whether a byte goes on with a character that began before it."""
    return (byte & 0xC0) == 0x80


@exact
def ngrams_of(letters, begin, end, shortest, longest, buckets, found):
    """Write the buckets of letters[begin:end], which are <word>, as far as there is room, and give their number."""
    count = 0
    for first in range(begin, end):
        if is_inside(letters[first]):
            continue
        value, last, length = FNV_BASIS, first, 1
        while last < end and length <= longest:
            value = fnv1a_step(value, letters[last])
            last += 1
            while last < end and is_inside(letters[last]):
                value = fnv1a_step(value, letters[last])
                last += 1
            is_mark = length == 1 and (first == begin or last == end)
            if length >= shortest and not is_mark:
                if count < len(found):
                    found[count] = np.int64(value) % buckets
                count += 1
            length += 1
    return count


@exact
def ngram_table(letters, starts, shortest, longest, buckets):
    """The buckets of all words: (offsets, buckets), laid out as the words are."""
    offsets = np.zeros(len(starts), np.int64)
    nothing = np.empty(0, np.int32)
    for word in range(len(starts) - 1):
        count = ngrams_of(letters, starts[word], starts[word + 1], shortest, longest, buckets, nothing)
        offsets[word + 1] = offsets[word] + count
    found = np.empty(offsets[-1], np.int32)
    for word in range(len(starts) - 1):
        some = found[offsets[word] : offsets[word + 1]]
        ngrams_of(letters, starts[word], starts[word + 1], shortest, longest, buckets, some)
    return offsets, found


@exact
def mark_word_ngrams(hashes, starts, longest, buckets, seen):
    """Set seen[bucket] for every word n-gram of lines starts[i]:starts[i + 1]."""
    for line in range(len(starts) - 1):
        end = starts[line + 1]
        for begin in range(starts[line], end):
            value = np.uint64(np.int64(hashes[begin]))
            for following in range(begin + 1, min(end, begin + longest)):
                value = np.uint64(value * WORD_FACTOR + np.uint64(np.int64(hashes[following])))
                seen[np.int64(value % np.uint64(buckets))] = True
