"""What became of a line."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from transduce.text.sentences import is_east_asian
from transduce.text.words import Links, count_words

if TYPE_CHECKING:
    from transduce.decoding.sentences import Sentence


class Candidate(NamedTuple):
    """One translation found for a line."""

    text: str
    score: float
    log_probability: float
    tokens: tuple[str, ...]


class Translation(NamedTuple):
    """What became of one line.

    status: `ok`; `empty`, nothing to translate; `truncated`, the source was longer than the model can read and its
    end was left out; `long`, a sentence was longer than the model can read and was translated in pieces; `length`, the
    output reached its limit before it ended; `unmet`, a term that was asked for is missing; `unknown`, much of the
    source is in no known letters; `doubtful`, the source is unlike the training text, or the translation unlike a
    good one; `failed`, the model gave no number. Of a line with several sentences it is the gravest of them.
    """

    source: str
    text: str
    status: str
    candidates: tuple[Candidate, ...]
    parts: tuple[Translation, ...] = ()  # its sentences, where it has several
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()  # of each token, with probabilities, where asked for
    alignment: Links = ()  # (source word, target word), counted from 0, where asked for
    confidence: float | None = None  # how probable it is that it is good; None: the model does not know

    @property
    def score(self) -> float:
        return self.candidates[0].score if self.candidates else 0.0


GRAVITY = ("failed", "truncated", "unmet", "unknown", "length", "doubtful", "long", "ok", "empty")


def gravest(statuses: Iterable[str]) -> str:
    return min(statuses, key=GRAVITY.index)


class TargetScore(NamedTuple):
    """How probable a given target is. status: `ok`; `truncated`, the source was cut; `too long`, no score (nan);
    `failed`, the model gave no number (nan)."""

    log_probability: float
    tokens: int  # END counted
    status: str


def join_lines(lines: Sequence[str], sentences: Sequence[Sentence], each: list[Translation]) -> list[Translation]:
    """One translation a line."""
    if len(sentences) == len(lines):
        return each
    results = []
    together = zip(sentences, each, strict=True)
    for number, group in itertools.groupby(together, key=lambda pair: pair[0].line):
        parts = list(group)
        if len(parts) == 1:
            results.append(parts[0][1])
        else:
            results.append(join(lines[number], [part for _, part in parts], [s.gap for s, _ in parts]))
    return results


def join(line: str, parts: Sequence[Translation], gaps: Sequence[str]) -> Translation:
    """One translation from those of a line's parts; `gaps`: the white space before each."""
    text = _join_texts([part.text for part in parts], gaps)
    best = max(len(part.candidates) for part in parts)
    return Translation(
        source=line,
        text=text,
        status=gravest(part.status for part in parts),
        candidates=tuple(_join_candidates(parts, gaps, rank) for rank in range(best)),
        parts=tuple(parts),
        alternatives=tuple(row for part in parts for row in part.alternatives),
        alignment=tuple(_join_links(parts, gaps)),
        confidence=min((part.confidence for part in parts if part.confidence is not None), default=None),
    )


def _join_links(parts: Sequence[Translation], gaps: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The links of all parts, counted on. Where a source was cut within a word, both parts count it."""
    if not any(part.alignment for part in parts):
        return  # nobody asked for them, and counting words takes its time
    before, written, last = 0, 0, ""
    for part, gap in zip(parts, gaps, strict=True):
        is_cut = bool(last and not gap and part.source)
        if is_cut and not is_east_asian(last[-1]) and not is_east_asian(part.source[0]):
            before -= 1
        yield from ((before + i, written + j) for i, j in part.alignment)
        before, written = before + count_words(part.source), written + count_words(part.text)
        last = part.source or last


def _join_candidates(parts: Sequence[Translation], gaps: Sequence[str], rank: int) -> Candidate:
    """The candidates of this rank of all parts as one; a part that has fewer gives its last."""
    some = [part.candidates[min(rank, len(part.candidates) - 1)] if part.candidates else None for part in parts]
    found = [candidate for candidate in some if candidate is not None]
    return Candidate(
        text=_join_texts([candidate.text if candidate else "" for candidate in some], gaps),
        score=sum(candidate.score for candidate in found) / len(found),
        log_probability=sum(candidate.log_probability for candidate in found),
        tokens=tuple(token for candidate in found for token in candidate.tokens),
    )


def _join_texts(texts: Sequence[str], gaps: Sequence[str]) -> str:
    pieces: list[str] = []
    for text, gap in zip(texts, gaps, strict=True):
        if text and pieces:
            pieces.append(_gap_between(pieces[-1], gap, text))
        if text:
            pieces.append(text)
    return "".join(pieces)


def _gap_between(left: str, gap: str, right: str) -> str:
    """The white space of the source, but for what the target's script wants otherwise: Chinese has no spaces."""
    if gap == " " and is_east_asian(left[-1]) and is_east_asian(right[0]):
        return ""
    if not gap and not (is_east_asian(left[-1]) or is_east_asian(right[0])):
        return " "
    return gap
