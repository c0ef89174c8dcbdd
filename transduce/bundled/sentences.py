"""What gets said in the bundled corpus: random meanings, and the forms of sentence they come in."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import NamedTuple

from transduce.bundled import lexicon
from transduce.bundled.grammar import (
    BE,
    PRONOUNS,
    SEIN,
    WAR,
    WAS,
    Clause,
    Combinations,
    Subject,
    english,
    fitting_adjectives,
    german,
    join,
    noun_phrase,
    third_person,
)
from transduce.bundled.lexicon import Noun, Verb


class Sentence(NamedTuple):
    """A sentence and its translation, with the word combinations it is built from."""

    source: str
    target: str
    combinations: Combinations = frozenset()


@cache
def _nouns(*kinds: str) -> tuple[Noun, ...]:
    return tuple(n for n in lexicon.NOUNS if n.kinds & set(kinds))


def subject(rng: Random, kind: str = "person") -> tuple[Subject, Combinations]:
    """Mostly a pronoun, otherwise a person."""
    if rng.random() < 0.6:
        return rng.choice(PRONOUNS), frozenset()
    noun = rng.choice(_nouns(kind))
    number = rng.choice(["mein"] if "family" in noun.kinds else ["der", "der", "plural"])
    thing = noun_phrase(rng, noun, "nominative", [number], describe=0.2)
    return Subject(thing.german, thing.english, 5 if number == "plural" else 2), thing.combinations


def clause(rng: Random) -> Clause:
    """A random meaning."""
    who, described = subject(rng)
    verb, parts = _verb_and_objects(rng)
    tense = rng.choice(["progressive", "progressive", "future", "simple", "past"])
    if verb.event:
        tense = "past"  # one has lost a key; one is not losing it
    elif verb.state and tense == "future":
        tense = "progressive"
    when = rng.choice([t for t in lexicon.TIMES if tense in t.kinds])
    # German present says progressive, future and simple alike: only the adverb tells them apart.
    keep_time = tense in ("future", "simple") or (rng.random() < 0.5 and not (verb.state and tense != "past"))
    c = replace(parts, subject=who, tense=tense, combinations=parts.combinations | described)
    roll = rng.random()
    if tense == "simple" and roll < 0.4 and not (c.thing and c.thing.negative):
        return replace(c, often=rng.choice(lexicon.FREQUENCIES))
    if tense in ("progressive", "future") and roll < 0.3:
        tense_free = replace(c, tense="progressive", modal=rng.choice(lexicon.MODALS))
        return _negate(
            rng, replace(tense_free, time=when if rng.random() < 0.4 else None, time_first=rng.random() < 0.3)
        )
    if tense == "progressive" and roll < 0.4 and not verb.state and not (c.thing and c.thing.negative):
        return replace(c, gladly=True)
    c = replace(c, time=when if keep_time else None)
    return _negate(rng, replace(c, time_first=bool(c.time) and rng.random() < 0.35))


def _negate(rng: Random, c: Clause) -> Clause:
    """Sometimes nicht; an indefinite thing is negated by kein instead, which noun_phrase has done."""
    can = c.thing is None or c.thing.definite
    return replace(c, negated=True) if can and rng.random() < 0.15 else c


def _verb_and_objects(rng: Random) -> tuple[Verb, Clause]:
    nobody = PRONOUNS[0]
    roll = rng.random()
    if roll < 0.55:
        verb = rng.choice(lexicon.TRANSITIVE)
        noun = rng.choice(_nouns(*verb.kinds))
        thing = noun_phrase(rng, noun, "accusative", _object_determiners(noun))
        combinations = thing.combinations | {(verb.prefix + verb.german, noun.german)}
        return verb, Clause(nobody, verb, "", thing=thing, combinations=frozenset(combinations))
    if roll < 0.65:
        verb = rng.choice(lexicon.GIVING)
        noun = rng.choice([n for n in _nouns(*verb.kinds) if not n.mass])
        thing = noun_phrase(rng, noun, "accusative", ["ein", "ein", "number"])
        to = rng.choice(_nouns("person"))
        receiver = noun_phrase(rng, to, "dative", ["mein"] if "family" in to.kinds else ["der"], describe=0.15)
        combinations = thing.combinations | receiver.combinations | {(verb.german, noun.german)}
        return verb, Clause(nobody, verb, "", thing=thing, receiver=receiver, combinations=frozenset(combinations))
    verb = rng.choice(lexicon.INTRANSITIVE)
    (kind,) = verb.kinds
    c = Clause(nobody, verb, "")
    if kind != "none" and rng.random() < 0.75:
        places = [p for p in lexicon.PLACES if kind in p.kinds]
        if verb.german in ("wohnen", "kaufen"):
            places = [p for p in places if p.german in ("in der stadt", "in berlin")]
        c = replace(c, place=rng.choice(places))
    if kind != "none" and rng.random() < 0.35 and verb.german != "wohnen":
        riding = verb.german in ("fahren", "kommen")  # one does not walk by bus
        fitting = [m for m in lexicon.MANNERS if kind in m.kinds and (riding or "mit dem" not in m.german)]
        c = replace(c, manner=rng.choice(fitting))
    return verb, c


def _object_determiners(noun: Noun) -> list[str]:
    if "family" in noun.kinds:
        return ["mein"]
    if "person" in noun.kinds:
        return ["der", "plural"]  # meine frau is my wife, not my woman
    return ["der", "ein", "mein", "kein", "plural" if noun.kinds & {"room", "opening"} else "number"]


def statement(rng: Random) -> Sentence:
    c = clause(rng)
    return Sentence(german(c, "second"), english(c), c.combinations)


def question(rng: Random) -> Sentence:
    c = replace(clause(rng), time_first=False)
    ask, asked = rng.choice([("", ""), ("", ""), ("warum", "why")])
    return Sentence(german(c, "first", ask) + "?", english(c, True, asked) + "?", c.combinations)


def open_question(rng: Random) -> Sentence:
    """Was trinkst du? Wen besuchst du? Wann kommst du?"""
    c = replace(clause(rng), time_first=False, negated=False, often=None)
    if c.time is None and c.tense != "past":
        c = replace(c, tense="progressive")
    if c.thing is None:
        c = replace(c, time=None, tense="past" if c.tense == "past" else "progressive")
        return Sentence(german(c, "first", "wann") + "?", english(c, True, "when") + "?", c.combinations)
    person = bool({"person"} & c.verb.kinds) and "thing" not in c.verb.kinds and "taught" not in c.verb.kinds
    c = replace(c, thing=None, combinations=frozenset())
    ask, asked = ("wen", "who") if person else ("was", "what")
    return Sentence(german(c, "first", ask) + "?", english(c, True, asked) + "?", c.combinations)


def because(rng: Random) -> Sentence:
    """Main clause, weil + verb at the end."""
    main = replace(clause(rng), time_first=False)
    if rng.random() < 0.5:
        feeling = rng.choice(lexicon.FEELINGS)
        who = main.subject if main.subject in PRONOUNS else rng.choice(PRONOUNS)
        past = main.tense == "past"
        reason = f"{who.german} {feeling.german} {(WAR if past else SEIN)[who.person]}"
        explained = f"{who.english} {(WAS if past else BE)[who.person]} {feeling.english}"
        used = main.combinations
    else:
        other = replace(clause(rng), time_first=False)
        reason, explained, used = german(other, "last"), english(other), main.combinations | other.combinations
    return Sentence(f"{german(main, 'second')}, weil {reason}", f"{english(main)} because {explained}", used)


_EVERYDAY = {"trinken", "bestellen", "essen", "kochen", "lesen", "hören", "singen", "besuchen", "rufen", "treffen"}
_EVERYDAY |= {"schlafen", "tanzen", "bleiben", "gehen", "fahren", "schwimmen", "sehen", "arbeiten", "laufen"}


def whenever(rng: Random) -> Sentence:
    """Wenn + verb at the end, then the main clause with its verb first."""
    feeling, who = rng.choice(lexicon.FEELINGS), rng.choice(PRONOUNS)
    main = clause(rng)
    while main.modal or main.verb.german not in _EVERYDAY or main.negated or (main.thing and main.thing.negative):
        main = clause(rng)
    main = replace(main, tense="simple", time=None, often=None, time_first=False, gladly=False)
    if rng.random() < 0.7:
        main = replace(main, subject=who)
    source = f"wenn {who.german} {feeling.german} {SEIN[who.person]}, {german(main, 'first')}"
    return Sentence(
        source, f"when {who.english} {BE[who.person]} {feeling.english}, {english(main)}", main.combinations
    )


def thinking(rng: Random) -> Sentence:
    """Ich glaube, dass + verb at the end."""
    who, verb = rng.choice(PRONOUNS), rng.choice(lexicon.THINKING)
    other = replace(clause(rng), time_first=False)
    base, third = verb.english.split("/")
    source = f"{who.german} {verb.german.split()[who.person]}, dass {german(other, 'last')}"
    return Sentence(
        source, f"{who.english} {third if who.person == 2 else base} that {english(other)}", other.combinations
    )


def being(rng: Random) -> Sentence:
    """Ich bin müde. Gestern war er krank. Meine schwester ist zwölf jahre alt."""
    if rng.random() < 0.3:
        who, used = subject(rng, "young")
        count = rng.choice(lexicon.NUMBERS)
        source = f"{who.german} {SEIN[who.person]} {count.german} jahre alt"
        return Sentence(source, f"{who.english} {BE[who.person]} {count.english} years old", used)
    who, used = subject(rng)
    feeling = rng.choice(lexicon.FEELINGS)
    times = [t for t in lexicon.TIMES if t.kinds & {"progressive", "past"}]
    time = rng.choice(times) if rng.random() < 0.5 else None
    past = bool(time and "past" in time.kinds)
    negated, asked = rng.random() < 0.25, rng.random() < 0.25
    be_german, be_english = (WAR if past else SEIN)[who.person], (WAS if past else BE)[who.person]
    rest = [time and time.german, negated and "nicht", feeling.german]
    english_rest = [negated and "not", feeling.english, time and time.english]
    if asked:
        source = join([be_german, who.german, *rest]) + "?"
        return Sentence(source, join([be_english, who.english, *english_rest]) + "?", used)
    return Sentence(join([who.german, be_german, *rest]), join([who.english, be_english, *english_rest]), used)


def describing(rng: Random) -> Sentence:
    """Das bier ist kalt. Die häuser sind nicht alt. Das ist ein kleiner hund."""
    noun = rng.choice([n for n in lexicon.NOUNS if fitting_adjectives(n)])
    if rng.random() < 0.4 and not noun.mass:
        own = ["ein"] if noun.kinds & {"person"} - {"family"} else ["ein", "mein"]
        thing = noun_phrase(rng, noun, "nominative", own, describe=0.8)
        return Sentence(f"das ist {thing.german}", f"that is {thing.english}", thing.combinations)
    adjective = rng.choice(fitting_adjectives(noun))
    several = rng.random() < 0.4 and not noun.mass
    one = "mein" if "family" in noun.kinds else "der"
    thing = noun_phrase(rng, noun, "nominative", ["plural"] if several else [one], describe=0.0)
    person, negated = (5 if several else 2), rng.random() < 0.2
    colour = adjective.german in ("rot", "blau", "grün", "schwarz", "weiß")
    extra = "nicht" if negated else "" if colour else rng.choice(["", "", "sehr", "zu"])
    more = {"": "", "sehr": "very", "zu": "too", "nicht": "not"}[extra]
    source = join([thing.german, SEIN[person], extra, adjective.german])
    return Sentence(
        source,
        join([thing.english, BE[person], more, adjective.english]),
        frozenset({(adjective.german, noun.german)}),
    )


def existing(rng: Random) -> Sentence:
    """Es gibt zwei alte häuser in der stadt."""
    noun = rng.choice([n for n in _nouns("thing", "building", "animal", "person") if not n.mass])
    thing = noun_phrase(rng, noun, "accusative", ["ein", "number", "number", "kein plural"], describe=0.5)
    place = rng.choice([p for p in lexicon.PLACES if "where" in p.kinds])
    plural = not thing.english.startswith(("a ", "an "))
    verb = "there are" if plural else "there is"
    english_thing = thing.english.replace("any ", "no ", 1) if thing.negative else thing.english
    return Sentence(
        f"es gibt {thing.german} {place.german}", f"{verb} {english_thing} {place.english}", thing.combinations
    )


def wanting(rng: Random) -> Sentence:
    """Ich möchte ein bier. Möchtest du einen kalten saft?"""
    who, used = subject(rng)
    noun = rng.choice(_nouns("drink", "food", "thing", "clothes", "animal"))
    thing = noun_phrase(rng, noun, "accusative", ["ein", "ein", "number", "kein"])
    want = lexicon.MODALS[rng.choice([0, 0, 1])]
    combinations = used | thing.combinations
    finite, third = want.german.split()[who.person], who.person == 2
    if rng.random() < 0.3:
        source = f"{finite} {who.german} {thing.german}?"
        not_ = "not " if thing.negative else ""
        return Sentence(source, f"{'does' if third else 'do'} {who.english} {not_}want {thing.english}?", combinations)
    do_not_want = f"{'does' if third else 'do'} not want"
    verb = do_not_want if thing.negative else third_person("want") if third else "want"
    return Sentence(f"{who.german} {finite} {thing.german}", f"{who.english} {verb} {thing.english}", combinations)


FORMS = [statement] * 8 + [question] * 3 + [open_question] + [because] * 2 + [whenever, thinking, thinking]
FORMS += [being, describing, existing, wanting, wanting]


def sentence(rng: Random) -> Sentence:
    """One random sentence pair of 2 to 20 words a side."""
    while True:
        pair = rng.choice(FORMS)(rng)
        if 2 <= len(pair.source.split()) <= 20 and len(pair.target.split()) <= 20:
            return pair
