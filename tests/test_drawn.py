"""Some of many: a text may be sorted, and its lines may alternate, so neither the first nor every second tells of it."""

from __future__ import annotations

import numpy as np
import pytest

from transduce.data import survey
from transduce.data.corpus import ListCorpus
from transduce.data.drawn import drawn
from transduce.data.lexicon import learn_lexicon
from transduce.data.store import Side
from transduce.training.calibrate import _some_text


def halves(numbers: list[int], of: int) -> tuple[float, float]:
    """The share of even numbers, and of those in the first half."""
    return float(np.mean([n % 2 == 0 for n in numbers])), float(np.mean([n < of / 2 for n in numbers]))


def test_some_of_many_are_in_order_and_the_same_every_time() -> None:
    some = list(drawn(range(1000), 200))
    assert len(some) == 200
    assert some == sorted(set(some)) == list(drawn(range(1000), 200))
    assert all(0.4 < share < 0.6 for share in halves(some, 1000))
    assert list(drawn("abc", 3)) == list("abc")


def test_a_vocabulary_learns_from_both_of_two_languages_that_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second, or fourth, line of a large text was one language alone."""
    monkeypatch.setattr(survey, "ENOUGH", 300)
    pairs = [(f"{i}", f"{i}") for i in range(2000)]
    found = survey.survey(ListCorpus(pairs, "pairs"), sample=True)
    numbers = [int(pair.source) for pair in found.sample]
    assert 150 <= len(numbers) <= 300
    assert numbers == sorted(numbers)
    assert all(0.4 < share < 0.6 for share in halves(numbers, 2000))


def test_a_lexicon_learns_from_both() -> None:
    pairs = [([4, 5], [6, 7]) if i % 2 == 0 else ([8, 9], [10, 11]) for i in range(1000)]
    written = learn_lexicon(pairs, size=12, most=400).written
    assert 0.3 < written[6] / (written[6] + written[10]) < 0.7


def test_what_is_usual_is_learned_from_all_of_a_text() -> None:
    """From the first three million tokens of a sorted text, its long sentences were unusual."""
    lengths = np.sort(np.random.default_rng(0).integers(2, 20, 500)).astype(np.int32)
    begins = lengths.cumsum().astype(np.int64) - lengths
    side = Side(np.arange(lengths.sum()), begins, lengths)
    ids, where = _some_text(side, len(side.ids) // 5)
    assert 0.15 < len(ids) / len(side.ids) < 0.25
    assert halves(ids.tolist(), len(side.ids))[1] < 0.7
    assert [int(ids[i]) in begins for i in where] == [True] * len(where)
    every, there = _some_text(side, len(side.ids))
    assert every.tolist() == side.ids.tolist()
    assert there.tolist() == begins.tolist()
