"""What training on a text takes, for transduce doctor: the vocabulary that it would have, tokens, memory, time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from transduce.errors import SettingsError
from transduce.report import SILENT
from transduce.settings.sections import BATCH_TOKENS, Settings

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus
    from transduce.data.count import Lengths
    from transduce.data.survey import HoldOut, Survey
    from transduce.text.tokenizers import Tokenizers
    from transduce.training.recipe import Recipe

FEWEST = 32  # tokens of a vocabulary that is tried


def vocabulary_of_training(surveyed: Survey, hold_out: HoldOut, settings: Settings) -> tuple[Tokenizers, Settings]:
    """The vocabulary that training would use, and the settings that ask for it: as they are, or with the largest half,
    quarter, ... of text.vocabulary that the text supports."""
    from transduce.training.prepare import learn_vocabulary

    size, refused = settings.text.vocabulary, None
    while size >= FEWEST:
        smaller = replace(settings, text=replace(settings.text, vocabulary=size))
        try:
            return learn_vocabulary(surveyed, hold_out, smaller), smaller
        except SettingsError as error:
            size, refused = size // 2, refused or error
    raise refused or SettingsError(f"text.vocabulary={size} is too small to be tried; set it to {FEWEST} or more")


def tokens_of_training(corpus: Corpus, validates: bool, wanted: Settings | Recipe) -> tuple[Lengths, Settings]:
    """Tokens of each pair as training counts them, and its settings; `validates`: there is validation text, so none is
    set aside."""
    from transduce.data.count import count_tokens
    from transduce.data.raw import Raw
    from transduce.data.survey import HoldOut, survey
    from transduce.data.tokenize import Job
    from transduce.training.prepare import settle
    from transduce.training.recipe import Recipe, settings_of

    raw = Raw(corpus)
    surveyed = survey(raw, sample=True)
    hold_out = HoldOut() if validates else surveyed.hold_out(settings_of(wanted).data.hold_out)
    if isinstance(wanted, Recipe):
        settings, tokenizers = settle(surveyed, hold_out, wanted, SILENT)
    else:
        tokenizers, settings = vocabulary_of_training(surveyed, hold_out, wanted)
    taken = (pair for pair in raw if hold_out.leaves(pair.line))
    return count_tokens(taken, Job(tokenizers, settings.data, teaches=True)), settings


def epoch_tokens(lengths: Lengths, stretches: list[int], settings: Settings) -> tuple[int, int]:
    """Source and target tokens of an epoch, by the weights of its parts; `stretches`: the lines of each."""
    import numpy as np

    part = np.searchsorted(np.cumsum(stretches), lengths.lines)
    weights = np.array(settings.data.weight or [1] * len(stretches))[part]
    source, target = (lengths.tokens * weights[:, None]).sum(0).tolist()
    return source, target


def describe_cost(tokens: tuple[int, int], pairs: int, settings: Settings) -> Iterator[str]:
    """What training takes on this machine, roughly."""
    from transduce.training.recipe import USED

    m = settings.model
    slots = BATCH_TOKENS if settings.batch.tokens == "auto" else settings.batch.tokens
    batches = max(1, round((max(tokens) + pairs) * 1.05 / slots))  # every sentence has an end
    weights, device, speed = _try_updates(settings)
    memory = 16 * weights + slots * (4 * m.layers * (16 * m.d_model + 2 * m.d_ff) + 8 * settings.text.vocabulary)
    yield (
        f"training: {tokens[0]:,} source and {tokens[1]:,} target tokens, about {batches:,} batches of {slots:,} an "
        f"epoch; {weights / 1e6:.1f} million weights, about {memory / 1e9:.1f} GB"
    )
    minutes, t = batches * slots / speed / 60, settings.training
    if t.steps:
        limit = f"{t.steps:,} steps are {t.steps / batches:.1f} epochs or {minutes * t.steps / batches / 60:,.1f} hours"
    elif t.epochs:
        limit = f"{t.epochs} epochs are {minutes * t.epochs / 60:,.1f} hours"
    else:
        limit = f"{t.minutes or 0:g} minutes are {USED * (t.minutes or 0) / max(minutes, 1e-9):.1f} epochs"
    yield (
        f"on this machine ({device}) about {speed:,.0f} tokens a second by a short try, so {minutes:,.1f} "
        f"minutes an epoch; {limit}"
    )


def _try_updates(settings: Settings) -> tuple[int, str, float]:
    """Number of weights, device, and target tokens a second of forward and backward on random text."""
    import torch

    from transduce.core.rows import Rows
    from transduce.models.device import prepare_device
    from transduce.models.kinds import new_model

    device, size = prepare_device("auto"), max(8, settings.text.vocabulary)
    model = new_model(settings.model, size, size).to(device).train()
    rows, slots = 8, 24
    ids = torch.randint(4, size, (rows, slots), device=device)
    text = Rows(ids, torch.ones_like(ids), torch.arange(slots, device=device).expand(rows, slots))
    seconds = []
    for _ in range(3):  # the first one warms up
        begin = time.perf_counter()
        model(text, text).logsumexp(-1).sum().backward()
        float(next(model.parameters()).detach().sum())  # waits for a GPU
        seconds.append(time.perf_counter() - begin)
    return sum(weight.numel() for weight in model.parameters()), device, rows * slots / min(seconds)
