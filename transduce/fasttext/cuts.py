"""How a line is cut into words: at white space, by characters, or into subwords that the text itself has taught."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from transduce.errors import ModelError, SettingsError
from transduce.files.reading import VOCABULARY, read_bytes
from transduce.settings.sections import TextSettings, VectorSettings
from transduce.text.normalise import normalise
from transduce.text.scripts import EAST_ASIAN
from transduce.text.subwords import SubwordTokenizer

TOKENIZER = "tokenizer.model"  # in a model folder, where subwords are learned
SUBWORDS = ("bpe", "unigram")
MOST_LINES = 500_000  # drawn from the text, that subwords are learned from
_CHARACTER = re.compile(f"([{EAST_ASIAN}])")
Cut = Callable[[str], list[str]]


def cut_words(line: str) -> list[str]:
    """At the white space of ASCII, as fastText does: a word may hold any other character."""
    return [word.decode() for word in line.encode().replace(b"\0", b" ").split()]


def cut_characters(line: str) -> list[str]:
    """Chinese and Japanese characters one by one, other text by words."""
    return cut_words(_CHARACTER.sub(r" \1 ", line))


class CutSubwords:
    """Subwords of a vocabulary; ▁ stands for the space before one."""

    def __init__(self, tokenizer: SubwordTokenizer) -> None:
        self.tokenizer = tokenizer

    def __call__(self, line: str) -> list[str]:
        return self.tokenizer.cut(normalise(line))


def learn_cut(s: VectorSettings, lines: Iterable[str]) -> Cut:
    """The cut that settings ask for; `lines` are only read where there is something to learn."""
    if s.tokens not in SUBWORDS:
        return cut_words if s.tokens == "words" else cut_characters
    text = TextSettings(tokenizer=s.tokens, vocabulary=s.pieces)
    try:
        return CutSubwords(SubwordTokenizer.train((normalise(line) for line in _some(lines, s.seed)), text))
    except SettingsError as error:  # in the words of the section text, of which nothing is set here
        problem = str(error).partition(", or lower text.coverage")[0]
        raise SettingsError(problem.replace("text.vocabulary", "vectors.pieces")) from error


def kept_cut(s: VectorSettings, folder: Path) -> Cut:
    """The cut of a model or a run in a folder."""
    if s.tokens not in SUBWORDS:
        return learn_cut(s, ())
    try:
        return CutSubwords(SubwordTokenizer(read_bytes(folder / TOKENIZER, VOCABULARY)))
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"{folder / TOKENIZER} is missing or damaged; copy the folder again or train anew") from error


def cut_files(cut: Cut) -> dict[str, bytes]:
    """What a folder has to hold for `kept_cut`."""
    return {TOKENIZER: cut.tokenizer.to_bytes()} if isinstance(cut, CutSubwords) else {}


def _some(lines: Iterable[str], seed: int) -> list[str]:
    """At most MOST_LINES of them, each as probable as any other, in memory that does not grow."""
    draw, kept = random.Random(seed), []
    for number, line in enumerate(lines):
        if number < MOST_LINES:
            kept.append(line)
        elif (place := draw.randrange(number + 1)) < MOST_LINES:
            kept[place] = line
    return kept
