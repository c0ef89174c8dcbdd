"""Terms that must occur in a translation, as token sequences, and how far a hypothesis has written them.

A term has alternatives (inflected forms), of which one is enough. It is written in one go: a token that does not
continue it begins it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Term(NamedTuple):
    """One thing that must be said, in one of several ways."""

    alternatives: tuple[tuple[int, ...], ...]
    whole_words: bool = True  # what follows it begins a new word

    @property
    def shortest(self) -> int:
        return min(map(len, self.alternatives))

    def tokens(self) -> set[int]:
        return {token for alternative in self.alternatives for token in alternative}


class Begun(NamedTuple):
    """A point inside an alternative: so many of its tokens are the last ones written."""

    term: int
    alternative: int
    tokens: int


class Written(NamedTuple):
    """Which terms a hypothesis has, and which it may be about to have."""

    met: frozenset[int] = frozenset()
    begun: frozenset[Begun] = frozenset()
    at_word_end: bool = False  # a term has just been completed: the next token must begin a word

    def advance(self, token: int, terms: Sequence[Term]) -> Written:
        """After one more token."""
        places = set()
        for i, term in enumerate(terms):
            for j, alternative in enumerate(term.alternatives):
                reached = [place.tokens for place in self.begun if place[:2] == (i, j)] if i not in self.met else []
                for tokens in [*reached, *([] if i in self.met else [0])]:
                    if alternative[tokens] == token:
                        places.add(Begun(i, j, tokens + 1))
        complete = {p for p in places if p.tokens == len(terms[p.term].alternatives[p.alternative])}
        # The longest is meant where several end here: what is inside it is not said a second time.
        longest = max((p.tokens for p in complete), default=0)
        chosen = min((p.term for p in complete if p.tokens == longest), default=None)
        if chosen is None:
            return Written(self.met, frozenset(places), False)
        return Written(self.met | {chosen}, frozenset(), terms[chosen].whole_words)

    def remaining(self, terms: Sequence[Term]) -> int:
        """The fewest tokens that complete all terms."""
        begun: dict[int, int] = {}
        for place in self.begun:
            left = len(terms[place.term].alternatives[place.alternative]) - place.tokens
            begun[place.term] = min(left, begun.get(place.term, left))
        open_terms = [i for i in range(len(terms)) if i not in self.met]
        whole = sum(terms[i].shortest for i in open_terms)
        saved = max((terms[i].shortest - begun[i] for i in open_terms if i in begun), default=0)
        return whole - max(saved, 0)  # only one of those begun can be continued

    def next_tokens(self, terms: Sequence[Term]) -> list[int]:
        """What begins or continues a term."""
        begun = {terms[p.term].alternatives[p.alternative][p.tokens] for p in self.begun}
        fresh = {a[0] for i, term in enumerate(terms) if i not in self.met for a in term.alternatives}
        return sorted(begun | fresh)

    def nearest_tokens(self, terms: Sequence[Term]) -> list[int]:
        """What leaves less to be written than there is now."""
        remaining = self.remaining(terms)
        return [t for t in self.next_tokens(terms) if self.advance(t, terms).remaining(terms) < remaining]
