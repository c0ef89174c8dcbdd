"""Words, as links between a text and its translation count them, and the tokens they are made of.

Words are what stands between white space; in scripts without spaces, characters with their marks. Links are written in
Pharaoh format: `0-0 1-2` links word 0 to word 0, and word 1 of the source to word 2 of the target.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from transduce.text.normalise import normalise
from transduce.text.scripts import COMBINING, is_unspaced

_MARK = re.compile(f"[{COMBINING}]")
Links = tuple[tuple[int, int], ...]  # (source word, target word), ascending


def pharaoh(links: Links) -> str:
    return " ".join(f"{i}-{j}" for i, j in links)


def word_links(source: Sequence[str], target: Sequence[str], places: Sequence[int]) -> Links:
    """From the pieces of both sides, and the place in the source that each target piece comes from."""
    source_words, target_words = words_of_pieces(source), words_of_pieces(target)
    links = {(i, j) for piece, place in enumerate(places) for i in source_words[place] for j in target_words[piece]}
    return tuple(sorted(links))


def words_of_pieces(pieces: Sequence[str]) -> list[list[int]]:
    """Which words each piece is part of: mostly one; none, if it is a space; several, where there are no spaces."""
    found: list[list[int]] = []
    word, begins, is_spaced = -1, True, True
    for piece in pieces:
        mine: list[int] = []
        for character in piece:
            if character in "▁ ":
                begins = is_spaced = True
                continue
            if is_spaced or not _MARK.match(character):  # a mark stands with the character before it
                alone = is_unspaced(character)
                word += begins or alone
                begins = alone  # what follows such a character is a word of its own
            is_spaced = False
            if word not in mine:
                mine.append(word)
        found.append(mine)
    return found


def count_words(text: str) -> int:
    """As `words_of_pieces` counts them."""
    return 1 + max((word for words in words_of_pieces([normalise(text)]) for word in words), default=-1)
