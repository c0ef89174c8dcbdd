"""One update: batches in, gradients, one step of the optimizer out. No folder, no clock.

Also what the search for a batch size, `doctor` and the benchmarks use.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.core import optimizers
from transduce.core.flat import FlatWeights
from transduce.core.schedule import learning_rate
from transduce.core.seq2seq import Seq2Seq
from transduce.data.batches import Batch
from transduce.errors import SettingsError
from transduce.fast.modules import make_fast
from transduce.fast.recorded import RecordedGradients, can_record
from transduce.fast.working_copy import working_copy
from transduce.models.kinds import kind_of
from transduce.models.load import load
from transduce.report import SILENT, Report
from transduce.settings.sections import Settings, TrainingSettings
from transduce.training.average import MovingAverage
from transduce.training.carried import with_vectors
from transduce.training.distributed import ALONE, Processes
from transduce.training.faults import is_bad
from transduce.training.gradients import Gradients, PlainGradients, Teacher
from transduce.training.guided import Guide
from transduce.training.memory import BatchGradients
from transduce.training.overlap import GradientSum
from transduce.training.shares import Shares
from transduce.training.state import RunState


class Update(NamedTuple):
    """What one step of the optimizer saw. Tensors stay where they are until somebody looks."""

    step: int
    total: Tensor  # loss, smoothed, summed over target tokens
    tokens: int
    rate: float
    gradient: Tensor  # norm before clipping
    bad: Tensor  # 1.0: loss or gradient is no number, and nothing was changed
    places: np.ndarray  # of its sentences in the store


class Updater:
    """A model with its optimizer; `packed`: all batches have one shape, so that a GPU may record its work."""

    def __init__(
        self,
        model: Seq2Seq,
        settings: Settings,
        device: str,
        packed: bool = False,
        report: Report = SILENT,
        processes: Processes = ALONE,
        guide: Guide | None = None,
    ) -> None:
        self.model = model.to(device)
        self.settings = settings
        self.device = device
        self.processes = processes
        self.flat = FlatWeights(self.model)
        self.optimizer = optimizers.make_optimizer(self.flat, settings.optimizer)
        self.average = MovingAverage(self.flat, settings.training.ema) if settings.training.ema else None
        self.model.activation_dtype = _activation_dtype(settings.training.precision, device)
        self.gradients = self._make_gradients(packed, guide)
        self.shares = Shares(self.flat, settings, with_vectors(model, settings))
        self.sum = GradientSum(self.model, self.flat, processes, overlap=isinstance(self.gradients, PlainGradients))
        self.batch_gradients = BatchGradients(self.gradients, settings.batch.split, device, report)

    def _make_gradients(self, packed: bool, guide: Guide | None) -> Gradients:
        """As fast as this machine and these settings allow."""
        t, b = self.settings.training, self.settings.batch
        taught = t.teacher is not None or guide is not None
        if taught or not (t.fast and packed and can_record(self.device)):
            return PlainGradients(self.model, t.label_smoothing, self.flat, _teacher(t, self.device, packed), guide)
        working = working_copy(self.model, self.flat)
        make_fast(working.model)
        return RecordedGradients(working, self.flat, t.label_smoothing, accumulate=b.accumulate * b.split)

    def update(self, batches: list[Batch], state: RunState) -> Update:
        """One step of the optimizer on one or more batches, the loss divided by all their tokens; `state` counts it."""
        self.model.train()
        tokens = sum(batch.tokens for batch in batches)
        if isinstance(self.gradients, PlainGradients):
            self.gradients.is_guided = state.decay is None
        total = self.batch_gradients.add(batches, tokens, state.step + 1, self.sum)
        self.sum.finish(total)
        self.shares.freeze(state.step)
        norm = self._clip()
        bad = is_bad(total, norm)
        state.step += 1
        state.target_tokens += tokens
        o, t = self.settings.optimizer, self.settings.training
        rate = state.calm * learning_rate(state.step, o, self.settings.model.d_model, t.steps, state.decay)
        state.rate_squares += rate**2
        for group in self.optimizer.param_groups:
            group.update(lr=rate, number=state.step, share=rate**2 / state.rate_squares)
        with self.shares.slowed():
            optimizers.step(self.optimizer, bad)
        if self.average is not None:
            self.average.update(state.step, bad)
        self.gradients.clear()
        places = np.concatenate([batch.pairs for batch in batches])
        return Update(state.step, total, tokens, rate, norm, bad, places)

    def _clip(self) -> Tensor:
        """Shorten gradients longer than optimizer.clip to it; gives their norm before."""
        gradient, longest = self.flat.gradient, self.settings.optimizer.clip
        norm = gradient.norm()
        if longest is not None:
            gradient.mul_((longest / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def try_largest(self, find_largest: Callable[[], Batch]) -> None:
        """Make sure that the largest batch fits into memory, before hours are spent on smaller ones."""
        moments = 0 if self.optimizer.state else 2 * self.flat.weights.nbytes  # Adam's, made by the first update
        self.batch_gradients.try_first(find_largest, moments)

    def begin_again(self, first: Seq2Seq) -> None:
        """With the weights of a new model, and nothing remembered."""
        with torch.no_grad():
            for weight, new in zip(self.model.parameters(), first.parameters(), strict=True):
                weight.copy_(new)
        o, t = self.settings.optimizer, self.settings.training
        self.optimizer = optimizers.make_optimizer(self.flat, o)
        self.average = MovingAverage(self.flat, t.ema) if t.ema else None

    def final_weights(self) -> AbstractContextManager[None]:
        """Within, the model holds the weights that are meant to be used: their moving average, if there is one."""
        return self.average.in_place() if self.average else optimizers.final_weights(self.optimizer)


def _teacher(t: TrainingSettings, device: str, packed: bool) -> Teacher | None:
    if t.teacher is None:
        return None
    model, _, settings = load(t.teacher, device)
    if packed and not kind_of(settings.model).packs:
        raise SettingsError(f"training.teacher={t.teacher} reads one sentence a row: add --batch.layout buckets")
    return Teacher(model, t.teacher_share)


def _activation_dtype(precision: str, device: str) -> torch.dtype | None:
    """The dtype of activations in training; None: that of the weights, float32."""
    has_bfloat16 = device == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if precision == "bfloat16" or (precision == "auto" and has_bfloat16) else None
