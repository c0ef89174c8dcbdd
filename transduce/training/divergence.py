"""Divergence: a loss that goes up and stays up, or never comes down, or stands still while it is high.

It is looked for in the mean loss of every 50 updates, whatever is logged, and in validations. The run then goes back to
its last checkpoint with a lower learning rate; where that has not helped twice, it stops.

Losses are compared as long as they mean the same: other text, dropout or precision begins a new comparison.
"""

from __future__ import annotations

import math

import torch

from transduce.errors import UserError
from transduce.settings.sections import ModelSettings
from transduce.training.meter import LossMeter
from transduce.training.state import RunState
from transduce.training.updater import Update
from transduce.training.validation import GUESS, HARDLY, Validation

WINDOW_UPDATES = 50  # whose mean loss is judged
WINDOW_TOKENS = 2_000  # target tokens it takes at least: the mean of a few short sentences is noise
WORSE = 1.3  # times the lowest loss
AT_LEAST = 0.5  # nats above it: where little is left of a loss, as with labels learned by heart, a third of it is noise
WINDOWS = 2  # so many in a row
CALMER = 0.2  # times the learning rate, each time
MOST = 2  # times that a run is calmed
LITTLE = 5.0  # BLEU of a model that is hardly of use
FEW_LINES = 50  # of validation text: too few to judge by
FLAT = ("wsd", "constant")  # schedules whose rate stays at its height: else a loss may well stand still
SLOW = 0.97  # of an earlier loss: what is above has not moved
PATIENCE = 300  # steps, in which every run may be a beginner


class LossWindow:
    """Sums the loss of updates until they are enough to be judged. What is summed so far is kept by checkpoints."""

    def __init__(self) -> None:
        self.meter = LossMeter()

    def resume(self, state: RunState) -> None:
        """Go on with a window that was half full."""
        self.meter.reset(state.window_total, state.window_tokens)

    def note(self, state: RunState) -> None:
        """Put what is summed so far into the state, for a checkpoint."""
        state.window_total, state.window_tokens = self.meter.sums

    def observe(self, update: Update, state: RunState) -> None:
        """Count one more update, and judge the window if it is full. Waits for a GPU then, and else never."""
        self.meter.add(update.total, update.tokens, update.bad)
        if state.step - state.window_begin < WINDOW_UPDATES:
            return
        total, tokens = self.meter.sums
        if tokens >= WINDOW_TOKENS:
            note_loss(state, total / tokens)
            state.window_begin = state.step
            self.meter.reset()


def note_loss(state: RunState, loss: float) -> None:
    """Compare the mean loss of a window with the lowest one so far."""
    lowest = loss if state.comparable_loss is None else min(loss, state.comparable_loss)
    is_worse = loss > max(WORSE * lowest, lowest + AT_LEAST)
    state.worse_windows = state.worse_windows + 1 if is_worse else 0
    state.comparable_loss = lowest
    state.lowest_loss = lowest if state.lowest_loss is None else min(lowest, state.lowest_loss)


def has_diverged(state: RunState) -> bool:
    return state.worse_windows >= WINDOWS


def loss_conditions(model: ModelSettings, activations: torch.dtype | None) -> str:
    """What the level of a training loss depends on beside the text, and may change when a run goes on: dropout, and the
    dtype of activations. Checkpoints keep it, to be compared."""
    everywhere = [model.dropout, model.embedding_dropout, model.residual_dropout]
    inside = [model.attention_dropout, model.feed_forward_dropout]
    return f"dropout {everywhere + inside}, {activations or torch.float32}"


def learns_nothing(state: RunState, result: Validation, guess: float, warmup: int) -> bool:
    """Whether a model is no better than one that guesses words by their frequency (a loss of `guess`), on the training
    text too, though the learning rate has long been high. Else it has learned by heart, which is no divergence."""
    has_learned = state.lowest_loss is not None and state.lowest_loss < GUESS * guess
    is_time = state.step - (state.grown or 0) >= max(2 * warmup, PATIENCE)
    return is_time and result.is_a_guess(guess) and not has_learned


def stands_still(state: RunState, result: Validation, guess: float, warmup: int) -> int:
    """For how many steps at the full learning rate a model that is hardly better than a guess, on the training text
    too, has learned next to nothing: as a rule because that rate is too high for it."""
    if state.decay is not None or _has_learned(state, guess) or not result.is_hardly_more(guess):
        return 0
    alike = (step for step, loss, _ in state.validations if loss is not None and result.loss > SLOW * loss)
    return state.step - min((step for step in alike if step >= max(warmup, state.grown or 0)), default=state.step)


def has_nothing_good(state: RunState, guess: float) -> bool:
    """Whether nothing is lost if a run begins again."""
    if state.grown is not None:
        return False  # what it knew before it grew
    best = state.best
    if best is None:
        return bool(state.valid_data)  # there is text to judge by, and nothing has been worth keeping
    return best.is_a_guess(guess) or (best.is_hardly_more(guess) and not _has_learned(state, guess))


def _has_learned(state: RunState, guess: float) -> bool:
    """The training text, be it by heart."""
    return state.lowest_loss is not None and state.lowest_loss < HARDLY * guess


def unusable(best: Validation | None, score: float | None, guess: float, lines: int) -> str:
    """What to say of a finished model that is of hardly any use; empty, if it is of some. `lines`: of validation."""
    if best is None or not (best.is_a_guess(guess) or (math.isfinite(guess) and score is not None and score < LITTLE)):
        return ""
    use = "no use" if best.is_a_guess(guess) else "little use"
    way_out = "give it more time (--minutes), more text or a lower optimizer.rate; do its two sides belong together?"
    if lines < FEW_LINES:
        way_out = f"but that is of {lines:,} validation lines, too few to judge by: give it more with --valid-source"
    return (
        f"this model is of {use} yet: its validation loss is {best.loss:.2f}, where guessing words by their frequency "
        f"has {guess:.2f}; {way_out}"
    )


def calmer(state: RunState, saved_step: int) -> float:
    """The next `state.calm`."""
    calm = state.calm * CALMER
    if calm < 0.99 * CALMER**MOST:
        raise UserError(
            f"the run diverges at step {state.step:,}, with {state.calm:.0%} of its learning rate too; begin a new one "
            f"with another optimizer.rate, optimizer.warmup longer, optimizer.clip=1 or model.norm=before, and look at "
            f"the text with: transduce doctor (the checkpoint of step {saved_step:,} is kept)"
        )
    return calm
