"""Scores that can be compared: sacreBLEU's, each with its signature, and whether a difference is real."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.bleu import MAX_NGRAM_ORDER
from sacrebleu.significance import PairedTest

from transduce.errors import DataError, SettingsError


@dataclass(frozen=True)
class Scored:
    """A score with the recipe that gave it, and by bootstrap resampling where it lies with 95 % confidence."""

    score: float
    signature: str
    interval: tuple[float, float] | None = None


def metrics(tokenize: str = "13a", lowercase: bool = False) -> dict[str, Any]:
    """The scores of translations by the names that JSON and comparisons give them. Each must have a name of its own in
    sacreBLEU too, by whose order `compare` goes. TER is lower-cased in any case; `tokenize` is BLEU's alone."""
    if tokenize not in BLEU.TOKENIZERS:
        raise SettingsError(f"unknown BLEU tokenizer {tokenize}; there are: {', '.join(BLEU.TOKENIZERS)}")
    try:
        return {"BLEU": BLEU(lowercase, tokenize=tokenize), "chrF": CHRF(lowercase=lowercase), "TER": TER()}
    except Exception as error:  # some tokenizers want a package or a download, and each says so in its own way
        raise SettingsError(f"BLEU tokenizer {tokenize} cannot be used here: {error}") from error


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int | None = None,
) -> dict[str, Scored]:
    """BLEU, chrF and TER of a whole test set; with `samples`, also their intervals by so many resamplings."""
    if samples is not None:
        _check_samples(samples)
    return _score(metrics(tokenize, lowercase), hypotheses, references, samples or 1)


def as_papers_do(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None = None
) -> dict[str, Scored]:
    """BLEU with case, the modern way; lower-cased and tokenised, as papers on small data report it; and chrF."""
    three = {
        "BLEU": BLEU(tokenize=tokenize),
        "BLEU lower-cased": BLEU(lowercase=True, tokenize=tokenize),
        "chrF": CHRF(),
    }
    return _score(three, hypotheses, references)


def _score(
    by: dict[str, Any], hypotheses: Sequence[str], references: Sequence[str], samples: int = 1
) -> dict[str, Scored]:
    _check(hypotheses, references)
    result = {}
    for name, metric in by.items():
        found = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=samples)
        around, half = float(found._mean), float(found._ci)  # sacreBLEU itself shows them in text only
        interval = (round(around - half, 4), round(around + half, 4)) if samples > 1 else None
        result[name] = Scored(round(found.score, 4), str(metric.get_signature()), interval)
    return result


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> float:
    """BLEU alone, as validation needs it."""
    return sacrebleu.corpus_bleu(list(hypotheses), [list(references)], lowercase=lowercase, tokenize=tokenize).score


def chrf_of_each(hypotheses: Sequence[str], references: Sequence[str], longest: int = CHRF.CHAR_ORDER) -> list[float]:
    """chrF of every line by itself, by n-grams of at most so many characters."""
    pairs = zip(hypotheses, references, strict=True)
    return [sacrebleu.sentence_chrf(h, [r], char_order=longest).score for h, r in pairs]


def has_ngrams(references: Sequence[str], tokenize: str = "13a") -> bool:
    """Whether BLEU can tell anything: at least one line in ten has the four words that its longest n-grams take."""
    words = BLEU(tokenize=tokenize).tokenizer
    return 10 * sum(len(words(line.strip()).split()) >= MAX_NGRAM_ORDER for line in references) >= len(references)


def bleu_words(text: str) -> tuple[str, ...]:
    """The words that BLEU counts."""
    return tuple(BLEU().tokenizer(text.strip()).split())


def bleu_of_counts(matches: Iterable[int], counts: Iterable[int], right: int) -> float:
    """BLEU of a sentence, smoothed as sentences need it: so many of its n-grams match (n = 1, 2, ...), and the right
    one has so many words."""
    matches, counts = [int(n) for n in matches], [int(n) for n in counts]
    return BLEU.compute_bleu(matches, counts, counts[0], int(right), smooth_method="exp", effective_order=True).score


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Share of lines that are the reference to the letter."""
    _check(hypotheses, references)
    return sum(h == r for h, r in zip(hypotheses, references, strict=True)) / len(references)


def macro_f1(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The mean over labels of 2 · right / (said + true), each label counting the same however rare it is."""
    _check(hypotheses, references)
    said, true = Counter(hypotheses), Counter(references)
    right = Counter(h for h, r in zip(hypotheses, references, strict=True) if h == r)
    labels = said.keys() | true.keys()
    return sum(2 * right[label] / (said[label] + true[label]) for label in labels) / len(labels)


def compare_labels(ours: Sequence[str], theirs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Both accuracies, and McNemar's exact p: how probable so uneven a split of the disagreements is by chance."""
    _check(ours, references)
    _check(theirs, references)
    right = [(a == r, b == r) for a, b, r in zip(ours, theirs, references, strict=True)]
    only_ours, only_theirs = right.count((True, False)), right.count((False, True))
    count = only_ours + only_theirs
    ways = (math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1))
    fewer = itertools.islice(ways, min(only_ours, only_theirs) + 1)  # the logarithm of (count over k)
    tail = math.fsum(math.exp(way - count * math.log(2)) for way in fewer)
    shares = [sum(side) / len(right) for side in zip(*right, strict=True)]
    return {"ours": round(shares[0], 4), "theirs": round(shares[1], 4), "p": round(min(1.0, 2 * tail), 4)}


def compare(
    ours: Sequence[str],
    theirs: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    samples: int = 1000,
    lowercase: bool = False,
) -> dict[str, dict[str, float]]:
    """Paired bootstrap resampling: each score of both, and the probability p of the difference by chance."""
    _check(ours, references)
    _check(theirs, references)
    _check_samples(samples)
    systems = [("theirs", list(theirs)), ("ours", list(ours))]
    test = PairedTest(systems, metrics(tokenize, lowercase), [list(references)], test_type="bs", n_samples=samples)
    _, scores = test()
    result = {}
    del scores["System"]  # the names; the rest is a row of two for each metric, in order
    for name, (baseline, system) in zip(metrics(tokenize, lowercase), scores.values(), strict=True):
        same = system.score == baseline.score  # no difference is never a significant one
        p = 1.0 if same else round(system.p_value, 4)
        result[name] = {"ours": round(system.score, 4), "theirs": round(baseline.score, 4), "p": p}
    return result


def _check_samples(samples: int) -> None:
    if samples < 1:
        raise SettingsError(f"samples={samples} must be at least 1")


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses):,} translations cannot be scored against {len(references):,} references")
    if not references:
        raise DataError("there is nothing to score: the reference is empty")
