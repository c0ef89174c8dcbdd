"""From search settings to the roles of a search."""

from __future__ import annotations

from collections.abc import Sequence

from transduce.core.choose import Best, Chooser, Draw, Groups
from transduce.core.hypotheses import Penalty, Request
from transduce.core.rules import (
    NoRepeat,
    RepetitionPenalty,
    Rule,
    at_least,
    begin_with_prefix,
    within_vocabulary,
)
from transduce.core.search import Roles
from transduce.decoding.constrain import Banks, width_of
from transduce.decoding.wording import Wording
from transduce.settings.sections import SearchSettings


def make_roles(s: SearchSettings, wording: Wording) -> Roles:
    """The search that settings ask for, whatever the sentences."""
    begin, n_best = wording.tokenizer.begin, wording.wishes.n_best
    if s.mbr != "none":  # which chooses among all
        n_best = s.beam if s.method == "beam" else s.candidates
    elif s.method == "beam" and n_best > 1:  # of several that spell one text, only the best is given
        n_best = s.beam
    penalty = Penalty(s.length_penalty, s.penalty == "plain", s.coverage_penalty, len(begin), s.forced_end)
    if s.method == "sample":
        draw = Draw(s.seed, s.temperature, s.top_k, s.top_p, s.min_p)
        return Roles(n_best, n_best, penalty, _rules(s, wording), draw, "usual", s.tokens, begin)
    choose: Chooser = Best() if s.groups == 1 else Groups(s.groups, s.diversity)
    own = s.stop == "exact"  # the other rules are those of other toolkits, for which a limit is an end like any other
    return Roles(s.beam, n_best, penalty, _rules(s, wording), choose, s.stop, s.tokens, begin, ended_first=own)


def _rules(s: SearchSettings, wording: Wording) -> list[Rule]:
    rules: list[Rule] = []
    if s.repetition_penalty != 1:
        rules.append(RepetitionPenalty(s.repetition_penalty))
    if s.no_repeat:
        rules.append(NoRepeat(s.no_repeat))
    if wording.wishes.forbidden:
        rules.append(wording.forbid)
    return rules


def for_requests(roles: Roles, requests: Sequence[Request], wording: Wording) -> Roles:
    """The same search, with what some of these sentences need."""
    short = any(request.vocabulary is not None for request in requests)
    rules = [*([within_vocabulary] if short else []), *roles.rules]  # first: it makes probabilities sum to one
    if any(request.least for request in requests):
        rules.append(at_least)
    if any(request.prefix for request in requests):
        rules.append(begin_with_prefix)
    roles = roles._replace(rules=rules)
    if not any(request.terms for request in requests):
        return roles
    # in place of the plain beam: with another, terms are refused beforehand
    room = max(width_of(request.terms, roles.size) for request in requests) - roles.size
    wide = roles._replace(choose=Banks(wording.word_start, roles.size), room=room)
    return wide._replace(stop="exact", ended_first=True)  # with terms, those that end first are not the best
