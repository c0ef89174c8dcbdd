"""What is wrong with parallel text, before it costs a day.

One pass notes a few numbers for each pair (28 bytes, whatever the text's length); everything that needs the whole
corpus (duplicates, leaks, unusual lengths, sides that slipped against each other) is then found in those numbers, and a
second pass fetches samples. Text is judged as it was written, before any normalisation.
"""

from __future__ import annotations

import html
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from ftfy.badness import is_bad

from transduce.data.corpus import Corpus, Stretch, parts_of
from transduce.data.exchanged import in_other_language, words
from transduce.data.raw import Raw, raw_sides, side_names
from transduce.text.scripts import SCRIPTS as ALPHABETS
from transduce.text.scripts import is_unspaced

# What one pair alone can have, as bits; then what only shows beside others. The order is that of the report.
ALONE = (
    *("entities", "markup", "empty", "identical", "not UTF-8"),
    *("encoding damage", "control characters", "numbers differ", "too long"),
)
AMONG = ("other script", "other language", "length ratio", "duplicate", "leak", "misaligned")
FAULTS = {
    "entities": "characters written as in HTML, such as &quot;",
    "markup": "tags as of HTML, such as <b>",
    "empty": "a side has no text",
    "identical": "both sides are the same",
    "not UTF-8": "bytes that are not valid UTF-8",
    "encoding damage": "text that was decoded wrongly (Ã¤ for ä), or has lost characters (�)",
    "control characters": "invisible characters other than tab",
    "numbers differ": "digits on both sides, but not the same numbers",
    "too long": "a side of more than 1,000 characters",
    "other script": "mostly letters of another script than the side usually has",
    "other language": "a side has the words of the other side's language: exchanged, or not translated",
    "length ratio": "one side far longer than usual against the other",
    "duplicate": "the pair stood there before",
    "leak": "the pair, or its source, is also in the validation or test text",
    "misaligned": "lines whose lengths fit the other side better when shifted",
}
LONG = 1000  # characters
SAMPLES = 3  # of each fault
BLOCK = 48  # lines of which it can be told whether they match
EAST = "Chinese or Japanese"  # which a single line does not always tell
SCRIPTS = {name: letters for name, letters in ALPHABETS.items() if name not in ("Chinese", "Japanese")}
SCRIPTS[EAST] = ALPHABETS["Japanese"] + ALPHABETS["Chinese"]
_SCRIPTS = [re.compile(f"[{letters}]") for letters in SCRIPTS.values()]
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\u200b\u2028\u2029\ufeff]")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]{0,80}>")
_ENTITY = re.compile(r"&(?:[a-zA-Z][a-zA-Z0-9]{1,30}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")
_NUMBER = re.compile(r"\d+")
_THOUSANDS = re.compile(r"(?<=\d)[.,' \u00a0\u202f](?=\d{3}(?!\d))")  # 3,000 and 3.000 are 3000


class Noted(NamedTuple):
    """What one pass keeps of each pair."""

    flags: np.ndarray  # bits of ALONE
    lengths: np.ndarray  # (pairs, 2) characters
    scripts: np.ndarray  # (pairs, 2) place in SCRIPTS from 1; 0: no letters
    pairs: np.ndarray  # hashes
    sources: np.ndarray


@dataclass
class Diagnosis:
    """What was found: for every fault the line numbers, counted from 1."""

    lines: tuple[int, int]  # of both sides
    sides: list[tuple[int, int]]  # the same for each part
    characters: tuple[int, int]
    scripts: tuple[str, str]  # the usual ones
    lengths: np.ndarray  # (pairs, 2)
    faults: dict[str, np.ndarray]
    samples: dict[int, tuple[str, str]] = field(default_factory=dict)
    coverage: dict[str, float] = field(default_factory=dict)  # share of held-out words that training text has
    unspaced: dict[str, bool] = field(default_factory=dict)  # whether those words are characters

    def stretches(self, corpus: Corpus) -> list[Stretch]:
        """How many pairs each part has."""
        return [Stretch(part.name, min(sides)) for part, sides in zip(parts_of(corpus), self.sides, strict=True)]


def examine(corpus: Corpus, held_out: Sequence[Corpus] = ()) -> Diagnosis:
    """A corpus, against others that must have nothing in common with it."""
    asked = [_count_words(other) for other in held_out]
    noted, known, sides = _note(corpus, [set().union(*side) for side in zip(*asked, strict=True)])
    faults = {name: noted.flags & (1 << i) != 0 for i, name in enumerate(ALONE)}
    usual = [_usual_script(noted.scripts[:, side]) for side in (0, 1)]
    faults["other script"] = ((noted.scripts != usual) & (noted.scripts > 0)).any(1)
    faults["other language"] = in_other_language(Raw(corpus)) & ~faults["identical"] & ~faults["not UTF-8"]
    faults["length ratio"] = _unusual_ratio(noted.lengths)
    faults["duplicate"] = _seen_before(noted.pairs) & ~faults["empty"]
    faults["leak"] = np.zeros(len(noted.flags), bool)
    faults["misaligned"] = _misaligned(noted.lengths, sides)
    coverage, unspaced = {}, {}
    for text, counts in zip(held_out, asked, strict=True):
        other, _, _ = _note(text)
        faults["leak"] |= (np.isin(noted.pairs, other.pairs) | np.isin(noted.sources, other.sources)) & ~faults["empty"]
        for name, counted, there in zip(side_names(text), counts, known, strict=True):
            coverage[name] = sum(n for word, n in counted.items() if word in there) / max(1, counted.total())
            unspaced[name] = is_unspaced("".join(word for word, _ in counted.most_common(SAMPLES)))
    lines_of = {name: np.flatnonzero(faults[name]) + 1 for name in FAULTS}
    names = ["none", *SCRIPTS]
    diagnosis = Diagnosis(
        lines=(sum(left for left, _ in sides), sum(right for _, right in sides)),
        sides=sides,
        characters=tuple(noted.lengths.sum(0).tolist()),
        scripts=(names[usual[0]], names[usual[1]]),
        lengths=noted.lengths,
        faults=lines_of,
        coverage=coverage,
        unspaced=unspaced,
    )
    wanted = {int(line) for lines in lines_of.values() for line in lines[:SAMPLES]}
    diagnosis.samples = {pair.line: (pair.source, pair.target) for pair in Raw(corpus) if pair.line in wanted}
    return diagnosis


def _count_words(corpus: Corpus) -> tuple[Counter[str], Counter[str]]:
    source, target = Counter[str](), Counter[str]()
    for pair in Raw(corpus):
        source.update(words(pair.source))
        target.update(words(pair.target))
    return source, target


def _note(corpus: Corpus, asked: Iterable[set[str]] = ()) -> tuple[Noted, list[set[str]], list[tuple[int, int]]]:
    """Also which of the words `asked` for, a set a side, are there; and the lines of both sides, part by part."""
    flags, lengths, scripts, pairs, sources = array("H"), array("i"), array("B"), array("q"), array("q")
    asked = list(asked)
    known: list[set[str]] = [set() for _ in asked]
    parts = parts_of(corpus)
    counts = [[0, 0] for _ in parts]
    for place, (left, right) in ((place, sides) for place, part in enumerate(parts) for sides in raw_sides(part)):
        counts[place][0] += left is not None
        counts[place][1] += right is not None
        if left is None or right is None:
            continue  # the sides do not match in number, which is said by their counts
        left, right = left.strip(), right.strip()
        flags.append(_flags(left, right))
        lengths.extend((len(left), len(right)))
        scripts.extend((_script(left), _script(right)))
        pairs.append(hash((left, right)))
        sources.append(hash(left))
        for there, wanted, side in zip(known, asked, (left, right), strict=False):
            there.update(wanted.intersection(words(side)))
    noted = Noted(
        np.frombuffer(flags, np.uint16),
        np.frombuffer(lengths, np.int32).reshape(-1, 2),
        np.frombuffer(scripts, np.uint8).reshape(-1, 2),
        np.frombuffer(pairs, np.int64),
        np.frombuffer(sources, np.int64),
    )
    return noted, known, [(left, right) for left, right in counts]


def _flags(source: str, target: str) -> int:
    """The faults that this pair shows by itself. Bytes that are no text have no others."""
    both = f"{source}\n{target}"
    plain = both.isascii()
    if not plain and not _is_utf8(both):
        return 1 << ALONE.index("not UTF-8")
    shown = {
        "entities": _has_entities(both),
        "markup": _MARKUP.search(both),
        "empty": not source or not target,
        "identical": source == target and source,
        "encoding damage": not plain and ("\ufffd" in both or is_bad(both)),
        "control characters": _CONTROL.search(source) or _CONTROL.search(target),
        "numbers differ": _numbers_differ(source, target),
        "too long": max(len(source), len(target)) > LONG,
    }
    return sum(1 << ALONE.index(name) for name, found in shown.items() if found)


def _has_entities(text: str) -> bool:
    """Those that HTML knows; R&D; is none."""
    return "&" in text and any(html.unescape(found) != found for found in _ENTITY.findall(text))


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _numbers_differ(source: str, target: str) -> bool:
    if not (_NUMBER.search(source) and _NUMBER.search(target)):
        return False  # written out on one side, perhaps
    left, right = (sorted(_NUMBER.findall(_THOUSANDS.sub("", text))) for text in (source, target))
    return left != right


def _script(text: str) -> int:
    """The script of most letters: its place in SCRIPTS from 1; 0 where there are none, or no text."""
    if not _is_utf8(text):
        return 0
    if text.isascii():
        return int(any(c.isalpha() for c in text))
    counts = [len(script.findall(text)) for script in _SCRIPTS]
    return counts.index(max(counts)) + 1 if any(counts) else 0


def _usual_script(scripts: np.ndarray) -> int:
    counts = np.bincount(scripts[scripts > 0], minlength=1)
    return int(counts.argmax()) if len(scripts) else 0


def _unusual_ratio(lengths: np.ndarray) -> np.ndarray:
    """Far from the median of log(target / source), measured by the usual distance from it; short ones may vary more."""
    if not len(lengths):
        return np.zeros(0, bool)
    real = (lengths > 0).all(1)
    ratio = np.log((lengths[:, 1] + 5.0) / (lengths[:, 0] + 5.0))  # + 5: "ja" and "yes indeed" are not far apart
    middle = np.median(ratio[real]) if real.any() else 0.0
    usual = np.median(np.abs(ratio[real] - middle)) if real.any() else 0.0
    return real & (np.abs(ratio - middle) > max(8 * usual, 1.0))


def _seen_before(hashes: np.ndarray) -> np.ndarray:
    """All but the first of equal ones."""
    _, first = np.unique(hashes, return_index=True)
    again = np.ones(len(hashes), bool)
    again[first] = False
    return again


def _misaligned(lengths: np.ndarray, sides: list[tuple[int, int]]) -> np.ndarray:
    """Lines that slipped against the other side, and a block of lines before and behind them, since only blocks can be
    told apart. Where a side has fewer lines, nothing matches again behind the one that is missing."""
    real = (lengths > 0).all(1)  # an empty side fits nowhere, and is a fault of its own
    slipped = np.zeros(len(lengths), bool)
    slipped[real] = _slipped(lengths[real])
    begin = 0
    for left, right in sides:
        part = slipped[begin : begin + min(left, right)]  # a view
        found = np.flatnonzero(part)
        for line in found.tolist():
            part[max(0, line - BLOCK // 2) : line + BLOCK // 2] = True
        if len(found) and left != right:
            part[found[0] :] = True
        begin += len(part)
    return slipped


def _slipped(lengths: np.ndarray, block: int = BLOCK, furthest: int = 3) -> np.ndarray:
    """Blocks of lines where source and target lengths agree much better a few lines apart than side by side."""
    slipped = np.zeros(len(lengths), bool)
    logs = np.log(lengths + 1.0)
    for begin in range(furthest, len(lengths) - block - furthest, block // 2):
        here = logs[begin : begin + block, 0]
        fits = {
            shift: _correlation(here, logs[begin + shift : begin + shift + block, 1])
            for shift in range(-furthest, furthest + 1)
        }
        best = max(fits, key=fits.__getitem__)
        if best != 0 and fits[best] > 0.6 and fits[best] > fits[0] + 0.4:
            slipped[begin : begin + block] = True
    return slipped


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum() + 1e-12))


def clean(corpus: Corpus, pairs: int, faults: dict[str, np.ndarray]) -> Iterator[tuple[int, str, str, list[str]]]:
    """Every line with the reasons to leave it out of a copy: (line, source, target, reasons)."""
    has = {name: np.zeros(pairs + 1, bool) for name in faults}
    for name, lines in faults.items():
        has[name][lines] = True
    for left, right, number in Raw(corpus):
        reasons = [name for name, where in has.items() if where[number]]
        left, right = (left, right) if reasons else (unescaped(left), unescaped(right))
        yield number, left, right, reasons


def unescaped(text: str) -> str:
    """With the characters that entities stand for."""
    return " ".join(html.unescape(text).splitlines()) if _has_entities(text) else text
