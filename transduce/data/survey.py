"""The first pass over a corpus: how many pairs, a hash of all their text, and on the way what a vocabulary learns from.

How many pairs there are, and so which are set aside, is only known at the end of it.
"""

from __future__ import annotations

import hashlib
import zlib
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

from transduce.core.special import MADE
from transduce.data.corpus import Corpus, Pair, Stretch, numbered, parts_of
from transduce.data.drawn import drawn
from transduce.errors import DataError
from transduce.report import SILENT, Report
from transduce.text.languages import is_typed_mark
from transduce.text.normalise import normalise

ENOUGH = 250_000  # pairs for a vocabulary, drawn; SentencePiece keeps its text in memory, about 1 kB a pair
SHOWN_EVERY = 10_000  # pairs between two looks at the progress
FEW_LABELS = 100  # up to so many need no second look
TAGGED = 100  # lines of a part that begin with one word, from which that is a tag and no chance
MOST_COPIES = 0.1  # of the pairs that training does without; a text that repeats itself more is left as it is


@dataclass(frozen=True)
class HoldOut:
    """Which pairs are set aside for validation: one drawn of every k, as lines may alternate; none where there is no k.
    Others with a source among those, `copies`, are in neither part; what a model has made is never set aside."""

    every: int | None = None
    copies: frozenset[int] = frozenset()  # their lines
    made: frozenset[int] = frozenset()  # likewise, of those that are drawn

    def takes(self, line: int) -> bool:
        if self.every is None:
            return False
        stretch = (line - 1) // self.every
        return line == self._drawn(stretch) and line not in self.made

    def leaves(self, line: int) -> bool:
        return not self.takes(line) and line not in self.copies

    def lines(self, pairs: int) -> list[int]:
        """Those of a text of so many pairs."""
        drawn = () if self.every is None else (self._drawn(stretch) for stretch in range(-(-pairs // self.every)))
        return [line for line in drawn if line <= pairs and line not in self.made]

    def _drawn(self, stretch: int) -> int:
        """The line of a stretch of k: a checksum falls anywhere in it, and in every run alike."""
        assert self.every is not None
        return stretch * self.every + 1 + zlib.crc32(b"%d" % stretch) % self.every


@dataclass
class Survey:
    """What one pass over a corpus tells."""

    pairs: int = 0
    digest: str = ""  # of the text
    digests: list[str] = field(default_factory=list)  # of the text up to the end of each of its parts
    sample: list[Pair] = field(default_factory=list)  # every pair, or of a large corpus some that are drawn
    labels: dict[str, int] = field(default_factory=dict)  # normalised, where targets are labels: label -> its number
    stretches: list[Stretch] = field(default_factory=list)  # of its parts
    label_of: array[int] = field(default_factory=lambda: array("i"))  # number of each pair's label
    source_of: array[int] = field(default_factory=lambda: array("q"))  # a hash of each pair's source
    marked: bytearray = field(default_factory=bytearray)  # of each pair, whether its source begins with MADE
    tags: list[str] = field(default_factory=list)  # of each part the word that all its sources begin with; "": none

    @cached_property
    def made(self) -> bytearray:
        """Of each pair, whether a model has made its source: it begins with our mark, or it is of a part that has a
        tag of its own, where other parts have none."""
        made, begin = self.marked[:], 0
        for stretch, tag in zip(self.stretches, self.tags, strict=True):
            if tag and not all(self.tags):
                made[begin : begin + stretch.lines] = b"\1" * stretch.lines
            begin += stretch.lines
        return made

    def hold_out(self, wanted: int) -> HoldOut:
        """About so many of the pairs that no model has made, never more than a twentieth."""
        return self.one_of(self.every(wanted))

    def every(self, wanted: int) -> int | None:
        """Of how many pairs one is set aside for that."""
        real = self.pairs - sum(self.made)
        wanted = min(wanted, real // 20)
        return -(-real // wanted) if wanted else None  # rounded up: no more than wanted are taken

    def one_of(self, every: int | None) -> HoldOut:
        """One of so many pairs, but for what a model has made; and training does without what has the same source."""
        held = HoldOut(every)
        if every is None:
            return held
        held = replace(held, made=frozenset(line for line in held.lines(self.pairs) if self.made[line - 1]))
        copies = self.copies_of(held)
        return replace(held, copies=copies if len(copies) <= MOST_COPIES * self.pairs else frozenset())

    def copies_of(self, hold_out: HoldOut) -> frozenset[int]:
        """Lines that are not set aside, with the source of a pair that is."""
        held = {self.source_of[line - 1] for line in hold_out.lines(self.pairs)}
        lines = enumerate(self.source_of, 1)
        return frozenset(line for line, source in lines if source in held and not hold_out.takes(line))

    def first(self, parts: int) -> Survey:
        """What a survey of the first parts alone would tell of pairs and what is set aside."""
        stretches = self.stretches[:parts]
        pairs = sum(stretch.lines for stretch in stretches)
        sources, marked, tags = self.source_of[:pairs], self.marked[:pairs], self.tags[:parts]
        digest = self.digests[parts - 1]
        return Survey(pairs, digest, stretches=stretches, source_of=sources, marked=marked, tags=tags)

    def as_told(self) -> Iterator[Survey]:
        """This one; and where parts have tags, the same as versions told it that did not look for any."""
        yield self
        if any(self.tags):
            yield replace(self, tags=[""] * len(self.tags))

    def labels_left_by(self, hold_out: HoldOut) -> list[str]:
        """The labels of the pairs that are not set aside."""
        used = {number for line, number in enumerate(self.label_of, 1) if hold_out.leaves(line)}
        return [label for label, number in self.labels.items() if number in used]


def survey(corpus: Corpus, sample: bool = False, labels: bool = False, report: Report = SILENT) -> Survey:
    """Read all of a corpus once, which also finds whatever cannot be read or paired."""
    result, digest, share, draw = Survey(), hashlib.sha256(), 1.0, Random(1)
    parts = parts_of(corpus)
    lines, firsts = [0] * len(parts), [set[str]() for _ in parts]
    with report.progress(f"read {corpus.name}") as progress:
        for place, pair in numbered(parts):
            while len(result.digests) < place:
                result.digests.append(digest.hexdigest())
            result.pairs += 1
            lines[place] += 1
            source, target = pair.source, pair.target
            result.source_of.append(hash(source.strip()))
            result.marked.append(source.startswith(MADE))
            if len(firsts[place]) < 2:
                firsts[place].update(source.split(None, 1)[:1])
            digest.update(f"{len(source)} {len(target)} {source}{target}".encode("utf-8", "surrogatepass"))
            if labels:
                label = normalise(target)
                result.label_of.append(result.labels.setdefault(label, len(result.labels)))
            if sample and draw.random() < share:
                result.sample.append(pair)
            if len(result.sample) > ENOUGH:
                result.sample, share = list(drawn(result.sample, ENOUGH // 2)), share / 2
            if result.pairs % SHOWN_EVERY == 0:
                progress.update(result.pairs, lines=f"{result.pairs:,}")
    if result.pairs == 0:
        raise DataError(f"there are no sentence pairs in {corpus.name}")
    result.digest = digest.hexdigest()
    result.digests += [result.digest] * (len(parts) - len(result.digests))
    result.tags = ["" if labels else _tag(some, count) for some, count in zip(firsts, lines, strict=True)]
    result.stretches = [Stretch(part.name, count) for part, count in zip(parts, lines, strict=True)]
    return result


def _tag(firsts: set[str], lines: int) -> str:
    """The only word that so many sources begin with, where it is neither chance nor the mark of a language."""
    only = next(iter(firsts), "") if len(firsts) == 1 else ""
    return only if lines >= TAGGED and not is_typed_mark(only) else ""


def refuse_sentences(labels: Collection[str], texts: int) -> None:
    """Labels that are sentences: the columns, or the files, are the wrong way round."""
    spaced = sum(" " in label for label in labels)
    if len(labels) > max(FEW_LABELS, texts / 2) and spaced > len(labels) / 2:
        raise DataError(
            f"{len(labels):,} different labels for {texts:,} texts, most of several words: are text and label the "
            f"wrong way round? --columns 2 1 takes a .tsv whose labels stand first"
        )
