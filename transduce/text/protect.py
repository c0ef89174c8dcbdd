"""What must not change passes through: addresses, numbers, markup and the like are hidden behind marks, which a model
moves to their places, and put back to the letter.

A mark is one character, which is one token: `see <b>12</b> files` is read as `see M1 M2 M3 files`. So that words
beside it stay the words a model knows, a mark never touches a word or another mark: where an item did, a space is put
in, and the item remembers its neighbour. Beside what stood beside it in the source it comes back with the same gap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from transduce.core.special import SPECIAL
from transduce.settings.pattern import Pattern
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise
from transduce.text.scripts import SPACED, WORD, is_unspaced

MARKS = "".join(map(chr, range(0x10FF00, 0x10FF10)))  # private characters: sixteen items of a sentence can be hidden
_MARK = re.compile(f"[{MARKS}]")
_DIRECTION = re.compile(r">>[^\s<>]+<<")  # what to translate into, which is no name
LOST = "\ufffd"  # stands for a mark that somebody typed, where no other is left to hide it
_ASCII = r"[!#-;=?-~]"  # what an address is made of: no space, no quote, no angle bracket
_MYRIADS = "[万萬亿億兆千百]"
_SCALED = (  # behind a Chinese or Japanese number that other languages write otherwise: 210万 is 2.1 million
    rf"{_MYRIADS}|[月点點折割]|时(?![代尚间])|時(?![代間])|世[纪紀]"  # 11月 November, 3点半 3:30, 8折 20 % off
)
_READ = rf"\s?(?:[~～〜到至]\s?\d[\d.,]{{0,15}}\s?)?(?:{_SCALED})"  # behind a number that the model has to read; 3～5万
PATTERNS = {  # in order: what begins first wins, then what stands first here
    "urls": rf"(?<![A-Za-z0-9])(?:https?://|ftp://|www\.){_ASCII}*[A-Za-z0-9/=&#%_~+-]",
    "emails": r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]++@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "tags": r"</?[A-Za-z][^<>]*>|&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,30});",
    "placeholders": (
        r"\{\{[^{}]*\}\}|[$%#]?\{[^{}\s]*\}|%\(\w+\)[-+0#]*\d*(?:\.\d+)?[A-Za-z]"
        r"|(?<![\d%])%(?:\d+\$)?[-+0#]*\d*(?:\.\d+)?[sdifgeuxXc@](?![A-Za-z])|\$[A-Za-z_]\w*"
    ),
    "numbers": (
        rf"(?<!{SPACED})(?<!{_MYRIADS})(?<!\d[.,])[-+−]?(?>\d+(?:[.,:/'’–-]\d+){{0,9}})(?!{SPACED}|{_READ})[%‰]?"
    ),
    "emoji": r"[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55][\U0001f000-\U0001faff\u2600-\u27bf\ufe0f\u200d\u20e3]*",
}
_WORD_CHARACTER = re.compile(f"[{WORD}]")
_HINT = re.compile(rf"[\d@<&{{%$/\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001faff{MARKS}]|www\.")  # an item has one
_WORD = "word"  # the neighbour of an item, if it is a letter or digit
_TOUCHING = re.compile(rf"(?<=[{MARKS}])(?=[{MARKS}]|{SPACED})|(?<={SPACED})(?=[{MARKS}])")
_NAME = re.compile(rf"(?<![{WORD}])(?:(?![\d_]){SPACED}){{2,}}+(?![{WORD}])")
NAMES = 0.05, 3  # the share of pairs in training in which names are hidden too, and how many of them at most
Span = tuple[int, int]  # where an item begins and ends
SPARED = 1  # place of what is spared among all that is looked for


class Side(NamedTuple):
    """What stood on one side of an item, and what between."""

    neighbour: str = ""  # a mark, a word, the character itself; nothing at the edge of a text
    gap: str = ""


class Item(NamedTuple):
    """What a mark stands for."""

    text: str
    left: Side
    right: Side


class Hidden(NamedTuple):
    """A normalised text as tokenizers read it, and what its marks stand for."""

    text: str
    items: Mapping[str, Item] | None = None  # None: there are no marks, and such a character is nothing but itself

    def restore(self, text: str) -> str:
        """A text with these marks, each once, with what they stand for; others are left out."""
        return normalise("".join(self._replaced(text))) if self._concerns(text) else text

    def restore_pieces(self, pieces: Sequence[str]) -> list[str]:
        """The same for a text in pieces, in which ▁ is a space."""
        text = "".join(pieces).replace("▁", " ")
        if not self._concerns(text):
            return list(pieces)
        letters = iter(letter.replace(" ", "▁") for letter in self._replaced(text))
        return ["".join(next(letters) for _ in piece) for piece in pieces]

    def name(self, piece: str) -> str:
        """A piece as a reader would print it; `<s>` as a tag, not as the special token."""
        item = (self.items or {}).get(piece.removeprefix("▁"))
        return piece if item is None else f"‹{item.text[1:-1]}›" if item.text in SPECIAL else item.text

    def _concerns(self, text: str) -> bool:
        return self.items is not None and has_marks(text)

    def _replaced(self, text: str) -> list[str]:
        """What each character becomes."""
        letters, left = list(text), dict(self.items or {})
        for place, mark in enumerate(text):
            if mark in MARKS:
                item = left.pop(mark, None)
                letters[place] = item.text if item else ""
                if item:
                    _set_gap(letters, text, place, -1, item.left)
                    _set_gap(letters, text, place, +1, item.right)
        return letters


def _set_gap(letters: list[str], text: str, place: int, step: int, source: Side) -> None:
    """The gap on one side of the item at a place: as in the source beside the same, one space beside another word or
    item, and else as it is written."""
    here = _side(text, place, step)
    if here.neighbour == source.neighbour:
        gap = source.gap
    elif here.neighbour in (_WORD, *MARKS):
        gap = " "
    else:
        return
    if here.gap:
        letters[place + step] = gap
    else:
        letters[place] = gap + letters[place] if step < 0 else letters[place] + gap


def _side(text: str, place: int, step: int) -> Side:
    """What stands on one side of a place."""
    gap = " " if _letter(text, place + step) == " " else ""
    beyond = _letter(text, place + step * (1 + len(gap)))
    if _WORD_CHARACTER.match(beyond):
        beyond = "unspaced" if is_unspaced(beyond) else _WORD
    return Side(beyond, gap)


def _letter(text: str, place: int) -> str:
    return text[place] if 0 <= place < len(text) else ""


class Protection:
    """What is hidden: items of some kinds, and what a pattern of the user's matches."""

    def __init__(
        self,
        settings: TextSettings,
        kept: Pattern | None = None,
        spared: Callable[[str], Iterable[Span]] | None = None,
    ) -> None:
        """`kept`: what is hidden before anything else; `spared`: gives what of the rest is never hidden."""
        kinds = [kind.strip() for kind in (settings.protect or "").split(",")]
        usual = "|".join(PATTERNS[kind] for kind in PATTERNS if kind in kinds)
        own = settings.protect_pattern
        chosen: list[re.Pattern[str] | Pattern] = [Pattern(own, "text.protect_pattern")] if own else []
        chosen += [re.compile(usual)] if usual else []
        # Marks that somebody typed come first: they must not be taken for ours.
        self._patterns = [_MARK, *chosen] if chosen else []
        self._only_usual = settings.protect_pattern is None and kept is None
        self._settings, self._spared = settings, spared
        self._kept = [kept] if kept is not None else []

    def with_wishes(self, kept: Pattern | None, spared: Callable[[str], Iterable[Span]] | None) -> Protection:
        """The same, with what a caller wants hidden too, and what not; what hides nothing stays so."""
        return Protection(self._settings, kept, spared)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def hide(self, text: str) -> Hidden:
        """A normalised text with marks in place of its items, as many as there are marks."""
        if not self:
            return Hidden(text)
        spans = sorted(self.spans(text)[: len(MARKS)])
        if not spans and not has_marks(text):  # as in most sentences
            return Hidden(text, {})
        return _hide(text, dict(zip(spans, MARKS, strict=False)))

    def hide_known(self, text: str, other: Hidden) -> str:
        """With the marks that another text has for the same items, each once."""
        given = [(mark, item.text) for mark, item in (other.items or {}).items()]
        return _hide(text, _assign(given, text, self.spans(text))).text if self else text

    def hide_pair(self, source: str, target: str, draw: Random | None = None) -> tuple[Hidden, Hidden]:
        """A text and its translation, with the same marks for what stands on both sides, and there as often. In
        training (`draw`) with any marks, so that all are learned, and in some pairs for names too."""
        if not self:
            return Hidden(source), Hidden(target)
        sides = [(text, self.spans(text)) for text in (source, target)]
        if draw is not None and draw.random() < NAMES[0]:
            sides = _with_names(sides, draw)
        counts = [Counter(text[begin:end] for begin, end in spans) for text, spans in sides]
        shared = [source[begin:end] for begin, end in sorted(sides[0][1])]
        shared = [item for item in shared if counts[0][item] == counts[1][item]]
        marks = MARKS if draw is None else draw.sample(MARKS, len(MARKS))
        given = list(zip(marks, shared, strict=False))
        hidden = [_hide(text, _assign(given, text, spans)) for text, spans in sides]
        return hidden[0], hidden[1]

    def spans(self, text: str) -> list[Span]:
        """Every item of a text: what is kept, marks that somebody typed, then the user's, then the usual ones."""
        found: list[Span] = []
        if not self or (self._only_usual and not _HINT.search(text)):
            return found  # which is soon seen
        taken = bytearray(len(text))
        for number, spans in enumerate(self._in_order(text)):
            for begin, end in spans:
                if begin < end and not any(taken[begin:end]):
                    taken[begin:end] = b"\1" * (end - begin)
                    found += [(begin, end)] if number != SPARED else []
        return found

    def _in_order(self, text: str) -> Iterator[Iterable[Span]]:
        """What is kept of a text, what is spared, and what each pattern matches."""
        yield (match.span() for pattern in self._kept for match in pattern.finditer(text))
        yield self._spared(text) if self._spared else ()
        yield from ((match.span() for match in pattern.finditer(text)) for pattern in self._patterns)

    def within(self, text: str) -> set[int]:
        """The places at which a text cannot be cut: within what is hidden, or looked for by a caller."""
        kept, spared, *_ = self._in_order(text)
        return {place for begin, end in [*kept, *spared, *self.spans(text)] for place in range(begin + 1, end)}


NOTHING = Protection(TextSettings())


def without_marks(text: str) -> str:
    """A text with spaces in their place."""
    return _MARK.sub(" ", text)


def _with_names(sides: list[tuple[str, list[Span]]], draw: Random) -> list[tuple[str, list[Span]]]:
    """The same with some words that stand once on each side."""
    words = []
    for text, spans in sides:
        rest = list(text)
        for begin, end in spans:
            rest[begin:end] = " " * (end - begin)
        found = [
            match.span() for match in _NAME.finditer("".join(rest)) if not _DIRECTION.match(text, match.start() - 2)
        ]
        often = Counter(text[begin:end] for begin, end in found)
        words.append({text[begin:end]: (begin, end) for begin, end in found if often[text[begin:end]] == 1})
    names = [word for word in words[0] if word in words[1]]
    chosen = draw.sample(names, min(len(names), NAMES[1]))
    return [
        (text, [*spans, *(mine[name] for name in chosen)]) for (text, spans), mine in zip(sides, words, strict=True)
    ]


def _assign(given: Iterable[tuple[str, str]], text: str, spans: Iterable[Span]) -> dict[Span, str]:
    """Marks for spans: the n-th of equal items gets the n-th mark that was given for it."""
    waiting: dict[str, list[str]] = {}
    for mark, item in given:
        waiting.setdefault(item, []).append(mark)
    found = ((span, waiting.get(text[slice(*span)])) for span in sorted(spans))
    return {span: marks.pop(0) for span, marks in found if marks}


def _hide(text: str, marks: Mapping[Span, str]) -> Hidden:
    """A text with marks for some spans, which stand in order."""
    pieces, place = [], 0
    for (begin, end), mark in marks.items():
        pieces += [_without_marks(text[place:begin]), mark]
        place = end
    glued = "".join([*pieces, _without_marks(text[place:])])
    items = {
        mark: Item(text[begin:end], _side(glued, glued.index(mark), -1), _side(glued, glued.index(mark), +1))
        for (begin, end), mark in marks.items()
    }
    return Hidden(_TOUCHING.sub(" ", glued), items)


def has_marks(text: str) -> bool:
    return _MARK.search(text) is not None


def _without_marks(text: str) -> str:
    return _MARK.sub(LOST, text)
