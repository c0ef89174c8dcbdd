"""Validation: the loss of held-out text, and the task's measure by decoding it. Every process takes its share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from transduce import evaluate
from transduce.core.loss import cross_entropy
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import END, UNKNOWN
from transduce.data.batches import Batches
from transduce.data.store import Store
from transduce.decoding.translator import Translator
from transduce.engine.auto import make_steps
from transduce.settings.sections import SearchSettings, Settings
from transduce.settings.task import Task, task_of
from transduce.text.normalise import normalise
from transduce.text.tokenizers import Tokenizers
from transduce.training.distributed import Processes
from transduce.training.validation import NOISE, Validation

ENOUGH = 1_000_000  # tokens, to know how frequent they are
WORST = 1e9  # stands for a loss that is no number, which JSON has none of


@dataclass(frozen=True)
class Validator:
    """Validation text, ready to be used again and again."""

    task: Task
    batches: Batches | None  # None: there is no validation text
    score: Callable[[Seq2Seq], float] | None  # the measure, in percent; None: nothing is decoded
    device: str
    processes: Processes
    guess: float = math.inf  # loss of guessing tokens by their frequency

    @torch.no_grad()
    def validate(self, model: Seq2Seq) -> Validation | None:
        """Judge the weights that the model holds now, without smoothing."""
        if self.batches is None:
            return None
        model.eval()
        total, count = 0.0, 0
        for batch in itertools.islice(self.batches.epoch(0), self.processes.rank, None, self.processes.count):
            batch = batch.to(self.device)
            loss = cross_entropy(model(batch.source, batch.target_in), batch.target_out)
            total += float(loss.total)
            count += int(loss.tokens)
        totals, counts = zip(*self.processes.gather([_finite(total), count]), strict=True)
        return Validation(_finite(sum(totals) / sum(counts)), self.score(model) if self.score else None)

    def describe(self, result: Validation, is_best: bool) -> str:
        """In words; what is of no use is never called best."""
        if result.is_a_guess(self.guess):
            verdict = ", no better than guessing words by their frequency"
        elif math.isfinite(self.guess) and result.score is not None and result.score < NOISE:
            verdict = " (of no use yet)"
        else:
            verdict = " (best so far)" if is_best else ""
        return result.describe(self.task.measure) + verdict


def guess_loss(store: Store) -> float:
    """The loss of a model that knows nothing but how frequent tokens are: the entropy of the target, without what the
    vocabulary cannot write."""
    step = 1 + len(store.target.ids) // ENOUGH  # through all of the text: it may be sorted
    counts = np.bincount(store.target.ids[::step], minlength=END + 1)
    counts[END] = round(counts.sum() / max(1.0, float(store.target.lengths.mean())))  # one a sentence
    counts[UNKNOWN] = 0
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _finite(loss: float) -> float:
    return loss if math.isfinite(loss) else WORST


def make_score(
    settings: Settings, tokenizers: Tokenizers, pairs: list[tuple[str, str]], device: str, processes: Processes
) -> Callable[[Seq2Seq], float] | None:
    """A function that decodes the sources of some pairs greedily and scores the result: BLEU, or accuracy of labels.
    None where there is nothing to score: no pairs, or terms and names that are too short for BLEU."""
    tokenize, task = settings.training.bleu_tokenizer, task_of(settings)
    evaluate.metrics(tokenize)  # complain now, not after an hour
    if not pairs:
        return None
    search = SearchSettings(beam=1, extra=settings.search.extra, tokens=settings.search.tokens, split=False)
    greedily = replace(settings, search=search)
    references = [target for _, target in pairs]
    share = [source for source, _ in pairs[processes.rank :: processes.count]]

    def decode(model: Seq2Seq) -> list[str]:
        translator = Translator(model, tokenizers, greedily, device, make_steps(model, device))
        shares = processes.gather([translation.text for translation in translator.translate(share)])
        return [shares[i % processes.count][i // processes.count] for i in range(len(pairs))]

    if task.labels:
        labels = [normalise(label) for label in references]
        return lambda model: 100 * evaluate.exact_match(decode(model), labels)
    if not evaluate.has_ngrams(references, tokenize):
        return None
    return lambda model: evaluate.bleu(decode(model), references, tokenize, settings.text.lowercase)
