"""How a run ends: where the learning rate begins to fall (optimizer.schedule=wsd), so that the run is done, decayed,
validated and averaged, when its steps or its minutes are over.

A clock never shows the same twice. So what it decides is written into the run state with a checkpoint, and followed
after a stop: where the decay begins (earlier, if training.patience is over), and with each validation in it and
half-way to its end, how many updates are left. The checkpoint before the decay, the last one at the full rate, is
kept: whoever gives the run more time later goes on from there, and the rate does not jump.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from transduce.core.schedule import Decay
from transduce.settings.sections import Settings
from transduce.training.state import RunState

FEWEST = 20  # updates, before their pace is believed
CLOSING = 5  # validations' worth of time that the end takes: the last weights, an average, the head that aligns, trust
CLOSING_ON_GPU = 3  # whose full batches translate the lines for trust nearly as fast as it translates fewer
SHORT = 0.1  # of a decay, in which its end is not corrected any more
NEAR = 0.25  # of the updates between two validations: one that is so near to the end is left to the end
FINISHING, ON_GPU = 5.0, 8.0  # seconds for the rest of it: engines are made once more, the curve is drawn
SMALL_SHARE = 0.06  # of the time, that is the most for it


class Pace:
    """How long updates and validations take on this machine, in seconds."""

    def __init__(self) -> None:
        self.updates, self.spent = 0.0, 0.0
        self._last: float | None = None

    def tick(self) -> None:
        """An update is done."""
        now = time.monotonic()
        if self._last is not None:
            self.updates, self.spent = self.updates + 1, self.spent + now - self._last
        self._last = now

    def pause(self) -> None:
        """What comes next is no update. What was before it counts less and less: machines change their pace. But so
        many updates are remembered that it is known at all."""
        self._last = None
        kept = max(0.5, min(1.0, FEWEST / max(self.updates, 1.0)))
        self.updates, self.spent = kept * self.updates, kept * self.spent

    @property
    def an_update(self) -> float | None:
        return self.spent / self.updates if self.updates >= FEWEST else None


@dataclass(frozen=True)
class Ending:
    """The limits of a run, as far as a decay can be fitted to them."""

    share: float  # of the time spent on updates that the decay takes, or of the steps
    steps: int | None
    seconds: float | None
    validate_every: int
    finishing: float = FINISHING
    closing: int = CLOSING
    patience: int | None = None  # validations without a better one, after which it begins

    @staticmethod
    def of(settings: Settings, updates_an_epoch: int, on_gpu: bool) -> Ending | None:
        """None: this schedule is not fitted to anything."""
        o, t = settings.optimizer, settings.training
        if o.schedule != "wsd":
            return None
        limits = [t.steps] if t.steps else []
        limits += [t.epochs * updates_an_epoch] if t.epochs else []
        seconds = 60 * t.minutes if t.minutes else None
        end = (ON_GPU, CLOSING_ON_GPU) if on_gpu else (FINISHING, CLOSING)
        return Ending(o.decay, min(limits, default=None), seconds, t.validate_every, *end, t.patience)

    def decide(self, state: RunState, seconds: float, pace: Pace) -> Decay | None:
        """The decay, if it is to begin with the next update. `seconds`: of the run so far."""
        step = state.step
        if self.is_out_of_patience(state):
            return Decay(step, self._earlier(step + max(1, round(self.share * step)), state, seconds, pace))
        if self.steps is not None and step >= round((1 - self.share) * self.steps):
            return Decay(step, max(self.steps, step + 1))
        if self.seconds is None:
            return None
        left = self._seconds_left(state, seconds)
        if left > self.share * (left + seconds - state.before_updates):
            return None
        end = self._end(state, seconds, pace)
        return None if end is None else Decay(step, end)

    def is_out_of_patience(self, state: RunState) -> bool:
        """Whether nothing becomes better at the full rate. Then it falls, in as long as it would in a run that ends
        here: a model that was never decayed is far from its best."""
        return self.patience is not None and state.since_best >= self.patience

    def is_to_be_corrected(self, state: RunState, pace: Pace) -> bool:
        """Half-way from the last time on, as long as that is worth a checkpoint: where validations are far between, a
        machine that becomes faster or slower would end the run far too early or late."""
        if self.seconds is None or state.decay is None or pace.an_update is None:
            return False
        begin, end = state.decay
        left, since = end - state.step, state.step - max(begin, state.decay_seen)
        return since >= left > (end - begin) * SHORT

    def is_near(self, state: RunState) -> bool:
        """Whether the last validation comes so soon that one now is not worth its time."""
        return state.decay is not None and 0 < state.decay.end - state.step < NEAR * self.validate_every

    def correct(self, state: RunState, seconds: float, pace: Pace) -> int | None:
        """The last step, by the clock as it is now; as it was, where steps decide or the pace is not known."""
        if self.seconds is None or state.decay is None or state.step >= state.decay.end:
            return state.decay_end
        if state.impatient:
            return self._earlier(state.decay.end, state, seconds, pace)
        return self._end(state, seconds, pace) or state.decay_end

    def _earlier(self, end: int, state: RunState, seconds: float, pace: Pace) -> int:
        """The same, or where steps or the clock end it before that."""
        limits = [end, *([self.steps] if self.steps is not None else [])]
        by_clock = None if self.seconds is None else self._end(state, seconds, pace)
        return max(state.step + 1, min([*limits, *([by_clock] if by_clock is not None else [])]))

    def _seconds_left(self, state: RunState, seconds: float) -> float:
        assert self.seconds is not None
        finishing = min(self.finishing, SMALL_SHARE * self.seconds)
        return self.seconds - seconds - finishing - self.closing * state.validation_seconds

    def _end(self, state: RunState, seconds: float, pace: Pace) -> int | None:
        """The last step that the time allows."""
        if pace.an_update is None:
            return None
        an_update = pace.an_update + state.validation_seconds / self.validate_every
        end = state.step + max(1, int(self._seconds_left(state, seconds) / an_update))
        return end if self.steps is None else min(end, max(self.steps, state.step + 1))
