"""Search: greedy, beam and exhaustive agree where they must; neighbours do not matter."""

from __future__ import annotations

import itertools

import pytest
import torch
from conftest import TARGET_WORDS, small_model, source_rows, target_rows

from transduce.decoding.search import beam, greedy, length_penalty, log_probabilities, ranked
from transduce.text.special import BEGIN, END, PAD, UNKNOWN

SENTENCES = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14], [15], [16, 17, 18, 19, 20, 21, 22]]
LIMITS = [9, 5, 12, 7, 10]


def sharp_model(seed: int = 0):
    """Random weights with steep logits and a liking for END, so that sentences end at different lengths."""
    model = small_model(seed, output_bias=True)
    with torch.no_grad():
        model.projection.bias.zero_()
        model.projection.bias[END] = 2.0
        model.projection.weight *= 3
    return model


@pytest.mark.parametrize("seed", range(4))
def test_beam_of_one_is_greedy(seed: int) -> None:
    model = sharp_model(seed)
    source = source_rows(*SENTENCES)
    for one, two in zip(greedy(model, source, LIMITS, 0.6), beam(model, source, LIMITS, 1, 0.6), strict=True):
        assert one[0].tokens == two[0].tokens
        assert one[0].complete == two[0].complete
        assert one[0].score == pytest.approx(two[0].score, abs=1e-4)


def sequence_score(model, sentence: list[int], tokens: list[int], ended: bool) -> float:
    """By teacher forcing."""
    logits = model(source_rows(sentence), target_rows(tokens))
    log_p = log_probabilities(logits)[0]
    target = [*tokens, END] if ended else tokens
    return sum(log_p[t, token].item() for t, token in enumerate(target))


def test_scores_are_those_of_teacher_forcing() -> None:
    model = sharp_model(1)
    found = beam(model, source_rows(*SENTENCES), LIMITS, 3, 0.6, n_best=3)
    for sentence, hypotheses in zip(SENTENCES, found, strict=True):
        for h in hypotheses:
            expected = sequence_score(model, sentence, h.tokens, h.complete)
            assert h.log_probability == pytest.approx(expected, abs=1e-4)
            assert h.score == pytest.approx(expected / length_penalty(len(h.tokens) + h.complete, 0.6), abs=1e-4)


def test_a_wide_beam_finds_the_best_of_all() -> None:
    """Every target of up to two tokens, scored one by one, against the beam."""
    model = sharp_model(2)
    sentence, alpha = [5, 6, 7], 0.6
    words = [w for w in range(TARGET_WORDS) if w not in (PAD, UNKNOWN, BEGIN, END)]
    every = [list(t) for n in (0, 1, 2) for t in itertools.product(words, repeat=n)]
    scores = {tuple(t): sequence_score(model, sentence, t, True) / length_penalty(len(t) + 1, alpha) for t in every}
    best = sorted(scores, key=lambda t: -scores[t])[:3]
    found = beam(model, source_rows(sentence), [3], 64, alpha, n_best=3)[0]
    assert [tuple(h.tokens) for h in found if h.complete] == best[: len([h for h in found if h.complete])]
    assert tuple(found[0].tokens) == best[0]


@pytest.mark.parametrize("size", [1, 4])
def test_neighbours_order_and_padding_do_not_matter(size: int) -> None:
    model = sharp_model(3)

    def search(sentences: list[list[int]], limits: list[int]) -> list[list[int]]:
        rows = source_rows(*sentences)
        found = greedy(model, rows, limits) if size == 1 else beam(model, rows, limits, size, 0.6)
        return [hypotheses[0].tokens for hypotheses in found]

    alone = [search([s], [limit])[0] for s, limit in zip(SENTENCES, LIMITS, strict=True)]
    assert search(SENTENCES, LIMITS) == alone
    assert search(SENTENCES[::-1], LIMITS[::-1]) == alone[::-1]
    assert search(SENTENCES[:2], LIMITS[:2]) == alone[:2]


@pytest.mark.parametrize("size", [1, 3])
def test_the_limit_holds_and_is_told(size: int) -> None:
    model = sharp_model(0)
    with torch.no_grad():
        model.projection.bias[END] = -50.0
    rows = source_rows(*SENTENCES[:3])
    found = greedy(model, rows, [4, 6, 1]) if size == 1 else beam(model, rows, [4, 6, 1], size, 0.6)
    assert [len(h[0].tokens) for h in found] == [4, 6, 1]
    assert not any(h[0].complete for h in found)


def test_special_tokens_never_come_out() -> None:
    model = sharp_model(1)
    with torch.no_grad():
        model.projection.bias[[PAD, BEGIN, UNKNOWN]] = 90.0
    for hypotheses in beam(model, source_rows(*SENTENCES), LIMITS, 3, 0.6):
        assert not {PAD, BEGIN, UNKNOWN, END} & set(hypotheses[0].tokens)


def test_n_best_are_distinct_and_sorted() -> None:
    for hypotheses in beam(sharp_model(2), source_rows(*SENTENCES), LIMITS, 5, 0.6, n_best=5):
        assert len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses) == 5
        assert hypotheses == ranked(hypotheses)


def test_the_penalty_prefers_longer_targets() -> None:
    model = sharp_model(5)
    with torch.no_grad():
        model.projection.bias[END] = -1.0
    short = beam(model, source_rows(*SENTENCES), LIMITS, 8, 0.0)
    long = beam(model, source_rows(*SENTENCES), LIMITS, 8, 3.0)
    assert sum(len(h[0].tokens) for h in long) > sum(len(h[0].tokens) for h in short)
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
