"""Search: what a beam finds is the best of all there is, whatever the rules; neighbours do not matter."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from conftest import TARGET_WORDS, small_model, source_rows, target_rows

from transduce.core import recurrent
from transduce.core.choose import Best, Draw, Groups, best_continuations
from transduce.core.hypotheses import Beams, Hypothesis, Penalty, Request, ranked
from transduce.core.rules import (
    Forbid,
    NoRepeat,
    RepetitionPenalty,
    at_least,
    begin_with_prefix,
    never_written,
    within_vocabulary,
)
from transduce.core.search import Roles, Stop, search
from transduce.core.special import BEGIN, END, PAD, UNKNOWN
from transduce.core.terms import Begun, Term, Written
from transduce.decoding.constrain import Banks, Continuation, share_out, width_of
from transduce.settings.sections import ModelSettings

SENTENCES = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14], [15], [16, 17, 18, 19, 20, 21, 22]]
LIMITS = [9, 5, 12, 7, 10]
PAPER = Penalty(0.6)


def sharp_model(seed: int = 0):
    """Random weights with steep logits and a liking for END, so that sentences end at different lengths."""
    model = small_model(seed, output_bias=True)
    with torch.no_grad():
        model.projection.bias.zero_()
        model.projection.bias[END] = 2.0
        model.projection.weight *= 3
    return model


def tiny_model(kind: str, words: int):
    """For a vocabulary so small that every target can be listed."""
    torch.manual_seed(3)
    if kind == "rnn":
        settings = ModelSettings(kind="rnn", layers=1, d_model=12, tie_source=False, tie_output=False, scale="none")
        model = recurrent.build(settings, 9, words)
        for weight in model.parameters():
            torch.nn.init.normal_(weight, 0, 0.6)
        return model.eval()
    from transduce.core import transformer

    settings = ModelSettings(layers=1, d_model=12, d_ff=20, heads=2, tie_source=False, tie_output=False)
    model = transformer.build(settings, 9, words)
    with torch.no_grad():
        model.projection.weight *= 3
    return model.eval()


def ask(sentences: list[list[int]], limits: list[int], **more: object) -> list[Request]:
    return [Request(s, limit, **more) for s, limit in zip(sentences, limits, strict=True)]  # type: ignore[arg-type]


def found_by(model, roles: Roles, requests: list[Request] | None = None) -> list[list[Hypothesis]]:
    return search(model, requests or ask(SENTENCES, LIMITS), roles, "cpu")


def forced(model, sentence: list[int], tokens: list[int]) -> torch.Tensor:
    """Log-probabilities (T, V) by teacher forcing."""
    log_p = model(source_rows(sentence), target_rows(tokens)).float().log_softmax(-1)[0]
    never_written(log_p)
    return log_p


def sequence_score(model, sentence: list[int], tokens: list[int], ended: bool) -> float:
    log_p = forced(model, sentence, tokens)
    target = [*tokens, END] if ended else tokens
    return sum(log_p[t, token].item() for t, token in enumerate(target))


def greedy(model, sentence: list[int], limit: int) -> list[int]:
    """Written out, without states: the most probable token after everything so far."""
    tokens: list[int] = []
    while len(tokens) < limit:
        best = int(forced(model, sentence, tokens)[-1].argmax())
        if best == END:
            break
        tokens.append(best)
    return tokens


@pytest.mark.parametrize("seed", range(4))
def test_beam_of_one_is_greedy(seed: int) -> None:
    model = sharp_model(seed)
    found = found_by(model, Roles(1, penalty=PAPER))
    for sentence, limit, (hypothesis,) in zip(SENTENCES, LIMITS, found, strict=True):
        assert hypothesis.tokens == greedy(model, sentence, limit)


def test_scores_are_those_of_teacher_forcing() -> None:
    model = sharp_model(1)
    for sentence, hypotheses in zip(SENTENCES, found_by(model, Roles(3, 3, PAPER)), strict=True):
        for h in hypotheses:
            expected = sequence_score(model, sentence, h.tokens, h.complete)
            assert h.log_probability == pytest.approx(expected, abs=1e-4)
            assert h.score == pytest.approx(expected / PAPER.of_length(len(h.tokens) + h.complete), abs=1e-4)


# ---- a wide beam is exhaustive search ------------------------------------------------------------------------------


def every_target(words: int, longest: int) -> list[list[int]]:
    usable = [w for w in range(words) if w not in (PAD, UNKNOWN, BEGIN, END)]
    return [list(t) for n in range(longest + 1) for t in itertools.product(usable, repeat=n)]


def contains(tokens: list[int], sequence: list[int]) -> bool:
    return any(tokens[i : i + len(sequence)] == sequence for i in range(len(tokens) - len(sequence) + 1))


def repeats(tokens: list[int], n: int) -> bool:
    grams = Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
    return any(count > 1 for count in grams.values())


def all_coverage(model, sentence: list[int], tokens: list[int]) -> float:
    looked = model.attention(source_rows(sentence), target_rows(tokens)).cross[-1][0].mean(0).sum(0)  # (S,)
    return float(looked.clamp(max=1).log().sum())


PIECES = "????abc"  # what tokens 4, 5 and 6 stand for
CASES = {
    "paper": (Penalty(0.6), {}, []),
    "plain": (Penalty(1.0, plain=True), {}, []),
    "coverage": (Penalty(0.6, beta=0.5), {}, []),
    "prefix": (Penalty(0.6), {"prefix": [5]}, [begin_with_prefix]),
    "least": (Penalty(0.0), {"least": 3}, [at_least]),
    "no repeat": (Penalty(0.6), {}, [NoRepeat(1)]),
    "no pair twice": (Penalty(2.0), {}, [NoRepeat(2)]),
    "repetition": (Penalty(0.6), {}, [RepetitionPenalty(1.7)]),
    "forbidden": (Penalty(0.6), {}, [Forbid(["a", "bc"], PIECES)]),
    "shortlist": (
        Penalty(0.6),
        {"vocabulary": np.array([3, 4, 6])},
        [within_vocabulary],
    ),
    "all": (
        Penalty(0.8, beta=0.3),
        {"prefix": [6], "least": 2},
        [RepetitionPenalty(1.3), NoRepeat(2), Forbid(["ba"], PIECES), at_least, begin_with_prefix],
    ),
}
WORDS, LONGEST, SENTENCE = 7, 4, [5, 7, 6]


@cache
@torch.no_grad()
def every_score(kind: str) -> list[tuple[list[int], torch.Tensor, float]]:
    """Every target, scored one by one: with its log-probabilities (T, V) and its coverage."""
    model = tiny_model(kind, WORDS)
    return [
        (tokens, forced(model, SENTENCE, tokens), all_coverage(model, SENTENCE, tokens))
        for tokens in every_target(WORDS, LONGEST)
    ]


def expected_best(kind: str, name: str, terms: list[Term] = ()) -> tuple[list[int], float]:
    """The best of every target, with what the case forbids left out."""
    penalty, asked, rules = CASES[name]
    best: tuple[list[int], float] = ([], -math.inf)
    for tokens, log_p, coverage in every_score(kind):
        if "vocabulary" in asked:  # what is left sums to one
            log_p = log_p - log_p[:, asked["vocabulary"]].logsumexp(-1, keepdim=True)
        total = 0.0
        for t, token in enumerate([*tokens, END]):
            value = log_p[t, token].item()
            factor = next((r.factor for r in rules if isinstance(r, RepetitionPenalty)), 1.0)
            total += value * factor if token in tokens[:t] else value
        wrong = (
            (asked.get("prefix") and tokens[: len(asked["prefix"])] != asked["prefix"])
            or len(tokens) < asked.get("least", 0)
            or any(repeats(tokens, r.n) for r in rules if isinstance(r, NoRepeat))
            or any(contains(tokens, s) for r in rules if isinstance(r, Forbid) for s in r.sequences())
            or ("vocabulary" in asked and not set(tokens) <= set(asked["vocabulary"]))
            or not all(any(contains(tokens, list(a)) for a in term.alternatives) for term in terms)
        )
        score = penalty.score(total, len(tokens) + 1, coverage)
        if not wrong and score > best[1]:
            best = (tokens, score)
    return best


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
@pytest.mark.parametrize("name", CASES)
def test_a_wide_beam_finds_the_best_of_all(kind: str, name: str) -> None:
    model = tiny_model(kind, WORDS)
    penalty, asked, rules = CASES[name]
    request = Request(SENTENCE, LONGEST + 1, **asked)
    (hypotheses,) = search(model, [request], Roles(90, 1, penalty, rules), "cpu")
    tokens, score = expected_best(kind, name)
    assert hypotheses[0].tokens == tokens
    assert hypotheses[0].score == pytest.approx(score, abs=1e-4)


TERMS = [Term(((4, 6), (6, 6)), False), Term(((5,),), False)]


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
@pytest.mark.parametrize("name", ["paper", "coverage", "all"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_wide_beam_finds_the_best_with_all_terms(kind: str, name: str, count: int) -> None:
    model = tiny_model(kind, WORDS)
    penalty, asked, rules = CASES[name]
    request = Request(SENTENCE, LONGEST + 1, **asked, terms=TERMS[:count])
    roles = Roles(150, 1, penalty, rules, Banks(torch.ones(WORDS, dtype=torch.bool), 150))
    (hypotheses,) = search(model, [request], roles, "cpu")
    tokens, score = expected_best(kind, name, TERMS[:count])
    if not tokens:  # nothing within the limit has them all
        assert not [h for h in hypotheses if h.complete]
        return
    assert hypotheses[0].tokens == tokens
    assert hypotheses[0].score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_terms_are_written_however_improbable(size: int) -> None:
    model = sharp_model(1)
    terms = [Term(((25, 26, 27), (28, 29)), False), Term(((30,),), False)]
    roles = Roles(size, 1, PAPER, choose=Banks(torch.ones(TARGET_WORDS, dtype=torch.bool), size))
    for (best,) in found_by(model, roles, ask(SENTENCES, [12] * 5, terms=terms)):
        assert contains(best.tokens, [25, 26, 27]) or contains(best.tokens, [28, 29])
        assert 30 in best.tokens
        assert best.complete


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize(("size", "stop"), [(4, "exact"), (4, "usual")])
def test_terms_stand_where_they_cost_least(seed: int, size: int, stop: Stop) -> None:
    """No worse than the translation without terms, with one put in at any place, and gone on with from there."""
    model, term = sharp_model(seed), [25, 26, 27]
    anything = torch.ones(TARGET_WORDS, dtype=torch.bool)
    room = width_of([Term((tuple(term),), False)], size) - size
    roles = Roles(size, 1, Penalty(0.0), choose=Banks(anything, size), stop=stop, room=room)
    found = found_by(model, roles, ask(SENTENCES, [14] * 5, terms=[Term((tuple(term),), False)]))
    for sentence, (best,) in zip(SENTENCES, found, strict=True):
        plain = greedy(model, sentence, 14)
        for place in range(min(len(plain), 10) + 1):
            begin = [*plain[:place], *term]
            (others,) = found_by(
                model, Roles(1, 1, Penalty(0.0), [begin_with_prefix]), ask([sentence], [14], prefix=begin)
            )
            assert best.log_probability >= others[0].log_probability - 1e-4 or not others[0].complete


def test_terms_do_not_depend_on_the_terms_of_others() -> None:
    model, anything = sharp_model(2), torch.ones(TARGET_WORDS, dtype=torch.bool)
    terms = [[Term(((25, 26, 27), (28, 29)), False), Term(((30,),), False)], [Term(((22,),), False)], []]
    asked = [Request(s, 12, terms=t) for s, t in zip(SENTENCES, terms, strict=False)]

    def found(some: list[Request]) -> list[list[int]]:
        room = max(width_of(request.terms, 2) for request in some) - 2
        return [h[0].tokens for h in search(model, some, Roles(2, choose=Banks(anything, 2), room=room), "cpu")]

    assert found(asked) == [tokens for one in asked for tokens in found([one])]


def test_each_bank_has_its_places() -> None:
    free, met, begun = Written(), Written(frozenset([0])), Written(begun=frozenset([Begun(0, 0, 1)]))
    some = [
        Continuation(score, 0, token, written)
        for token, (score, written) in enumerate(
            [(-1, free), (-2, free), (-3, free), (-7, begun), (-8, begun), (-9, met), (-10, met)]
        )
    ]
    assert [c.token for c in share_out(some, 1)] == [0, 5, 3]  # of each number of terms, then of each point
    assert [c.token for c in share_out(some, 2)] == [0, 5, 3, 1, 6]


def test_terms_and_forms_have_points_of_their_own() -> None:
    """Two terms of one length, begun, and two forms of one term."""
    some = [
        Continuation(score, 0, token, Written(begun=frozenset(begun)))
        for token, (score, begun) in enumerate(
            [(-1, []), (-7, [Begun(0, 0, 1)]), (-8, [Begun(1, 0, 1)]), (-9, [Begun(1, 1, 2)])]
        )
    ]
    assert [c.token for c in share_out(some, 1)] == [0, 1, 2, 3]


def test_an_end_competes_with_those_that_have_all_terms() -> None:
    """A hypothesis with all terms ends, although others that have none are more probable."""
    beams = Beams.begin([Request([5], 9, terms=[Term(((6,),), False)])], 4, "cpu")
    beams.tokens, beams.scores = torch.tensor([[[4], [6], [5], [7]]]), torch.tensor([[-1.0, -9.0, -1.5, -2.0]])
    beams.written = [[Written(), Written(frozenset([0])), Written(), Written()]]
    log_p = torch.full((1, 4, 9), -1.0)
    log_p[..., 6] = -20.0  # the term
    log_p[..., END] = -0.5
    chosen = Banks(torch.ones(9, dtype=torch.bool), 2)(log_p, beams)
    assert [(end.beam, end.total) for end in chosen.ends] == [(1, -9.5)]


def test_after_a_term_a_word_begins() -> None:
    model = sharp_model(2)
    word_start = torch.zeros(TARGET_WORDS, dtype=torch.bool)
    word_start[[END, 20, 21]] = True
    roles = Roles(4, 1, PAPER, choose=Banks(word_start, 4))
    for (best,) in found_by(model, roles, ask(SENTENCES, [12] * 5, terms=[Term(((25,),))])):
        after = [*best.tokens, END][best.tokens.index(25) + 1]
        assert word_start[after]


def test_terms_as_they_are_written() -> None:
    terms = [Term(((1, 2, 1, 3),)), Term(((2, 1),))]
    written = Written()
    for token, remaining in ((1, 5), (2, 4), (1, 4)):
        written = written.advance(token, terms)
        assert written.remaining(terms) == remaining, token
    assert written.met == {1}  # the second is inside the first, and is complete before it


# ---- the rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 4])
def test_neighbours_order_and_padding_do_not_matter(size: int) -> None:
    model = sharp_model(3)

    def tokens(sentences: list[list[int]], limits: list[int]) -> list[list[int]]:
        return [h[0].tokens for h in found_by(model, Roles(size, penalty=PAPER), ask(sentences, limits))]

    alone = [tokens([s], [limit])[0] for s, limit in zip(SENTENCES, LIMITS, strict=True)]
    assert tokens(SENTENCES, LIMITS) == alone
    assert tokens(SENTENCES[::-1], LIMITS[::-1]) == alone[::-1]
    assert tokens(SENTENCES[:2], LIMITS[:2]) == alone[:2]


@pytest.mark.parametrize("size", [1, 3])
def test_the_limit_holds_and_is_told(size: int) -> None:
    model = sharp_model(0)
    with torch.no_grad():
        model.projection.bias[END] = -50.0
    found = found_by(model, Roles(size, penalty=PAPER), ask(SENTENCES[:3], [4, 6, 1]))
    assert [len(h[0].tokens) for h in found] == [4, 6, 1]
    assert not any(h[0].complete for h in found)


def test_special_tokens_never_come_out() -> None:
    model = sharp_model(1)
    with torch.no_grad():
        model.projection.bias[[PAD, BEGIN, UNKNOWN]] = 90.0
    for hypotheses in found_by(model, Roles(3, penalty=PAPER)):
        assert not {PAD, BEGIN, UNKNOWN, END} & set(hypotheses[0].tokens)


def test_n_best_are_distinct_and_sorted() -> None:
    for hypotheses in found_by(sharp_model(2), Roles(5, 5, PAPER)):
        assert len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses) == 5
        assert hypotheses == ranked(hypotheses)


def test_the_penalty_prefers_longer_targets() -> None:
    model = sharp_model(5)
    with torch.no_grad():
        model.projection.bias[END] = -1.0
    short = found_by(model, Roles(8, penalty=Penalty(0.0)))
    long = found_by(model, Roles(8, penalty=Penalty(3.0)))
    assert sum(len(h[0].tokens) for h in long) > sum(len(h[0].tokens) for h in short)
    assert Penalty(0.6).of_length(1) == 1.0
    assert Penalty(1.0).of_length(7) == 2.0
    assert Penalty(2.0, plain=True).of_length(3) == 9.0


def test_other_stops_are_never_better() -> None:
    """They end a sentence once as many have ended as are followed, or a little later; the exact one goes on while
    something can win."""
    differ = np.zeros(2, int)
    for seed in range(6):
        model = sharp_model(seed)
        with torch.no_grad():
            model.projection.weight /= 3
        stops: list[Stop] = ["exact", "likely", "usual"]
        each = (found_by(model, Roles(2, 1, Penalty(3.0), stop=stop)) for stop in stops)
        for (one,), (two,), (three,) in zip(*each, strict=True):
            assert one.score >= two.score - 1e-6 or one.complete > two.complete
            assert two.score >= three.score - 1e-6 or two.complete > three.complete
            differ += (one.tokens != two.tokens, two.tokens != three.tokens)
    assert all(differ)


def test_a_forced_end_counts_and_costs_nothing() -> None:
    """Of what is cut, the log-probability stays and its length is one more."""
    roles, cut = Roles(4, 4, Penalty(1.0, plain=True), stop="usual", ended_first=False), 0
    for seed in range(6):
        model = sharp_model(seed)
        forced = roles._replace(penalty=roles.penalty._replace(forced_end=True))
        plain, given_end = (found_by(model, how, ask(SENTENCES, [5] * 5)) for how in (roles, forced))
        for one, two in zip(plain, given_end, strict=True):
            known = {tuple(h.tokens): h for h in one if not h.complete}
            for h in two:
                if not h.complete and tuple(h.tokens) in known:
                    other, cut = known[tuple(h.tokens)], cut + 1
                    assert h.log_probability == pytest.approx(other.log_probability)
                    assert h.score == pytest.approx(other.score * 5 / 6)
    assert cut


def test_what_a_limit_cuts_comes_last_or_by_its_score() -> None:
    """As other toolkits have it, for which a limit is an end like any other."""
    cut = 0
    for seed in range(6):
        model, roles = sharp_model(seed), Roles(4, 99, Penalty(1.0, plain=True), stop="usual")
        first, by_score = (
            found_by(model, roles._replace(ended_first=e), ask(SENTENCES, [5] * 5)) for e in (True, False)
        )
        for one, two in zip(first, by_score, strict=True):
            assert sorted(one) == sorted(two)
            assert [h.complete for h in one] == sorted((h.complete for h in one), reverse=True)
            assert [h.score for h in two] == sorted((h.score for h in two), reverse=True)
            cut += one != two
    assert cut


@pytest.mark.parametrize("size", [640, 641, 700, 4096])
def test_best_continuations_are_those_of_a_sort(size: int) -> None:
    log_p, scores = torch.randn(3, 2, size), torch.randn(3, 2)
    log_p[0, 0, -3:] = 9.0  # ties, in what is left over beyond the last whole chunk
    totals = (log_p + scores.unsqueeze(-1)).flatten(1)
    for count in (1, 3, 8):
        best, parents, tokens = best_continuations(log_p, scores, count)
        torch.testing.assert_close(best, totals.topk(count).values)
        torch.testing.assert_close(totals.gather(1, parents * size + tokens), best)


def test_groups_find_more_different_targets() -> None:
    def first_tokens(roles: Roles) -> float:
        found = found_by(sharp_model(4), roles)
        return sum(len({tuple(h.tokens[:2]) for h in hypotheses}) for hypotheses in found)

    assert first_tokens(Roles(6, 6, PAPER, choose=Groups(3, 5.0))) > first_tokens(Roles(6, 6, PAPER))


@pytest.mark.parametrize("diversity", [0.0, 0.3])
def test_groups_find_no_target_twice(diversity: float) -> None:
    for hypotheses in found_by(sharp_model(4), Roles(6, 6, PAPER, choose=Groups(3, diversity))):
        assert len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses) > 1


def test_groups_without_diversity_are_beams_of_their_own() -> None:
    model = sharp_model(1)
    alone = found_by(model, Roles(2, 1, PAPER))
    both = found_by(model, Roles(6, 1, PAPER, choose=Groups(3, 0.0), stop="exact"))
    assert [h[0].tokens for h in alone] == [h[0].tokens for h in both]


# ---- sampling ------------------------------------------------------------------------------------------------------


def chi_square_p(observed: list[int], expected: list[float]) -> float:
    """The probability of a fit that is no better, by the chi-square distribution."""
    x = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    half = torch.tensor((len(observed) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, torch.tensor(x / 2, dtype=torch.float64)))


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.7}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2}])
def test_samples_are_distributed_as_the_model_says(changes: dict) -> None:
    """The first two tokens of 4,000 samples against their probabilities, by a chi-square test."""
    model = tiny_model("transformer", WORDS)
    samples = 4000
    kinds = {"temperature": 1.0, "top_k": None, "top_p": None, "min_p": None, **changes}
    draw = Draw(1, **kinds)
    (hypotheses,) = search(model, [Request(SENTENCE, 2)], Roles(samples, samples, choose=draw, stop="usual"), "cpu")
    seen = Counter((*h.tokens, *([END] if h.complete else []))[:2] for h in hypotheses)

    def chances(tokens: list[int]) -> torch.Tensor:
        p = (forced(model, SENTENCE, tokens)[-1].detach() / kinds["temperature"]).softmax(-1)
        ordered = sorted(range(WORDS), key=lambda w: -p[w])
        kept = set(ordered[: kinds["top_k"] or WORDS])
        if kinds["min_p"]:
            kept &= {w for w in ordered if p[w] >= kinds["min_p"] * p.max()}
        if kinds["top_p"]:
            needed = next(n for n in range(1, WORDS + 1) if p[ordered[:n]].sum() >= kinds["top_p"])
            kept &= set(ordered[:needed])
        p = torch.tensor([float(p[w]) if w in kept else 0.0 for w in range(WORDS)], dtype=torch.float64)
        return p / p.sum()

    first = chances([])
    expected = {(END,): float(first[END])} | {
        (a, b): float(first[a] * chances([a])[b]) for a in range(4, WORDS) for b in range(END, WORDS) if first[a] > 0
    }
    possible = {target: p * samples for target, p in expected.items() if p > 0}
    assert set(seen) <= set(possible)
    often = [target for target in possible if possible[target] >= 5]
    rare = [sum(f(target) for target in possible if target not in often) for f in (lambda t: seen[t], possible.get)]
    observed, wanted = [seen[t] for t in often], [possible[t] for t in often]
    if rare[1] >= 5:
        observed, wanted = [*observed, rare[0]], [*wanted, rare[1]]
    assert chi_square_p(observed, wanted) > 0.001


def test_a_sentence_draws_the_same_in_any_company() -> None:
    model = sharp_model(0)
    roles = Roles(3, 3, choose=Draw(7, 5.0, None, None, None), stop="usual")
    together = found_by(model, roles)
    for sentence, limit, hypotheses in zip(SENTENCES, LIMITS, together, strict=True):
        (alone,) = found_by(model, roles, ask([sentence], [limit]))
        assert [h.tokens for h in alone] == [h.tokens for h in hypotheses]
    other = found_by(model, roles._replace(choose=Draw(8, 5.0, None, None, None)))
    assert [h[0].tokens for h in other] != [h[0].tokens for h in together]


def test_a_cold_sample_is_greedy() -> None:
    model = sharp_model(2)
    cold = found_by(model, Roles(1, 1, choose=Draw(1, 0.001, None, None, None), stop="usual"))
    assert [h[0].tokens for h in cold] == [h[0].tokens for h in found_by(model, Roles(1, choose=Best()))]
