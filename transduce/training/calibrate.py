"""Find out how far a model can be trusted: by validation text, and by what was made of it that no model can translate.

The rule must tell sources as they are from sources whose words were shuffled, whose letters were, that are in the
target's language or made of random tokens; and it must know how probable a good translation is. Half of all lines
teach; the limit is set by the sources as they are, all of them, and by those of the others that did not teach.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from transduce.core.special import UNKNOWN
from transduce.data.drawn import drawn
from transduce.data.store import Side, Store
from transduce.decoding.sentences import sentences_of
from transduce.decoding.translator import Translator
from transduce.decoding.trust import FEATURES, Answer, Trust, Usual, features, unknown_shares
from transduce.evaluate import chrf_of_each
from transduce.text.normalise import normalise
from transduce.text.scripts import script_of

FEWEST, MOST = 100, 500  # lines of validation text
ENOUGH = 3_000_000  # tokens of training text
GOOD = 50.0  # chrF of a translation that is called good
FALSE_ALARMS = 0.03  # of the lines as they are, that the limit may call doubtful
MISSED = 0.05  # of the planted lines, that the limit may miss where that spares false alarms
WORTH = 0.5  # of the planted lines that must be found, or the rule is worth nothing
PLANTED = 0.05  # weight of all planted lines in the confidence, against all others


def find_trust(translator: Translator, pairs: Sequence[tuple[str, str]], training: Store) -> Trust | None:
    """None where there is too little text, or the model too poor, to tell anything."""
    whole = [(s, t) for s, t in ((normalise(source), normalise(target)) for source, target in pairs) if s and t]
    pairs = drawn(whole, MOST)
    if len(pairs) < FEWEST:
        return None
    text = "\n".join(source for source, _ in pairs)
    usual = Usual.learn(*_some_text(training.source, ENOUGH), translator.tokenizers.source.size, text)
    planted = [line for kind in plant(pairs, translator, Random(1)) for line in kind]
    every = answers(translator, [*(source for source, _ in pairs), *planted])  # together: batches are fuller
    real, false = every[: len(pairs)], every[len(pairs) :]
    good = are_good([translation for _, translation in real], [target for _, target in pairs])
    return _fit([a for a, _ in real], [a for a, _ in false], good, usual)


def _some_text(side: Side, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentences of about so many tokens together, end to end, and where each begins; once, however often it is read."""
    each = np.unique(side.begins, return_index=True)[1]
    many = int(len(each) * min(1.0, most / len(side.ids)))
    chosen = each[np.array(drawn(range(len(each)), many))]
    lengths = side.lengths[chosen]
    return np.concatenate([side.sentence(i) for i in chosen]), lengths.cumsum() - lengths


def are_good(translations: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """As far as one reference can tell, by n-grams as long as a word is: by six, hardly anything but the reference is
    good in Chinese."""
    longest = 2 if script_of("\n".join(references)) in ("Chinese", "Japanese") else 6
    return np.array(chrf_of_each(translations, references, longest)) >= GOOD


def answers(translator: Translator, lines: Sequence[str]) -> list[tuple[Answer, str]]:
    """What becomes of some lines, and their translations; what is empty, or fails, counts as most improbable."""
    tokenizers, longest = translator.tokenizers, translator.lengths.longest
    sentences = sentences_of(lines, tokenizers.source, longest, False, tokenizers.protection)
    found = []
    for sentence, t in zip(sentences, translator.with_search(split=False).translate(lines), strict=True):
        best = t.candidates[0] if t.candidates else None
        written, probability = (best.tokens, best.log_probability) if best else ((), -100.0)
        found.append((Answer(sentence.text, sentence.source or [UNKNOWN], written, probability), t.text))
    return found


def plant(pairs: Sequence[tuple[str, str]], translator: Translator, random: Random) -> list[list[str]]:
    """Lines that no model can translate, a list a kind, each made of a third of the text: to translate them takes as
    long as the text itself."""
    some = pairs[::3]
    tokenizer = translator.tokenizers.source
    sources = [source for source, _ in some]
    pieces = [[random.randrange(4, tokenizer.size) for _ in range(random.randint(3, 15))] for _ in some]
    return [
        [_shuffled_words(source, random) for source in sources if len(source) > 8],
        ["".join(random.sample(source, len(source))) for source in sources],
        [target for _, target in some],
        [normalise(tokenizer.decode(ids)) or "?" for ids in pieces],
    ]


def _shuffled_words(text: str, random: Random) -> str:
    words = text.split()
    if len(words) < 3:  # a script without spaces
        return "".join(random.sample(text, len(text)))
    return " ".join(random.sample(words, len(words)))


def _fit(real: list[Answer], false: list[Answer], good: np.ndarray, usual: Usual) -> Trust | None:
    ratio = float(np.median([np.log((len(a.tokens) + 1) / (len(a.source) + 1)) for a in real]))
    x = np.concatenate([features(real, usual, ratio), features(false, usual, ratio)])
    means, scales = x.mean(0), x.std(0) + 1e-6
    x = (x - means) / scales
    is_false = np.arange(len(x)) >= len(real)
    teaches = np.arange(len(x)) % 2 == 0
    doubt = logistic(x[teaches], is_false[teaches])
    z = x @ doubt[:-1] + doubt[-1]
    limit = float(np.quantile(z[~is_false], 1 - FALSE_ALARMS))
    far = float(np.quantile(z[is_false & ~teaches], MISSED))
    limit = max(limit, (limit + far) / 2)  # where there is a gap, in its middle: text in use is never quite like this
    if (z[is_false & ~teaches] > limit).mean() < WORTH:
        return None
    weights = np.where(is_false, PLANTED * len(real) / max(1, len(false)), 1.0)
    confidence = logistic(x, np.concatenate([good, np.zeros(len(false), bool)]), weights)
    shares = unknown_shares(real)
    limits = np.array([limit, max(0.1, float(np.quantile(shares, 0.99))), ratio], np.float32)
    assert x.shape[1] == len(FEATURES)
    means, scales, doubt, confidence = (value.astype(np.float32) for value in (means, scales, doubt, confidence))
    return Trust(usual, means, scales, doubt, confidence, limits)


def logistic(x: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, steps: int = 25) -> np.ndarray:
    """A weight for each column and a constant, by Newton's method, with a little pull towards zero."""
    x = np.column_stack([x, np.ones(len(x))])
    weights = np.ones(len(x)) if weights is None else weights
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        gradient = x.T @ (weights * (p - y)) + 1.0 * w
        curvature = (x * (weights * p * (1 - p))[:, None]).T @ x + np.eye(len(w))
        w = w - np.linalg.solve(curvature, gradient)
    return w
