"""Which words of a bundled pair say the same: the lexicon and the grammar know.

Sure links join a word with its translation: noun with noun, verb with verb, a determiner with that of the same noun.
Possible links join what else is said together: `bin ... gegangen` with `went`, `es gibt` with `there is`, the words of
a phrase that has another number of words in English.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import NamedTuple

from transduce.bundled import lexicon
from transduce.bundled.grammar import BE, PRONOUNS, SEIN, WAR, WAS, third_person

Pairs = frozenset[tuple[int, int]]  # (German word, English word)
SMALL_WORDS = {
    "nicht": "not cannot", "weil": "because", "wenn": "when", "warum": "why", "wann": "when", "was": "what",
    "wen": "who", "sehr": "very", "zu": "too", "jahre": "years", "alt": "old", "gern": "like", "dass": "that",
}  # fmt: skip
DETERMINERS = {"d": "the", "ein": "a an", "kein": "a an any no", "mein": "my", "dein": "your", "sein": "his"}
DETERMINERS |= {"unser": "our"}


class TrueLinks(NamedTuple):
    """Word links of a pair, counted from 0."""

    sure: Pairs
    possible: Pairs  # the sure ones among them


def true_links(source: str, target: str) -> TrueLinks:
    """Clause by clause: each pair of clauses says one thing."""
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    german, english = source.split(), target.split()
    for ours, theirs in zip(_clauses(german, ","), _clauses(english, "because that"), strict=True):
        words, others = ([side[i].strip(",?") for i in span] for side, span in ((german, ours), (english, theirs)))
        links, together = _phrases(words, others), _whole_phrases(words, others)
        links |= {(i, j) for i, j in _by_lexicon(words, others) if not _is_taken(links | together, i, j)}
        links |= _determiners(words, others, links)
        german_loose, english_loose = (
            set(range(len(side))) - {link[n] for link in links | together} | _verb_words(side)
            for n, side in enumerate((words, others))
        )
        near = {(i, j) for i in german_loose for j in english_loose}
        sure |= {(ours[i], theirs[j]) for i, j in links}
        possible |= {(ours[i], theirs[j]) for i, j in links | near | together}
    return TrueLinks(frozenset(sure), frozenset(possible | sure))


def _clauses(words: list[str], ends: str) -> list[list[int]]:
    """German clauses end at a comma; English ones there, or before `because` and `that`."""
    spans: list[list[int]] = [[]]
    for i, word in enumerate(words):
        if i and ends != "," and word in ends.split():
            spans.append([])
        spans[-1].append(i)
        if word.endswith(","):
            spans.append([])
    return spans


def _is_taken(links: set[tuple[int, int]], i: int, j: int) -> bool:
    return any(i == a or j == b for a, b in links)


@cache
def _lexicon() -> dict[str, set[str]]:
    """The English words that a German form can be."""
    found: dict[str, set[str]] = defaultdict(set)
    for noun in lexicon.NOUNS:
        for number, english in (("singular", noun.english), ("plural", noun.english_plural)):
            if english and (number == "singular" or noun.plural):
                for case in ("nominative", "accusative", "dative"):
                    found[noun.form(case, number)] |= set(english.split())
    for adjective in lexicon.ADJECTIVES:
        for ending in ("", "e", "en", "er", "es", "em"):
            found[adjective.form(ending)].add(adjective.english)
            found[adjective.german + ending].add(adjective.english)
    for verb in (*lexicon.TRANSITIVE, *lexicon.GIVING, *lexicon.INTRANSITIVE):
        forms = {verb.participle, verb.prefix + verb.german}
        forms |= {prefix + verb.present(person) for person in range(6) for prefix in ("", verb.prefix)}
        said = (verb.english, third_person(verb.english), verb.past, verb.ing)
        for form in forms:
            found[form] |= {words.split()[0] for words in said}
    for pronoun in PRONOUNS:
        found[pronoun.german].add(pronoun.english)
    for phrases in (lexicon.FREQUENCIES, lexicon.FEELINGS, lexicon.NUMBERS):
        for phrase in phrases:
            found[phrase.german].add(phrase.english)
    for modal in lexicon.MODALS:
        for form in modal.german.split():
            first = modal.english.split()[0]
            found[form] |= {first, third_person(first), *(["cannot"] if first == "can" else [])}
    for thinking in lexicon.THINKING:
        for form in thinking.german.split():
            found[form] |= set(thinking.english.split("/"))
    for person in range(6):
        found[SEIN[person]].add(BE[person])
        found[WAR[person]].add(WAS[person])
    for german, words in SMALL_WORDS.items():
        found[german] |= set(words.split())
    return found


def _by_lexicon(words: list[str], others: list[str]) -> set[tuple[int, int]]:
    """Words and their translations; of several the one nearest in the order."""
    known, links = _lexicon(), set()
    taken: set[int] = set()
    for i, word in enumerate(words):
        found = [j for j, other in enumerate(others) if other in known.get(word, ()) and j not in taken]
        if found:
            j = min(found, key=lambda j: abs(j / len(others) - i / len(words)))
            taken.add(j)
            links.add((i, j))
    return links


def _phrases(words: list[str], others: list[str]) -> set[tuple[int, int]]:
    """Word by word, where a phrase has as many words in both languages; else (`im park`, `in the park`) the first and
    the last ones."""
    links: set[tuple[int, int]] = set()
    for i, j, phrase in _found_phrases(words, others):
        german, english = phrase.german.split(), phrase.english.split()
        if len(german) == len(english):
            links |= {(i + k, j + k) for k in range(len(german))}
        elif len(german) > 1 and len(english) > 1:
            links |= {(i, j), (i + len(german) - 1, j + len(english) - 1)}
    return links


def _whole_phrases(words: list[str], others: list[str]) -> set[tuple[int, int]]:
    """Every word of a phrase with every word of its translation."""
    return {
        (i + k, j + n)
        for i, j, phrase in _found_phrases(words, others)
        for k in range(len(phrase.german.split()))
        for n in range(len(phrase.english.split()))
    }


def _found_phrases(words: list[str], others: list[str]) -> list[tuple[int, int, lexicon.Phrase]]:
    """Where a time, a place or a manner stands in both."""
    found: list[tuple[int, int, lexicon.Phrase]] = []
    used: set[int] = set()
    phrases = [*lexicon.TIMES, *lexicon.PLACES, *lexicon.MANNERS]
    for phrase in sorted(phrases, key=lambda phrase: -len(phrase.german.split())):
        i, j = _find(words, phrase.german.split()), _find(others, phrase.english.split())
        span = set() if i is None else set(range(i, i + len(phrase.german.split())))
        if i is not None and j is not None and not span & used:
            used |= span
            found.append((i, j, phrase))
    return found


def _find(words: list[str], part: list[str]) -> int | None:
    return next((i for i in range(len(words) - len(part) + 1) if words[i : i + len(part)] == part), None)


def _determiners(words: list[str], others: list[str], links: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """`den kalten saft`, `the cold juice`: a determiner belongs to the next word that is linked, on both sides."""
    found = set()
    for i, word in enumerate(words):
        stem = next((s for s in ("kein", "mein", "dein", "sein", "unser", "ein", "d") if word.startswith(s)), None)
        if stem is None or any(a == i for a, _ in links) or (stem == "d" and len(word) != 3):
            continue
        after = [j for a, j in links if a == i + 1]
        for j in after:
            if j and others[j - 1] in DETERMINERS[stem].split() and not any(b == j - 1 for _, b in links):
                found.add((i, j - 1))
    return found


def _verb_words(words: list[str]) -> set[int]:
    """Auxiliaries, which say little by themselves."""
    small = {*SEIN, *WAR, *BE, *WAS, "habe", "hast", "hat", "haben", "habt", "do", "does", "did", "will", "to", "not"}
    return {i for i, word in enumerate(words) if word in small}
