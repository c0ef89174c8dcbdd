"""What became of a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from transduce.text.sentences import is_unspaced


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
    output reached its limit before it ended; `unmet`, a term that was asked for is missing; `failed`, the model gave
    no number. Of a line with several sentences it is the gravest of them.
    """

    source: str
    text: str
    status: str
    candidates: tuple[Candidate, ...]
    parts: tuple[Translation, ...] = ()  # its sentences, where it has several
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()  # of each token, with probabilities, where asked for

    @property
    def score(self) -> float:
        return self.candidates[0].score if self.candidates else 0.0


GRAVITY = ("failed", "truncated", "unmet", "length", "long", "ok", "empty")


class TargetScore(NamedTuple):
    """How probable a given target is. status: `ok`; `truncated`, the source was cut; `too long`, no score (nan);
    `failed`, the model gave no number (nan)."""

    log_probability: float
    tokens: int  # END counted
    status: str


def join(line: str, parts: Sequence[Translation], gaps: Sequence[str]) -> Translation:
    """One translation from those of a line's parts; `gaps`: the white space before each."""
    text = ""
    for part, gap in zip(parts, gaps, strict=True):
        text = _put_together(text, gap, part.text) if part.text else text
    found = [part.candidates[0] for part in parts if part.candidates]
    total = sum(candidate.log_probability for candidate in found)
    score = sum(candidate.score for candidate in found) / max(1, len(found))
    tokens = tuple(token for candidate in found for token in candidate.tokens)
    return Translation(
        source=line,
        text=text,
        status=min((part.status for part in parts), key=GRAVITY.index),
        candidates=(Candidate(text, score, total, tokens),) if found else (),
        parts=tuple(parts),
        alternatives=tuple(row for part in parts for row in part.alternatives),
    )


def _put_together(left: str, gap: str, right: str) -> str:
    """The white space of the source, but for what the target's script wants otherwise: Chinese has no spaces."""
    if not left:
        return right
    if gap == " " and is_unspaced(left[-1]) and is_unspaced(right[0]):
        gap = ""
    elif not gap and not (is_unspaced(left[-1]) or is_unspaced(right[0])):
        gap = " "
    return left + gap + right
