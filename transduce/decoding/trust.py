"""How far a translation can be trusted, without a reference to compare it with.

A model writes fluently whatever it reads. What gives away that it does not know what it is talking about: a low
probability of its own words; source tokens that never stood side by side in its training text (another language,
shuffled words), or are rare there; letters of another script; words that had to be cut into crumbs; an unusual length;
a translation that repeats itself. A rule over these is found on validation text when training ends
(training/calibrate.py) and lies in the model folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from transduce.core.special import END, UNKNOWN
from transduce.errors import ModelError
from transduce.files.manifest import read_manifest, verify
from transduce.models.weights import read_tensors
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise
from transduce.text.scripts import NAMES, script_ids
from transduce.text.tokenizers import FOREIGN

TRUST = "trust.safetensors"
HASHES = ((1_000_003, 7_919), (15_485_863, 999_983))  # of pairs of tokens: factors of the first and of the second
ROOM, MOST_PLACES = 4, 2**21  # places of a table for every pair that was seen, at least; and at the most
STEPS = 16  # of a count's logarithm, kept in a byte
SHARE = {1: 0.8, 2: 0.9}  # by tables: what a pair of tokens counts for, beside the second of them alone
HOPELESS = 0.01  # confidence below which a translation is doubtful, however usual its source is
OLD_PLACES = 2**18  # of the one table that rules of an older version have
OLD_FEATURES = ("log-probability", "surprise", "worst half", "unseen pairs", "crumbs", "ratio", "repetition", "length")
FEATURES = (*OLD_FEATURES, "rare tokens", "foreign letters")  # rules of an older version go without these two


class Answer(NamedTuple):
    """A sentence and what became of it."""

    text: str
    source: Sequence[int]
    tokens: Sequence[object]  # of the translation
    log_probability: float


class Verdict(NamedTuple):
    confidence: float  # how probable it is that the translation is good
    status: str  # unknown, doubtful or ok


@dataclass(frozen=True)
class Usual:
    """How usual tokens of the source are, tokens side by side, and the scripts of its letters.

    Pairs are counted in two tables, each by a hash of its own: where one has mixed a pair with others, the other rarely
    has, so the lesser count is right (a count-min sketch; Cormode and Muthukrishnan, 2005).
    """

    tokens: np.ndarray  # (vocabulary,) float32: counts
    pairs: np.ndarray  # (tables, places) uint8: logarithms of counts
    letters: np.ndarray  # (scripts,) float32: counts; the first, of what is no letter, is 0

    @staticmethod
    def learn(ids: np.ndarray, begins: np.ndarray, vocabulary: int, text: str = "") -> Usual:
        """From sentences end to end, which begin there; one that is read several times an epoch counts once. `text`:
        some of it, for its letters."""
        ids = _with_ends(ids, np.unique(begins))
        before, after = ids[:-1], ids[1:]
        seen = len(np.unique(before * vocabulary + after))
        places = min(MOST_PLACES, 1 << (ROOM * seen - 1).bit_length())
        counts = np.stack([np.bincount(_place(before, after, by, places), minlength=places) for by in HASHES])
        logarithms = np.minimum(255, np.round(STEPS * np.log1p(counts))).astype(np.uint8)
        letters = np.bincount(script_ids(text), minlength=len(NAMES)).astype(np.float32)
        letters[0] = 0
        return Usual(np.bincount(ids, minlength=vocabulary).astype(np.float32), logarithms, letters)

    def surprise(self, before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How surprising the second of each pair of tokens is, in nats; and whether the pair was never seen."""
        counted = [table[_place(before, after, by, len(table))] for by, table in zip(HASHES, self.pairs, strict=False)]
        seen = np.expm1(np.min(counted, axis=0) / STEPS)
        alone = self.share(after)
        together = np.minimum(1.0, seen / np.maximum(self.tokens[before], 1.0))
        share = SHARE[len(self.pairs)]
        return -np.log(share * together + (1 - share) * alone), seen < 0.5

    def share(self, tokens: np.ndarray) -> np.ndarray:
        """What share of the text each of these tokens is; none is nothing."""
        return (self.tokens[tokens] + 0.1) / (self.tokens.sum() + 0.1 * len(self.tokens))

    def foreign(self, texts: Sequence[str]) -> np.ndarray:
        """How unusual the scripts of their letters are, in nats a letter; of signs and digits alone, not at all."""
        shares = (self.letters + 0.001 * self.letters.sum() + 1e-6) / (self.letters.sum() + 1e-6)
        ids, which = script_ids("".join(texts)), np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        letters, which = ids[ids > 0], which[ids > 0]
        total = np.bincount(which, -np.log(shares)[letters], len(texts))
        return total / np.maximum(1, np.bincount(which, minlength=len(texts)))


def _with_ends(ids: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """END before, between and after sentences: how they begin and end is as telling as anything."""
    return np.append(np.insert(ids.astype(np.int64), begins, END), END)


def _place(before: np.ndarray, after: np.ndarray, factors: tuple[int, int], places: int) -> np.ndarray:
    return (before * factors[0] + after * factors[1]) % places


@dataclass(frozen=True)
class Trust:
    """The rule: logistic regressions over FEATURES, each a weight a feature and a constant."""

    usual: Usual
    means: np.ndarray
    scales: np.ndarray
    doubt: np.ndarray
    confidence: np.ndarray
    limits: np.ndarray  # (3,): the doubt that is too much, the share of unknown tokens that is, the usual ratio

    def judge(self, answers: Sequence[Answer]) -> list[Verdict]:
        """Each by itself, all at once."""
        if not answers:
            return []
        known = features(answers, self.usual, float(self.limits[2]))[:, : len(self.means)]
        x = (known - self.means) / self.scales
        confidence = 1 / (1 + np.exp(-np.clip(x @ self.confidence[:-1] + self.confidence[-1], -30, 30)))
        doubtful = x @ self.doubt[:-1] + self.doubt[-1] > self.limits[0]
        unknown = unknown_shares(answers) > self.limits[1]
        words = np.where(unknown, "unknown", np.where(doubtful, "doubtful", "ok"))
        confidence = np.where(unknown, 0.0, confidence)
        words = np.where((words == "ok") & (confidence < HOPELESS), "doubtful", words)
        return [Verdict(round(float(c), 4), str(word)) for c, word in zip(confidence, words, strict=True)]

    def tensors(self) -> dict[str, torch.Tensor]:
        """For a file."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "usual"}
        return {name: torch.from_numpy(value) for name, value in {**own, **vars(self.usual)}.items()}


def usual_of(trust: Trust | None, text: TextSettings) -> Usual | None:
    """What the text that was learned is like; None, where words are cut otherwise alone than in a sentence, or marks of
    languages stand before them."""
    if trust is None or text.source_language is not None or text.tokenizer in FOREIGN:
        return None
    return trust.usual


def unknown_shares(answers: Sequence[Answer]) -> np.ndarray:
    """The share of unknown tokens in each source."""
    return np.array([list(a.source).count(UNKNOWN) / max(1, len(a.source)) for a in answers])


def features(answers: Sequence[Answer], usual: Usual, usual_ratio: float) -> np.ndarray:
    """(answers, FEATURES). White space around a text, or more than one space within, tells nothing of it."""
    texts = [normalise(answer.text) for answer in answers]
    lengths = np.array([len(answer.source) for answer in answers])
    written = np.array([len(answer.tokens) for answer in answers])
    surprise, worst, unseen = _surprises(answers, lengths, usual)
    ratio = np.log((written + 1) / (lengths + 1))
    return np.column_stack([
        np.array([answer.log_probability for answer in answers]) / (written + 1),
        surprise,
        worst,
        unseen,
        np.log(np.array([len(text) for text in texts]) / np.maximum(lengths, 1) + 0.1),
        np.abs(ratio - usual_ratio),
        np.array([_repetition(answer.tokens) for answer in answers]),
        np.log1p(lengths),
        -_means(np.log(usual.share(np.concatenate([np.asarray(a.source, np.int64) for a in answers]))), lengths),
        usual.foreign(texts),
    ])  # fmt: skip


def _surprises(answers: Sequence[Answer], lengths: np.ndarray, usual: Usual) -> tuple[np.ndarray, ...]:
    """For each source the mean surprise, that of the worst half of its tokens, and the share of pairs never seen."""
    ids = np.concatenate([np.asarray(answer.source, np.int64) for answer in answers])
    ids = _with_ends(ids, lengths.cumsum() - lengths)
    surprise, unseen = usual.surprise(ids[:-1], ids[1:])
    which = np.repeat(np.arange(len(answers)), lengths + 1)
    pairs = lengths + 1
    mean = np.bincount(which, surprise, len(answers)) / pairs
    order = np.lexsort((-surprise, which))  # within each source, the worst first
    first = np.searchsorted(which[order], np.arange(len(answers)))
    rank = np.arange(len(which)) - first[which[order]]
    half = rank < (pairs[which[order]] + 1) // 2
    worst = np.bincount(which[order][half], surprise[order][half], len(answers)) / ((pairs + 1) // 2)
    return mean, worst, np.bincount(which, unseen, len(answers)) / pairs


def _means(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Of stretches of these lengths, none of which is empty."""
    return np.add.reduceat(values, lengths.cumsum() - lengths) / lengths


def _repetition(tokens: Sequence[object]) -> float:
    """The share of pairs of tokens that stood there before."""
    pairs = list(zip(tokens, tokens[1:], strict=False))
    return 1 - len(set(pairs)) / len(pairs) if pairs else 0.0


def read_trust(folder: Path, vocabulary: int) -> Trust | None:
    """From a model folder; None where it has none. `vocabulary`: tokens of the source."""
    if TRUST not in read_manifest(folder):
        return None
    verify(folder, [TRUST])
    stored = read_tensors(folder / TRUST)
    stored.setdefault("letters", torch.zeros(len(NAMES)))
    pairs, means = stored.pop("pairs", torch.zeros(0)), stored.get("means", torch.zeros(0))
    count = len(OLD_FEATURES) if means.shape == (len(OLD_FEATURES),) else len(FEATURES)
    if pairs.shape == (OLD_PLACES,):
        pairs = pairs.unsqueeze(0)
    known = pairs.dim() == 2 and len(pairs) in SHARE and 0 < pairs.size(1) <= MOST_PLACES
    if not known or pairs.dtype != torch.uint8:
        raise ModelError(f"{folder / TRUST} is damaged: pairs is not what it should be; train anew")
    shapes = {
        "tokens": (vocabulary,),
        "letters": (len(NAMES),),
        "limits": (3,),
        "means": (count,),
        "scales": (count,),
    }
    shapes |= {"doubt": (count + 1,), "confidence": (count + 1,)}
    for name, shape in shapes.items():
        value = stored.get(name, torch.zeros(0)).double()
        counts = name in ("tokens", "letters")
        negative = (counts and bool((value < 0).any())) or (name == "scales" and bool((value <= 0).any()))
        if tuple(value.shape) != shape or negative or not value.isfinite().all():
            raise ModelError(f"{folder / TRUST} is damaged: {name} is not what it should be; train anew")
    arrays = {name: value.float().numpy() for name, value in stored.items() if name in shapes}
    return Trust(Usual(arrays.pop("tokens"), pairs.numpy(), arrays.pop("letters")), **arrays)
