"""Do the two sides of a text belong together? What the model has learned so far can tell.

A target is read after its own source and after seven others of about the same length, and its own takes a place among
them: the first, where it makes the target most probable. Where a pair does not belong together, every place is as
likely. Where it does, a model that has learned a little hardly ever gives it one of the last, long before it
translates anything. So the last places count the pairs that are apart, and the first place, among the rest, says
whether the model can tell; then the text is clear. Each text is judged by itself: what is set aside of one for
validation is as mixed up as the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from transduce.core.rows import Rows
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import PAD
from transduce.data.batches import Batch, Batches
from transduce.data.plan import bucketed
from transduce.training.state import RunState
from transduce.training.validate import Validator

MOST = 300  # pairs that are read, drawn from all of the text: files may alternate
FEWEST = 100
PLACES = 8
LAST = 2  # places, a quarter of them
TELLS = 0.7  # of the pairs that belong together had the first
MANY = 0.2  # of the pairs of a text: worth a word. Validation text of quite another kind may have as many, in order
LASTING = 2  # validations in a row: who knows a few words only takes the pairs without them for apart, but not for long
TOO_MANY = 0.7  # to say anything of the rest


class Pairing(NamedTuple):
    """What a model thinks of the pairs of a text."""

    apart: float  # the share that does not seem to belong together
    first: float  # of the others: where the own source was the best

    @property
    def is_clear(self) -> bool:
        return self.apart < TOO_MANY and self.first >= TELLS


def many_apart(state: RunState, model: Seq2Seq, training: Batches, validator: Validator) -> dict[str, float]:
    """Once, when the model can tell: the texts with many pairs that do not belong together. A doubt has to last."""
    validation = validator.batches
    if state.apart is not None or validation is None or validator.task.labels:
        return {}
    texts = (pairing_of(model, text, validation.budget, validator.device) for text in (training, validation))
    found = validator.processes.gather(texts_apart(*texts))[0]
    state.doubts = state.doubts + 1 if found else 0
    if found is None or 0 < state.doubts < LASTING:
        return {}
    state.apart = max(found.values(), default=0.0)
    return found


def texts_apart(training: Pairing, validation: Pairing) -> dict[str, float] | None:
    """The texts with many pairs that do not belong together; None as long as the model cannot tell."""
    texts = {"training": training, "validation": validation}
    if not any(text.is_clear for text in texts.values()):
        return None
    return {name: text.apart for name, text in texts.items() if text.apart > MANY}


@torch.no_grad()
def pairing_of(model: Seq2Seq, batches: Batches, budget: int, device: str) -> Pairing:
    """What it thinks of some of the pairs, read in batches of so many tokens."""
    sample = [batch for batch in _sample(batches, budget) if len(batch.pairs) >= PLACES]
    count = sum(len(batch.pairs) for batch in sample)
    if count < FEWEST:
        return Pairing(apart=0.0, first=0.0)
    model.eval()
    counts = torch.zeros(PLACES)
    for batch in sample:
        counts += torch.bincount(_places(model, batch.to(device)), minlength=PLACES).cpu()
    apart = min(1.0, PLACES / LAST * float(counts[-LAST:].sum()) / count)
    by_chance = apart / PLACES
    return Pairing(apart, (float(counts[0]) / count - by_chance) / (1 - apart) if apart < 1 else 0.0)


def _places(model: Seq2Seq, batch: Batch) -> torch.Tensor:
    """Each target's number of neighbours that have another target and a source that makes this one more probable."""
    own = _losses(model, batch.source, batch)
    places = torch.zeros_like(own, dtype=torch.long)
    for neighbour in range(1, PLACES):
        sources = Rows(*(part.roll(neighbour, 0) for part in batch.source))
        differ = (batch.target_out.roll(neighbour, 0) != batch.target_out).any(1)
        places += differ & (_losses(model, sources, batch) < own)
    return places


def _losses(model: Seq2Seq, source: Rows, batch: Batch) -> torch.Tensor:
    """-log p(target | source) of every row."""
    logits = model(source, batch.target_in).float()
    return F.cross_entropy(logits.transpose(1, 2), batch.target_out, ignore_index=PAD, reduction="none").sum(1)


def _sample(batches: Batches, budget: int) -> Iterator[Batch]:
    """Some pairs of the text, one a row, those of about one length together."""
    budget = max(budget, PLACES * batches.slots.longest)
    some = Batches(batches.store, replace(batches.settings, layout="buckets", tokens=budget), batches.seed)
    pairs = len(batches.store)
    drawn = np.random.default_rng(batches.seed).choice(pairs, min(MOST, pairs), replace=False)
    places = batches.store.places(np.sort(drawn), epoch=0).astype(np.int32)
    return (some.assemble(plan) for plan in bucketed(places, some.slots, budget))
