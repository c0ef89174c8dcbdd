"""Translation memories (.tmx): XML, of which one unit at a time is in memory.

Read by Python's own expat, without a tree: so nothing outside the file is ever opened, entities that a file declares
(which can unfold to terabytes) are refused where they are declared, and UTF-16, which many memories are in, is known.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO
from xml.parsers import expat

from transduce.data.corpus import Pair
from transduce.data.lines import LONGEST_LINE, open_bytes
from transduce.data.one_file import Two
from transduce.errors import DataError

PIECE = 1 << 16  # bytes that are parsed in one go
CODES = {"bpt", "ept", "it", "ph", "ut"}  # elements inside a segment whose text is formatting, not language
Unit = dict[str, str]  # language -> text


@dataclass(frozen=True)
class TranslationMemory:
    """The units of a .tmx; one without text in a language has an empty side."""

    path: str
    languages: Two | None = None  # source and target; none: the two that the file has

    @property
    def name(self) -> str:
        return self.path

    def __iter__(self) -> Iterator[Pair]:
        seen: dict[str, None] = {}  # languages in the order they come
        found: set[str] = set()  # sides that had text
        with open_bytes(self.path) as stream:
            for number, unit in enumerate(_units(stream, self.path), 1):
                seen.update(dict.fromkeys(unit))
                source, target = self.languages or self._both(seen)
                pair = Pair(_text(unit, source), _text(unit, target), number)
                found.update(side for side, text in (("source", pair.source), ("target", pair.target)) if text)
                yield pair
        if self.languages is not None and len(found) < 2 and seen:
            raise DataError(f"{self.path} has no text in {self._missing(found)}; it has {', '.join(seen)}")

    def sides(self) -> Two:
        """The languages of source and target; those that are not said, as the first units have them."""
        seen: dict[str, None] = {}
        if self.languages is None:
            with open_bytes(self.path) as stream:
                for unit in _units(stream, self.path):
                    seen.update(dict.fromkeys(unit))
                    if len(seen) > 1:
                        break
        return self.languages or self._both(seen)

    def _both(self, seen: dict[str, None]) -> Two:
        if len(seen) > 2:
            two = " ".join([*seen][:2])
            raise DataError(f"{self.path} has the languages {', '.join(seen)}; choose two, such as --languages {two}")
        first, second = [*seen, "", ""][:2]
        return first, second

    def _missing(self, found: set[str]) -> str:
        sides = zip(("source", "target"), self.languages or (), strict=True)
        return " and ".join(language for side, language in sides if side not in found)


def _text(unit: Unit, language: str) -> str:
    """That of a language: de is also de-AT."""
    wanted = _code(language)
    return next((text for code, text in unit.items() if code == wanted or code.startswith(f"{wanted}-")), "")


def _code(language: str) -> str:
    return language.strip().lower().replace("_", "-")


def _units(stream: BinaryIO, name: str) -> Iterator[Unit]:
    reader = _Reader()
    fed, last = 0, False
    while not last:
        piece = stream.read(PIECE)
        fed, last = fed + len(piece), not piece
        try:
            reader.parser.Parse(piece, last)
            if fed - reader.parser.CurrentByteIndex > LONGEST_LINE:
                raise ValueError(f"a tag is longer than {LONGEST_LINE:,} bytes")
        except (expat.ExpatError, ValueError, LookupError) as error:
            line = reader.parser.CurrentLineNumber
            raise DataError(f"{name}, line {line:,}: this is no .tmx file that can be read: {error}") from error
        except OSError as error:
            raise DataError(f"cannot read {name}: {error.strerror}") from error
        yield from reader.units
        reader.units = []


class _Reader:
    """What expat tells, put together to units."""

    def __init__(self) -> None:
        self.units: list[Unit] = []  # finished
        self._unit: Unit = {}
        self._language = ""
        self._open: list[str] = []  # elements
        self._pieces: list[str] | None = None  # of the segment that is being read
        self._size = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._refuse
        self.parser.SkippedEntityHandler = self._entity

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "tmx":
            raise ValueError(f"it begins with <{name}>, not <tmx>")
        if len(self._open) > 100:
            raise ValueError("elements are nested too deeply")
        self._open.append(name)
        if name == "tu":
            self._unit = {}
        elif name == "tuv":
            self._language = _code(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg":
            self._pieces, self._size = [], 0

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "seg":
            self._unit.setdefault(self._language, "".join(self._pieces or ()))
            self._pieces = None
        elif name == "tu":
            self.units.append(self._unit)

    def _characters(self, text: str) -> None:
        if self._pieces is None or not CODES.isdisjoint(self._open):
            return
        self._size += len(text)
        if self._size > LONGEST_LINE:
            raise ValueError(f"a segment is longer than {LONGEST_LINE:,} characters")
        self._pieces.append(text)

    def _entity(self, name: str, is_parameter: bool) -> None:
        """One that only the file's DTD knows, which is not read: those of HTML are meant."""
        if not is_parameter:
            self._characters(html.unescape(f"&{name};"))

    def _refuse(self, name: str, *_: object) -> None:
        raise ValueError(f"it declares an entity ({name[:50]}), which is not safe to read")
