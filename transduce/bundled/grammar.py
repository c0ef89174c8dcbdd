"""A small grammar of German and English: one meaning, said in both languages.

A `Clause` is the meaning. German says it in one of three orders (verb second, verb first in a question, verb last
after weil/dass/wenn); English in one of two, with the tense that the German time adverb implies ("ich gehe morgen"
-> "i will go tomorrow"). Both languages are written in lower case, as in the notes' first example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from transduce.bundled import lexicon
from transduce.bundled.lexicon import Adjective, Noun, Phrase, Verb

SEIN = ("bin", "bist", "ist", "sind", "seid", "sind")
WAR = ("war", "warst", "war", "waren", "wart", "waren")
HABEN = ("habe", "hast", "hat", "haben", "habt", "haben")
BE = ("am", "are", "is", "are", "are", "are")
WAS = ("was", "were", "was", "were", "were", "were")

# endings of der/dieser and of ein/kein/mein by (case, gender or plural)
_DER = {
    "nominative": {"m": "der", "f": "die", "n": "das", "p": "die"},
    "accusative": {"m": "den", "f": "die", "n": "das", "p": "die"},
    "dative": {"m": "dem", "f": "der", "n": "dem", "p": "den"},
}
_EIN = {
    "nominative": {"m": "", "f": "e", "n": "", "p": "e"},
    "accusative": {"m": "en", "f": "e", "n": "", "p": "e"},
    "dative": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
_POSSESSIVES = (("mein", "my"), ("dein", "your"), ("sein", "his"), ("unser", "our"))


Combinations = frozenset[tuple[str, str]]  # words that say something together: (verb, object), (adjective, noun)


@dataclass(frozen=True)
class Subject:
    german: str
    english: str
    person: int  # 0..5: ich, du, er/sie, wir, ihr, sie


@dataclass(frozen=True)
class Thing:
    """A noun phrase in the accusative or dative."""

    german: str
    english: str
    definite: bool = True
    negative: bool = False  # kein: English negates the verb instead
    combinations: Combinations = frozenset()


@dataclass(frozen=True)
class Clause:
    """Who does what to whom, when, how and where."""

    subject: Subject
    verb: Verb
    tense: str  # progressive, simple, future, past
    thing: Thing | None = None
    receiver: Thing | None = None  # dative
    time: Phrase | None = None
    often: Phrase | None = None
    manner: Phrase | None = None
    place: Phrase | None = None
    modal: Phrase | None = None
    gladly: bool = False  # gern: "like to"
    negated: bool = False  # nicht
    time_first: bool = False
    combinations: Combinations = frozenset()


PRONOUNS = [
    Subject("ich", "i", 0),
    Subject("du", "you", 1),
    Subject("er", "he", 2),
    Subject("sie", "she", 2),
    Subject("wir", "we", 3),
    Subject("ihr", "you", 4),
    Subject("sie", "they", 5),
]


# ---- noun phrases ----------------------------------------------------------------------------------------------


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def adjective_ending(determiner: str, case: str, gender: str) -> str:
    """After der: weak; after ein, kein, mein: mixed; after a number or nothing: strong."""
    if determiner == "strong":
        return _DER[case][gender][-1:] if gender != "p" else {"dative": "en"}.get(case, "e")
    if case == "dative" or gender == "p" or (case == "accusative" and gender == "m"):
        return "en"
    if determiner == "mixed":
        return {"m": "er", "f": "e", "n": "es"}[gender]
    return "e"


def noun_phrase(rng: Random, noun: Noun, case: str, determiners: Sequence[str], describe: float = 0.35) -> Thing:
    """A noun with one of the `determiners` and perhaps an adjective."""
    if noun.mass:
        determiners = [d for d in determiners if d not in ("ein", "number", "plural")] + ["bare"] * (
            "ein" in determiners
        )
    determiner = rng.choice(determiners)
    number = "plural" if determiner in ("number", "plural", "kein plural") else "singular"
    gender = "p" if number == "plural" else noun.gender
    adjectives = () if determiner == "bare" else fitting_adjectives(noun)
    adjective = rng.choice(adjectives) if adjectives and rng.random() < describe else None
    english_noun = noun.english_plural if number == "plural" else noun.english
    english = f"{adjective.english} {english_noun}" if adjective else str(english_noun)
    weak = "mixed"
    if determiner in ("der", "plural"):
        german, english, weak = _DER[case][gender], f"the {english}", "weak"
    elif determiner == "ein":
        german, english = "ein" + _EIN[case][gender], f"{article(english)} {english}"
    elif determiner in ("kein", "kein plural"):
        german = "kein" + _EIN[case][gender]
        english = f"any {english}" if noun.mass or number == "plural" else f"{article(english)} {english}"
    elif determiner == "mein":
        own, owner = rng.choice(_POSSESSIVES)
        german, english = own + _EIN[case][gender], f"{owner} {english}"
    elif determiner == "number":
        count = rng.choice(lexicon.NUMBERS[:4] if case == "accusative" else lexicon.NUMBERS)
        german, english, weak = count.german, f"{count.english} {english}", "strong"
    else:  # bare: water, music
        german, weak = "", "strong"
    words = [german, adjective.form(adjective_ending(weak, case, gender)) if adjective else "", noun.form(case, number)]
    combinations = frozenset({(adjective.german, noun.german)} if adjective else ())
    return Thing(
        german=join(words),
        english=english,
        definite=determiner in ("der", "plural", "mein"),
        negative=determiner.startswith("kein"),
        combinations=combinations,
    )


@cache
def fitting_adjectives(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(a for a in lexicon.ADJECTIVES if a.kinds & noun.kinds)


# ---- German ----------------------------------------------------------------------------------------------------


def german(clause: Clause, order: str, question_word: str = "") -> str:
    """The clause with its finite verb `second`, `first` (question) or `last`."""
    c, person = clause, clause.subject.person
    if c.modal:
        finite, end = c.modal.german.split()[person], c.verb.prefix + c.verb.german
    elif c.tense == "past":
        finite, end = (SEIN if c.verb.auxiliary == "sein" else HABEN)[person], c.verb.participle
    else:
        finite, end = c.verb.present(person), c.verb.prefix
    time = c.time.german if c.time else ""
    before_not = [c.often and c.often.german, c.receiver and c.receiver.german, _german_thing(c, definite=True)]
    after_not = [
        c.gladly and "gern",
        c.manner and c.manner.german,
        _german_thing(c, definite=False),
        c.place and c.place.german,
    ]
    middle = [*before_not, c.negated and "nicht", *after_not]
    if order == "last":
        split = not c.modal and c.tense != "past"
        return join([c.subject.german, time, *middle, *([end + finite] if split else [end, finite])])
    if order == "first":
        return join([question_word, finite, c.subject.german, time, *middle, end])
    if c.time_first:
        return join([time, finite, c.subject.german, *middle, end])
    return join([c.subject.german, finite, time, *middle, end])


def _german_thing(clause: Clause, definite: bool) -> str:
    return clause.thing.german if clause.thing and clause.thing.definite == definite else ""


# ---- English ---------------------------------------------------------------------------------------------------


def english(clause: Clause, question: bool = False, question_word: str = "") -> str:
    """Subject, verb, objects, place, manner, time; a question puts the auxiliary first."""
    c = clause
    negative = c.negated or bool(c.thing and c.thing.negative)
    auxiliary, main = _english_verb(c, support=question or negative)
    negation = "not" if negative else ""
    if auxiliary == "can" and negative and not question:
        auxiliary, negation = "cannot", ""
    often = c.often.english if c.often else ""
    time = c.time.english if c.time else ""
    start = [question_word, auxiliary, c.subject.english] if question else [c.subject.english, auxiliary]
    rest = [
        c.receiver and c.receiver.english,
        c.thing and c.thing.english,
        c.place and c.place.english,
        c.manner and c.manner.english,
    ]
    if c.time_first:
        return join([time, *start, negation, often, main, *rest])
    return join([*start, negation, often, main, *rest, time])


def _english_verb(clause: Clause, support: bool) -> tuple[str, str]:
    """(auxiliary, main verb); `support`: a question or a negation, which need an auxiliary."""
    c, person = clause, clause.subject.person
    base = f"like to {c.verb.english}" if c.gladly else c.verb.english
    if c.modal and not c.modal.english.endswith("to"):
        return c.modal.english, base
    if c.modal:
        base = f"{c.modal.english} {base}"
    elif c.tense == "future":
        return "will", base
    elif c.tense == "past":
        return ("did", base) if support else ("", c.verb.past)
    elif c.tense == "progressive" and not c.verb.state and not c.gladly:
        return BE[person], c.verb.ing
    third = person == 2
    if support:
        return "does" if third else "do", base
    return "", third_person(base) if third else base


def third_person(verb: str) -> str:
    """he drinks, he watches tv, he has to, he tidies up."""
    first, _, rest = verb.partition(" ")
    if first == "have":
        first = "has"
    elif first.endswith(("ch", "sh", "s", "o")):
        first += "es"
    elif first.endswith("y") and first[-2] not in "aeiou":
        first = first[:-1] + "ies"
    else:
        first += "s"
    return join([first, rest])


def join(words: Sequence[object]) -> str:
    return " ".join(str(word) for word in words if word)
