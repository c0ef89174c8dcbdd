"""The learning rate at each step, counted from 1. All schedules rise linearly for `warmup` steps."""

from __future__ import annotations

import math

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


def learning_rate(step: int, o: OptimizerSettings, d_model: int, steps: int | None) -> float:
    """The rate that the settings ask for at this step."""
    if o.schedule == "noam":
        return noam(step, d_model, o.warmup, o.factor)
    if o.schedule == "inverse_sqrt":
        return inverse_sqrt(step, o.rate, o.warmup)
    if o.schedule == "cosine":
        assert steps is not None  # settings/checks.py has seen to it
        return cosine(step, o.rate, o.warmup, steps)
    return constant(step, o.rate, o.warmup)
