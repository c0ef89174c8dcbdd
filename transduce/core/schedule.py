"""The learning rate at each step, counted from 1. All schedules rise linearly for `warmup` steps."""

from __future__ import annotations

import math
from typing import NamedTuple

from transduce.settings.sections import OptimizerSettings


def noam(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """factor · d_model^{-1/2} · min(step^{-1/2}, step · warmup^{-3/2}), section 5.3 of the paper."""
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def inverse_sqrt(step: int, rate: float, warmup: int) -> float:
    """Noam with its peak named instead of derived."""
    return rate * min(step / warmup, math.sqrt(warmup / step))


def cosine(step: int, rate: float, warmup: int, steps: int) -> float:
    """Half a cosine from the peak down to zero at `steps`."""
    if step <= warmup:
        return rate * step / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return rate * 0.5 * (1 + math.cos(math.pi * progress))


def constant(step: int, rate: float, warmup: int) -> float:
    return rate * min(1.0, step / warmup)


class Decay(NamedTuple):
    """Where the rate of a run falls."""

    begin: int  # the last step at the full rate
    end: int  # the last step of the run, after which it would be zero


def wsd(step: int, rate: float, warmup: int, decay: Decay | None) -> float:
    """Warm-up, stable, decay: the full rate until the end of the run is near, then 1 - √(share of the decay done).

    The stable part does not know how long the run will be, so that it can be extended (Hägele et al., 2024).
    """
    highest = rate * min(1.0, step / warmup)
    if decay is None or step <= decay.begin:
        return highest
    return highest * (1 - math.sqrt(min(1.0, (step - decay.begin - 1) / (decay.end - decay.begin))))


def learning_rate(
    step: int, o: OptimizerSettings, d_model: int, steps: int | None, decay: Decay | None = None
) -> float:
    """The rate that the settings ask for at this step. `decay`: of wsd, as soon as it is decided."""
    if o.schedule == "wsd":
        return wsd(step, o.rate, o.warmup, decay)
    if o.schedule == "noam":
        return noam(step, d_model, o.warmup, o.factor)
    if o.schedule == "inverse_sqrt":
        return inverse_sqrt(step, o.rate, o.warmup)
    if o.schedule == "cosine":
        assert steps is not None  # settings/checks.py has seen to it
        return cosine(step, o.rate, o.warmup, steps)
    return constant(step, o.rate, o.warmup)
