"""From lines to the sentences that are translated one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transduce.text.normalise import normalise
from transduce.text.sentences import halve, split_sentences
from transduce.text.tokenizers import Tokenizer

PIECE = 64  # tokens of a sentence that has to be cut: models have seen few that are longer


class Sentence(NamedTuple):
    """What is translated by itself: a line, a sentence of it, or a piece of one that is too long."""

    line: int
    gap: str  # white space between the one before and this
    text: str
    source: list[int]  # its tokens
    whole: bool = True  # nothing of it was left out
    long: bool = False  # it is a piece


def sentences_of(lines: Sequence[str], tokenizer: Tokenizer, longest: int, split: bool) -> list[Sentence]:
    """Of all lines, in order. `split`: lines into their sentences, and these into pieces where they have more than
    `longest` tokens; otherwise a line is a sentence, and what is too long of it is left out."""
    parts = [(i, *part) for i, line in enumerate(lines) for part in _parts(line, split)]
    encoded = tokenizer.encode([normalise(text) for _, _, text in parts])
    found: list[Sentence] = []
    for (line, gap, text), ids in zip(parts, encoded, strict=True):
        if len(ids) <= longest:
            found.append(Sentence(line, gap, text, ids))
        elif split:
            found += _pieces(line, gap, text, ids, tokenizer, longest)
        else:
            found.append(Sentence(line, gap, text, ids[:longest], whole=False))
    return found


def _parts(line: str, split: bool) -> Iterator[tuple[str, str]]:
    """The sentences of a line, each with the white space before it."""
    sentences = split_sentences(line) if split else [line]
    if len(sentences) <= 1:
        yield "", line
        return
    gap = ""
    for sentence in sentences:
        text = sentence.strip()
        before = sentence[: len(sentence) - len(sentence.lstrip())]
        yield gap + before, text
        gap = sentence[len(sentence.rstrip()) :] if text else gap + sentence


def _pieces(line: int, gap: str, text: str, ids: list[int], tokenizer: Tokenizer, longest: int) -> list[Sentence]:
    """A sentence that is too long, halved until every piece is one that a model can be good at."""
    if len(ids) <= min(longest, PIECE) or len(text) < 2:
        return [Sentence(line, gap, text, ids[:longest], whole=len(ids) <= longest, long=True)]
    left, right = halve(text)
    between = left[len(left.rstrip()) :]
    two = [part.strip() for part in (left, right)]
    some: list[Sentence] = []
    encoded = tokenizer.encode([normalise(part) for part in two])
    for before, part, tokens in zip((gap, between), two, encoded, strict=True):
        some += _pieces(line, before, part, tokens, tokenizer, longest)
    return some
