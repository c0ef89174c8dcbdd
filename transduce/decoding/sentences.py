"""From lines to the sentences that are translated one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from transduce.text.case import is_shouted
from transduce.text.normalise import normalise
from transduce.text.protect import NOTHING, Hidden, Protection
from transduce.text.sentences import halve, split_sentences
from transduce.text.special import UNKNOWN
from transduce.text.tokenizers import Tokenizer

PIECE = 64  # tokens of a sentence that has to be cut: models have seen few that are longer


class Sentence(NamedTuple):
    """What is translated by itself: a line, a sentence of it, or a piece of one that is too long."""

    line: int
    gap: str  # white space between the one before and this
    text: str
    hidden: Hidden  # the same, normalised, as the tokenizer reads it
    source: list[int]  # its tokens
    whole: bool = True  # nothing of it was left out
    long: bool = False  # it is a piece
    shouted: bool = False  # it is all capitals, and its tokens are those of the same in small letters


def sentences_of(
    lines: Sequence[str], tokenizer: Tokenizer, longest: int, split: bool, protection: Protection = NOTHING
) -> list[Sentence]:
    """Of all lines, in order. `split`: lines into their sentences, and these into pieces where they have more than
    `longest` tokens; otherwise a line is a sentence, and what is too long of it is left out."""
    parts = [(i, *part) for i, line in enumerate(lines) for part in _parts(line, split, protection)]
    found: list[Sentence] = []
    for sentence in _read(parts, tokenizer, protection):
        if len(sentence.source) <= longest:
            found.append(sentence)
        elif split:
            found += _pieces(sentence, tokenizer, longest, protection)
        else:
            found.append(sentence._replace(source=sentence.source[:longest], whole=False))
    return found


def _read(parts: Sequence[tuple[int, str, str]], tokenizer: Tokenizer, protection: Protection) -> list[Sentence]:
    """Texts, with their lines and gaps, in tokens."""
    hidden = [protection.hide(normalise(text)) for _, _, text in parts]
    encoded = tokenizer.encode([each.text for each in hidden])
    read = [Sentence(*part, each, ids) for part, each, ids in zip(parts, hidden, encoded, strict=True)]
    return [_calmed(sentence, tokenizer) if is_shouted(sentence.hidden.text) else sentence for sentence in read]


def _calmed(sentence: Sentence, tokenizer: Tokenizer) -> Sentence:
    """A SENTENCE IN CAPITALS in the letters that the vocabulary knows it in: those that take fewer tokens, unknown ones
    first of all."""
    calm = _usual_case(sentence.hidden.text.split(" "), tokenizer)
    ids = tokenizer.encode([calm])[0]
    if (ids.count(UNKNOWN), len(ids)) >= (sentence.source.count(UNKNOWN), len(sentence.source)):
        return sentence
    return sentence._replace(hidden=sentence.hidden._replace(text=calm), source=ids, shouted=True)


def _usual_case(words: list[str], tokenizer: Tokenizer) -> str:
    """Each word in the form that the vocabulary knows best: fewest tokens, then tokens that were learned earlier and so
    are more frequent. A sentence begins with a capital, if the vocabulary has any."""
    forms = [_forms(word) for word in words]
    ids = iter(tokenizer.encode([form for some in forms for form in some]))
    known = [[(ids_.count(UNKNOWN), len(ids_), ids_) for ids_ in islice(ids, len(some))] for some in forms]
    chosen = [some[keys.index(min(keys))] for some, keys in zip(forms, known, strict=True)]
    capital = chosen[0][:1].upper() + chosen[0][1:]
    first = chosen[0] if UNKNOWN in tokenizer.encode([capital])[0] else capital
    return " ".join([first, *chosen[1:]])


def _forms(word: str) -> list[str]:
    """What a word in capitals may have been: small letters, or a capital before them (in German a noun); and SS may
    have been ß."""
    small = [word.lower()]
    small += [small[0].replace("ss", "ß")] if "ss" in small[0] else []
    return [form for one in small for form in (one, one.capitalize())]


def _parts(line: str, split: bool, protection: Protection) -> Iterator[tuple[str, str]]:
    """The sentences of a line, each with the white space before it."""
    sentences = split_sentences(line, protection.within(line)) if split else [line]
    if len(sentences) <= 1:
        yield "", line
        return
    gap = ""
    for sentence in sentences:
        text = sentence.strip()
        before = sentence[: len(sentence) - len(sentence.lstrip())]
        yield gap + before, text
        gap = sentence[len(sentence.rstrip()) :] if text else gap + sentence


def _pieces(sentence: Sentence, tokenizer: Tokenizer, longest: int, protection: Protection) -> list[Sentence]:
    """A sentence that is too long, halved until every piece is one that a model can be good at."""
    line, gap, text, _, ids, *_ = sentence
    if len(ids) <= min(longest, PIECE) or len(text) < 2:
        return [sentence._replace(source=ids[:longest], whole=len(ids) <= longest, long=True)]
    left, right = halve(text, protection.within(text))
    between = left[len(left.rstrip()) :]
    parts = [(line, gap, left.strip()), (line, between, right.strip())]
    return [
        piece for part in _read(parts, tokenizer, protection) for piece in _pieces(part, tokenizer, longest, protection)
    ]
