"""From lines to the sentences that are translated one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from transduce.core.special import END, UNKNOWN
from transduce.decoding.trust import Usual
from transduce.text.case import is_shouted
from transduce.text.languages import typed_marks
from transduce.text.normalise import normalise
from transduce.text.protect import NOTHING, Hidden, Protection
from transduce.text.sentences import halve, split_sentences
from transduce.text.tokenizers import Tokenizer

CAPITALS = "A E I N R S T"  # a vocabulary that has these has capitals
PIECE = 64  # tokens of a sentence that has to be cut: models have seen few that are longer


class Part(NamedTuple):
    """A part of a line: where it stands, the white space before it, and what is read before it."""

    line: int
    gap: str
    text: str
    mark: str = ""


class Sentence(NamedTuple):
    """What is translated by itself: a line, a sentence of it, or a piece of one that is too long."""

    line: int
    gap: str  # white space between the one before and this
    text: str
    hidden: Hidden  # the same, normalised, as the tokenizer reads it
    source: list[int]  # its tokens
    asked: str  # the same in which a glossary's words are looked for: as typed, but of CAPITALS in calm letters
    typed: str  # and in which --keep is: as typed, but for marks
    whole: bool = True  # nothing of it was left out
    long: bool = False  # it is a piece
    small: bool = False  # it, or what it is a piece of, is all in small letters
    shouted: bool = False  # it is all capitals, and its tokens are those of the same in small letters
    mark: str = ""  # such as >>fra<<, of OPUS-MT's models with many target languages: typed before the line, read here


def sentences_of(
    lines: Sequence[str],
    tokenizer: Tokenizer,
    longest: int,
    split: bool,
    protection: Protection = NOTHING,
    usual: Usual | None = None,
) -> list[Sentence]:
    """The sentences of all lines, in order. `split`: lines into their sentences, and these into pieces where they have
    more than `longest` tokens; otherwise a line is a sentence, and what is too long of it is left out. `usual`: what
    the text that was learned is like."""
    parts = [Part(i, *part) for i, line in enumerate(lines) for part in _parts(line, split, tokenizer, protection)]
    found: list[Sentence] = []
    for sentence in _read(parts, tokenizer, protection, usual):
        if len(sentence.source) <= longest:
            found.append(sentence)
        elif split:
            found += _pieces(sentence, tokenizer, longest, protection, usual)
        else:
            found.append(sentence._replace(source=shortened(sentence.source, longest), whole=False))
    return found


def _read(parts: Sequence[Part], tokenizer: Tokenizer, protection: Protection, usual: Usual | None) -> list[Sentence]:
    """Parts of lines in tokens."""
    hidden = [protection.hide(normalise(f"{part.mark} {part.text}" if part.mark else part.text)) for part in parts]
    read = in_learned_letters([each.text for each in hidden], tokenizer, usual)
    return [
        Sentence(
            part.line,
            part.gap,
            part.text,
            each._replace(text=letters.text),
            letters.ids,
            letters.text if letters.shouted else each.text,
            each.text,
            small=each.text.islower(),
            shouted=letters.shouted,
            mark=part.mark,
        )
        for part, each, letters in zip(parts, hidden, read, strict=True)
    ]


class Letters(NamedTuple):
    """A text in the letters that the model has learned, and its tokens."""

    text: str
    ids: list[int]
    shouted: bool = False  # it was all capitals


def in_learned_letters(texts: Sequence[str], tokenizer: Tokenizer, usual: Usual | None) -> list[Letters]:
    """TEXTS IN CAPITALS, and texts in small letters, as the model has learned their words; others as they are."""
    read = [Letters(text, ids) for text, ids in zip(texts, tokenizer.encode(texts), strict=True)]
    has_capitals = UNKNOWN not in tokenizer.encode([CAPITALS])[0]
    for number, typed in enumerate(read):
        if is_shouted(typed.text):
            read[number] = _calmed(typed, tokenizer, usual)
        elif usual is not None and has_capitals and typed.text.islower():
            read[number] = _with_capitals(typed, tokenizer, usual)
    return read


def _calmed(typed: Letters, tokenizer: Tokenizer, usual: Usual | None) -> Letters:
    """A SENTENCE IN CAPITALS in the letters that the model has learned it in, if it takes fewer tokens so, unknown ones
    first of all."""
    words = typed.text.split(" ")
    if usual is None:
        calm = _known_case(words, tokenizer)
    else:
        calm = _usual_case([[*_forms(word), word] for word in words], tokenizer, usual)
    ids = tokenizer.encode([calm])[0]
    if (ids.count(UNKNOWN), len(ids)) >= (typed.ids.count(UNKNOWN), len(typed.ids)):
        return typed
    return Letters(calm, ids, shouted=True)


def _with_capitals(typed: Letters, tokenizer: Tokenizer, usual: Usual) -> Letters:
    """a sentence in small letters, as many people type, with the capitals that the model has learned it with."""
    text = _usual_case([[word, word.capitalize()] for word in typed.text.split(" ")], tokenizer, usual)
    return Letters(text, tokenizer.encode([text])[0])


def _usual_case(forms: list[list[str]], tokenizer: Tokenizer, usual: Usual) -> str:
    """The forms of all words that are least surprising one behind the other: in German `SIE` is `Sie` behind
    `haben` and `sie` behind `dass`. What has more unknown tokens than another form of the same word is none. Viterbi:
    the best way to each form of a word goes through the best to one before it."""
    spelled = [_known_forms(*one) for one in _spelled([list(dict.fromkeys(some)) for some in forms], tokenizer)]
    lasts = [[END], *([ids[-1] for ids in tokens] for _, tokens in spelled)]
    pairs = [pair for last, (_, tokens) in zip(lasts, spelled, strict=False) for ids in tokens
             for pair in (*((one, ids[0]) for one in last), *pairwise(ids))]  # fmt: skip
    surprise = iter(usual.surprise(*np.array(pairs).T)[0].tolist())
    ways: list[Way] = [Way(0.0, "", None)]
    for some, tokens in spelled:
        steps = []
        for form, ids in zip(some, tokens, strict=True):
            cost, best = min((way.surprise + next(surprise), i) for i, way in enumerate(ways))
            steps.append(Way(cost + sum(islice(surprise, len(ids) - 1)), form, ways[best]))
        ways = steps
    return " ".join(min(ways, key=lambda way: way.surprise).forms())


def _known_forms(forms: list[str], tokens: list[list[int]]) -> tuple[list[str], list[list[int]]]:
    fewest = min(ids.count(UNKNOWN) for ids in tokens)
    kept = [i for i, ids in enumerate(tokens) if ids.count(UNKNOWN) == fewest]
    return [forms[i] for i in kept], [tokens[i] for i in kept]


class Way(NamedTuple):
    """Forms of words up to one of them."""

    surprise: float
    form: str
    before: Way | None

    def forms(self) -> list[str]:
        way, found = self, []
        while way.before is not None:
            found.append(way.form)
            way = way.before
        return found[::-1]


def _known_case(words: list[str], tokenizer: Tokenizer) -> str:
    """Without knowing what is usual: each word in the form that the vocabulary knows best, with fewest tokens, then
    with tokens that were learned earlier and so are more frequent. A sentence begins with a capital, if the vocabulary
    has any."""
    chosen = []
    for some, tokens in _spelled(list(map(_forms, words)), tokenizer):
        keys = [(ids.count(UNKNOWN), len(ids), ids) for ids in tokens]
        chosen.append(some[keys.index(min(keys))])
    capital = chosen[0][:1].upper() + chosen[0][1:]
    first = chosen[0] if UNKNOWN in tokenizer.encode([capital])[0] else capital
    return " ".join([first, *chosen[1:]])


def _spelled(forms: list[list[str]], tokenizer: Tokenizer) -> Iterator[tuple[list[str], list[list[int]]]]:
    """The forms of each word, with the tokens of each."""
    begin = len(tokenizer.begin)
    encoded = iter(tokenizer.encode([form for some in forms for form in some]))
    for some in forms:
        yield some, [ids[begin:] or [UNKNOWN] for ids in islice(encoded, len(some))]


def _forms(word: str) -> list[str]:
    """What a word in capitals may have been: small letters, or a capital before them (in German a noun); and SS may
    have been ß."""
    small = [word.lower()]
    small += [small[0].replace("ss", "ß")] if "ss" in small[0] else []
    return [form for one in small for form in (one, one.capitalize())]


def _mark_of(text: str, tokenizer: Tokenizer) -> str:
    """The mark of a target language that a text begins with, if the vocabulary has it."""
    text = text.lstrip()
    if not text.startswith(">>"):
        return ""
    return next((mark for mark in typed_marks(tokenizer) if text.startswith(mark)), "")


def has_strange_mark(text: str, tokenizer: Tokenizer) -> bool:
    """Whether a text begins with what looks like a mark of a language that the model does not know, in a model of
    several: it would then write whichever language comes."""
    return text.lstrip().startswith(">>") and not _mark_of(text, tokenizer) and bool(typed_marks(tokenizer))


def _parts(line: str, split: bool, tokenizer: Tokenizer, protection: Protection) -> Iterator[tuple[str, str, str]]:
    """The sentences of a line, each with the white space before it, and with the mark that the line begins with."""
    sentences = split_sentences(line, protection.within(line)) if split else [line]
    if len(sentences) <= 1:
        yield "", line, ""
        return
    gap, mark = "", ""
    for sentence in sentences:
        text = sentence.strip()
        before = sentence[: len(sentence) - len(sentence.lstrip())]
        yield gap + before, text, mark if text else ""
        mark = mark or _mark_of(line, tokenizer)
        gap = sentence[len(sentence.rstrip()) :] if text else gap + sentence


def shortened(ids: list[int], longest: int) -> list[int]:
    """The first tokens of a source that is too long; where it ends with END and the mark of a language, those too."""
    ending = ids[-2:] if ids[-2:-1] == [END] else []
    return [*ids[: longest - len(ending)], *ending] if len(ids) > longest else ids


def _pieces(
    sentence: Sentence, tokenizer: Tokenizer, longest: int, protection: Protection, usual: Usual | None
) -> list[Sentence]:
    """A sentence that is too long, halved until every piece is one that a model can be good at."""
    ids, limit = sentence.source, min(longest, PIECE)
    whole = Part(sentence.line, sentence.gap, sentence.text, sentence.mark)
    parts = _halves(whole, tokenizer, protection) if len(ids) > limit else [whole]
    if len(parts) == 1:
        return [sentence._replace(source=shortened(ids, longest), whole=len(ids) <= longest, long=True)]
    for _ in range((len(ids) // limit).bit_length() - 3):  # not read while they are far too long, about twice as long
        parts = [half for part in parts for half in _halves(part, tokenizer, protection)]
    read = [part._replace(small=sentence.small) for part in _read(parts, tokenizer, protection, usual)]
    return [piece for part in read for piece in _pieces(part, tokenizer, longest, protection, usual)]


def _halves(part: Part, tokenizer: Tokenizer, protection: Protection) -> list[Part]:
    """Two parts of one; or itself, where there is nothing to cut."""
    typed = _mark_of(part.text, tokenizer)
    rest = part.text.lstrip()[len(typed) :].lstrip()
    if len(rest) < 2:
        return [part]
    left, right = halve(rest, protection.within(rest))
    between = left[len(left.rstrip()) :]
    first = f"{typed} {left.strip()}" if typed else left.strip()
    return [Part(part.line, part.gap, first, part.mark), Part(part.line, between, right.strip(), part.mark or typed)]
