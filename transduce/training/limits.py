"""When training ends: which limit is reached, and what share of the way to the nearest is done. Also for `watch`, so
without torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from transduce.settings.sections import TrainingSettings


@dataclass(frozen=True)
class Limits:
    """The limits of a run; None: there is no such."""

    steps: int | None
    epochs: int | None
    minutes: float | None
    patience: int | None

    @staticmethod
    def of(t: TrainingSettings) -> Limits:
        return Limits(t.steps, t.epochs, t.minutes, t.patience)

    def of_decay(self) -> str:
        """What a decay is fitted to, in words: all but patience."""
        return str(replace(self, patience=None))

    def reached(self, step: int, epoch: int, seconds: float, since_best: int) -> str:
        """The limit that has been reached before an update in this epoch, in words; empty if none has."""
        if self.steps is not None and step >= self.steps:
            return "all steps done"
        if self.epochs is not None and epoch >= self.epochs:
            return f"all {self.epochs} epochs done"
        if self.minutes is not None and seconds >= 60 * self.minutes:
            return f"{self.minutes:g} minutes are over"
        if self.patience is not None and since_best >= self.patience:
            return self._over_patience()
        return ""

    def _over_patience(self) -> str:
        return f"no better validation in the last {self.patience}"

    def reached_by_decay(self, end: int, most: int | None, impatient: int = 0) -> str:
        """The same at the end of a decay (ending.py); `most`: steps that there are by steps or epochs; `impatient`: it
        began before they asked for it."""
        if impatient and (most is None or end < most):
            return f"{self._over_patience()} at the full learning rate"
        if self.minutes is not None and (most is None or end < most):
            return f"{self.minutes:g} minutes are over"
        by_epochs = self.epochs is not None and (self.steps is None or end < self.steps)
        return f"all {self.epochs} epochs done" if by_epochs else "all steps done"

    def share_done(self, step: float, epochs: float, seconds: float) -> float:
        """The share of the way to the nearest limit; `epochs` with their fraction."""
        shares = [
            step / self.steps if self.steps else 0.0,
            epochs / self.epochs if self.epochs else 0.0,
            seconds / (60 * self.minutes) if self.minutes else 0.0,
        ]
        return min(1.0, max(shares))

    def words(self) -> list[str]:
        """All but patience."""
        words = [f"{self.steps:,} steps"] if self.steps else []
        words += [f"{self.epochs} epochs"] if self.epochs else []
        return words + ([f"{self.minutes:g} minutes"] if self.minutes else [])

    def describe(self, warmup: int) -> str:
        """When training will stop; and a word on a schedule that cannot unfold before that."""
        limits = self.words()
        limits += [f"{self.patience} validations without a better one"] if self.patience else []
        many = ", whichever comes first" if len(limits) > 1 else ""
        short = f"; optimizer.warmup={warmup} is longer than that" if self.steps and self.steps < warmup else ""
        return f"training stops after {' or '.join(limits)}{many}{short}"
