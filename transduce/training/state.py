"""The run state: where a run stands, as state.json in every checkpoint keeps it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from transduce.core.schedule import Decay
from transduce.errors import ModelError
from transduce.files import strict_json
from transduce.files.reading import read_bytes
from transduce.files.run_folder import STATE
from transduce.training.validation import Validation

LARGEST = 50_000_000  # bytes: a validation is some fifty
HIGHEST = 2**62  # of whole numbers


@dataclass
class RunState:
    """All that decides how a run goes on, but for weights, optimizer and random states."""

    step: int = 0  # updates done, or skipped
    epoch: int = 0  # passes begun, from 0
    batch: int = 0  # batches of this epoch already used
    seconds: float = 0.0  # time spent, earlier sessions included
    before_updates: float = 0.0  # of them, until the first update of each session was done: preparing, compiling
    target_tokens: int = 0
    rate_squares: float = 0.0  # sum of the squared learning rates, by which Schedule-Free weighs its average
    data: str = ""  # name of the token store: the text that is trained on
    grown: int | None = None  # the step at which further text came to it
    valid_data: str | None = None  # and that is validated on; "": there is none; none: an older version did not say
    layout: str = "buckets"  # of its batches, by which `batch` counts
    batch_tokens: int = 0  # slots of a batch, where batch.tokens=auto has found them
    decay_begin: int | None = None  # of optimizer.schedule=wsd, as soon as it is decided (ending.py)
    decay_end: int | None = None
    decay_seen: int = 0  # the step at which a clock last said where that is
    decay_for: str = ""  # the limits that it was decided for
    impatient: int = 0  # 1: it began since training.patience was over
    calm: float = 1.0  # times the learning rate: less than 1 after the run has diverged (divergence.py)
    lowest_loss: float | None = None  # of all windows of updates (divergence.py)
    loss_conditions: str = ""  # dropout and precision, by which losses can be compared
    comparable_loss: float | None = None  # the lowest since these are what they are
    worse_windows: int = 0  # in a row, far above it
    window_begin: int = 0  # the step at which the window now open began
    window_total: float = 0.0  # the loss summed in it
    window_tokens: int = 0
    doubts: int = 0  # validations in a row after which many pairs did not seem to belong together (pairing.py)
    apart: float | None = None  # once it is known: the share of a text's pairs that do not
    validated: int = 0  # the step of the last validation
    validation_seconds: float = 0.0  # that one takes, of late
    best_loss: float | None = None
    best_score: float | None = None
    since_best: int = 0  # validations without a better one
    validations: list[tuple[int, float | None, float | None]] = field(default_factory=list)  # step, loss, score
    loss_total: float = 0.0  # since the last line of metrics.jsonl
    loss_tokens: int = 0
    usual_loss: float = 0.0  # of the lines so far
    lines: int = 0
    skipped: int = 0  # updates whose loss or gradient was no number
    skipped_in_a_row: int = 0

    @property
    def decay(self) -> Decay | None:
        return None if self.decay_begin is None or self.decay_end is None else Decay(self.decay_begin, self.decay_end)

    @property
    def best(self) -> Validation | None:
        return None if self.best_loss is None else Validation(self.best_loss, self.best_score)

    def validation_of(self, step: int) -> Validation | None:
        """What was found at that step."""
        found = {at: Validation(loss, score) for at, loss, score in self.validations if loss is not None}
        return found.get(step)

    def best_steps(self) -> list[int]:
        """The steps that were validated, the best first; of equal ones the earlier. A later one goes before those that
        it beats, as far as it beats all of them: what beats the first need not beat the second."""
        best: list[tuple[int, Validation]] = []
        for step, loss, score in self.validations:
            if loss is not None:  # there was validation text
                new, place = (step, Validation(loss, score)), len(best)
                while place and self._beats(new, best[place - 1]):
                    place -= 1
                best.insert(place, new)
        return [step for step, _ in best]

    def _beats(self, new: tuple[int, Validation], old: tuple[int, Validation]) -> bool:
        """In the decay a lower loss is enough against what was found before it: a higher score at the full learning
        rate was luck with some lines."""
        decay = math.inf if self.decay_begin is None else self.decay_begin
        by_loss = old[0] <= decay < new[0] and new[1].loss < old[1].loss
        return by_loss or new[1].better_than(old[1])

    def add_validation(self, result: Validation | None) -> bool:
        """Note a validation of this step, or that there is no text for one; tells whether it is the best so far."""
        champion = self.best_steps()[:1]
        self.validations.append((self.step, *(result or (None, None))))
        self.validated = self.step
        if result is None:
            return False
        if champion and self.best is not None and self.validation_of(champion[0]) == self.best:
            better = self.best_steps()[0] == self.step
        else:  # the best is an earlier run's end, and the model until it is beaten
            better = result.better_than(self.best)
        self.since_best = 0 if better else self.since_best + 1
        if better:
            self.best_loss, self.best_score = result.loss, result.score
        return better

    def add_validation_time(self, seconds: float) -> None:
        """The mean of it and of what was, in which the older counts less: one alone may have waited for another
        program, or for a GPU to compile."""
        before = self.validation_seconds
        self.validation_seconds = (before + seconds) / 2 if before else seconds

    def go_on_as(self, fresh: RunState) -> None:
        """Go on with the text, dropout and precision of a new session. Text that has grown begins with a new pass over
        it. Where what was set aside of it has grown too, what was found on less of it is no measure any more."""
        if self.valid_data != fresh.valid_data:
            self.validations, self.validated, self.since_best = [], self.step, 0
            self.best_loss, self.best_score = None, None
        if self.data != fresh.data:
            self.epoch, self.batch, self.grown = self.epoch + (self.batch > 0), 0, self.step
            self.doubts, self.apart = 0, None
            self.lowest_loss = None  # what is new may be harder
            self.usual_loss, self.lines = 0.0, 0
            self.loss_total, self.loss_tokens = 0.0, 0
        if self.loss_conditions != fresh.loss_conditions:
            self.calm = 1.0  # what was found too fast before, need not be now
        if self.data != fresh.data or self.loss_conditions != fresh.loss_conditions:
            self.comparable_loss, self.worse_windows = None, 0
            self.window_begin, self.window_total, self.window_tokens = self.step, 0.0, 0
        self.data, self.valid_data = fresh.data, fresh.valid_data
        self.loss_conditions = fresh.loss_conditions

    def to_json(self) -> bytes:
        return strict_json.dumps(asdict(self), indent=1).encode()


def read_state(checkpoint: Path) -> RunState:
    """Where the run stood; a checkpoint of an older version may say less."""
    path = checkpoint / STATE
    try:
        stored = strict_json.loads(read_bytes(path, LARGEST))
        state = RunState(
            **{f.name: _checked(f.name, f.type, stored[f.name]) for f in fields(RunState) if f.name in stored}
        )
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return state


def _checked(name: str, kind: Any, value: Any) -> Any:
    """A field as its type says; a ValueError otherwise."""
    kind = str(kind)
    if kind.startswith("list"):
        return [_checked_validation(entry) for entry in value]
    if (value is None and "None" in kind) or (isinstance(value, str) and "str" in kind and _is_text(value)):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {str(value)[:40]!r}")
    if "int" in kind and (not isinstance(value, int) or not 0 <= value < HIGHEST):
        raise ValueError(f"{name} is {str(value)[:40]}")
    if "str" in kind:
        raise ValueError(f"{name} is no text")
    return value


def _is_text(value: str) -> bool:
    """Whether it can be written to a file: half of a character cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _checked_validation(entry: Any) -> tuple[int, float | None, float | None]:
    step, loss, score = entry
    return (
        _checked("validations", "int", step),
        _checked("validations", "float | None", loss),
        _checked("validations", "float | None", score),
    )
