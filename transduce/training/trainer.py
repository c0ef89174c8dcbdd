"""The training loop: batches in, updates, validation and checkpoints at intervals, the best weights at the end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

from transduce.data.batches import Batch, Batches
from transduce.errors import Stopped
from transduce.models.load import load
from transduce.models.weights import weights_of
from transduce.report import Report
from transduce.signals import Signals, catch_signals
from transduce.training.clock import Clock
from transduce.training.conclude import Outcome, conclude, pause
from transduce.training.divergence import (
    FLAT,
    PATIENCE,
    WINDOWS,
    LossWindow,
    calmer,
    has_diverged,
    has_nothing_good,
    learns_nothing,
    loss_conditions,
    stands_still,
)
from transduce.training.ending import Ending, Pace
from transduce.training.faults import too_many_skipped
from transduce.training.journal import Journal
from transduce.training.keeper import Keeper, keep_model
from transduce.training.pairing import many_apart
from transduce.training.state import RunState
from transduce.training.updater import Updater
from transduce.training.validate import Validator
from transduce.training.validation import Validation

DIVERGED = "diverged"


class Trainer:
    """Trains until a limit is reached. What each part of it does is told by the part's own file."""

    def __init__(
        self,
        updater: Updater,
        batches: Batches,
        validator: Validator,
        keeper: Keeper,
        journal: Journal,
        report: Report,
        clock: Clock,
    ) -> None:
        self.updater = updater
        self.batches = batches
        self.validator = validator
        self.keeper = keeper
        self.journal = journal
        self.report = report
        self.clock = clock
        self.window = LossWindow()
        self.settings = updater.settings
        self.processes = updater.processes
        updates = -(-len(batches.plan(0)) // self.settings.batch.accumulate)
        on_gpu = validator.device.startswith("cuda")
        self.ending, self.pace = Ending.of(self.settings, updates, on_gpu), Pace()
        self.state = self._new_state()

    def _new_state(self) -> RunState:
        batches, valid = self.batches, self.validator.batches
        return RunState(
            data=batches.store.folder.name,
            valid_data=valid.store.folder.name if valid is not None else "",
            layout=batches.settings.layout,
            batch_tokens=batches.budget,
            loss_conditions=loss_conditions(self.settings.model, self.updater.model.activation_dtype),
        )

    def run(self, begin: Callable[[], None] = lambda: None) -> Outcome:
        """Train, from the last checkpoint if there is one; `begin` is called when that has worked."""
        self.state = self.keeper.resume(self.state, self.clock.limits.of_decay())
        self.journal.resume(self.state)
        self.window.resume(self.state)
        begin()
        self.updater.try_largest(lambda: self.batches.largest(self.state.epoch))
        self.clock.resume(self.state.seconds, self.state.step)
        with catch_signals() as signals:
            try:
                start = judge_start(self)
                judge_model_before(self)
                while (reason := self._train(signals)) == DIVERGED:
                    self._calm_down()
                if reason is None:
                    self.state.seconds = self.clock.seconds
                    return pause(self.state)
                if self._validation_is_due(at_the_end=True):
                    self._validate_and_save(at_the_end=True)
                if self.state.step != self.keeper.saved_step or not self.state.step:
                    self._save()  # no model without a checkpoint: it could not be trained further
                self._answer_requests(signals)  # ends here if it is to stop; if only the time is over, little is left
                parts = (self.keeper, self.validator, self.journal, self.report)
                outcome = conclude(reason, self.state, lambda: self.clock.seconds, *parts)
                compare_with_start(self, start, outcome)
                return outcome
            finally:
                self.keeper.writer.wait()

    def _train(self, signals: Signals) -> str | None:
        """Update after update; gives the limit that was reached, DIVERGED, or None where this session's time is
        over."""
        batches_an_epoch = len(self.batches.plan(0))
        with self.report.progress("train", total=1.0) as bar:
            for epoch, used, batches in self._groups():
                if self._validation_is_due():  # first: a stop does not wait for it, and it is made up for here
                    self._validate_and_save()
                if has_diverged(self.state):
                    return DIVERGED
                if reason := self._limit_reached(epoch):
                    return reason
                self._begin_decay()
                if self.ending is not None and self.ending.is_to_be_corrected(self.state, self.pace):
                    self.journal.read_verdicts(self.state, self.clock.seconds)
                    if not self.state.skipped_in_a_row:  # as validations
                        self._correct_decay()
                        self._save()
                update = self.updater.update(batches, self.state)
                self.state.epoch, self.state.batch = epoch, used
                share = self.clock.share_done(self.state.step, epoch + used / batches_an_epoch)
                self.journal.observe(update, self.state, self.clock.seconds, share, bar)
                self.window.observe(update, self.state)
                self.pace.tick()
                if self._answer_requests(signals):
                    return None
        raise AssertionError("batches come without end")

    def _groups(self) -> Iterator[tuple[int, int, list[Batch]]]:
        """The batches of each update, without end, from where the run stands in the data.

        With them the epoch, and how many of its batches are used once they are.
        """
        used = self.state.batch
        for epoch in itertools.count(self.state.epoch):
            batches = self.batches.epoch(epoch, skip=used)
            while group := list(itertools.islice(batches, self.settings.batch.accumulate)):
                used += len(group)
                yield epoch, used, group
            used = 0

    def _limit_reached(self, epoch: int) -> str:
        state = self.state
        if state.decay is not None:  # the end is decided: no clock can change it
            most = None if self.ending is None else self.ending.steps
            is_over = state.step >= state.decay.end
            return self.clock.limits.reached_by_decay(state.decay.end, most, state.impatient) if is_over else ""
        since_best = state.since_best if self.ending is None else 0  # else a decay comes first
        return self.clock.limits.reached(state.step, epoch, self.clock.common_seconds, since_best)

    def _begin_decay(self) -> None:
        """Where it is time for it, decide how the rate falls, and keep that for good."""
        state = self.state
        if self.ending is None or state.decay is not None:
            return
        seconds = self.clock.common_seconds
        if self.clock.limits.minutes is not None:
            state.before_updates += self.clock.until_first_update(state.step, seconds)
        decay = self.ending.decide(state, seconds, self.pace)
        if decay is None:
            return
        state.decay_begin, state.decay_end = self.processes.gather(decay)[0]
        state.decay_for = self.clock.limits.of_decay()
        state.impatient = int(self.ending.is_out_of_patience(state))
        left = f"; about {state.decay_end - state.step:,} steps are left" if self.clock.limits.minutes else ""
        self.report.say(f"step {state.step:,}: from here the learning rate falls{left}")
        self._save()

    def _correct_decay(self) -> None:
        """A slower machine does not make the run late, nor a faster one early. Before a checkpoint, which keeps it."""
        if self.ending is not None:
            end = self.ending.correct(self.state, self.clock.common_seconds, self.pace)
            self.state.decay_end, self.state.decay_seen = self.processes.gather(end)[0], self.state.step
        self.pace.pause()

    def _calm_down(self) -> None:
        """Go back to the last checkpoint, or to the beginning, and on with a lower rate."""
        at, calm = self.state.step, calmer(self.state, self.keeper.saved_step)
        nothing_good = has_nothing_good(self.state, self.validator.guess)
        self.state = self.keeper.go_back(to_the_beginning=nothing_good) or self._new_state()
        self.state.calm, self.state.worse_windows = calm, 0
        if not self.state.step:
            self.clock.begins_at = 0
        self.journal.resume(self.state)
        self.window.resume(self.state)
        judge_model_before(self)
        self.pace.pause()
        self.journal.write("diverged", self.state.step, self.clock.seconds, at=at, calm=calm)
        self._save()  # whoever goes on after a stop goes on as calmly
        self.report.warn(
            f"step {at:,}: the run diverges; back to step {self.state.step:,}, and on with {calm:.0%} of its learning "
            f"rate"
        )

    def _validation_is_due(self, at_the_end: bool = False) -> bool:
        """Every so many steps, but not just before the end, which has its own; later where the last update was skipped:
        the one before it may have ruined the weights, and no good checkpoint is to give way to such ones."""
        state, every = self.state, 1 if at_the_end else self.settings.training.validate_every
        if state.step // every == state.validated // every:
            return False
        if not at_the_end and self.ending is not None and self.ending.is_near(state):
            return False
        self.journal.read_verdicts(state, self.clock.seconds)
        return not state.skipped_in_a_row

    def _validate_and_save(self, at_the_end: bool = False) -> None:
        """Judge the weights that are meant to be used, keep them, and make them the model if they are the best."""
        state = self.state
        begin = time.monotonic()
        with self.updater.final_weights():
            result, weights = self.validator.validate(self.updater.model), weights_of(self.updater.model)
        facts, still = (self.validator.guess, self.settings.optimizer.warmup), 0
        if result is not None:
            still = stands_still(state, result, *facts) if self.settings.optimizer.schedule in FLAT else 0
            if not at_the_end and (still >= 2 * PATIENCE or learns_nothing(state, result, *facts)):
                state.worse_windows = WINDOWS  # as bad as a loss that has gone up; such weights are not kept
                return
        is_best = state.add_validation(result)
        if result is not None:
            self.report.say(f"step {state.step:,}: validation {self.validator.describe(result, is_best)}")
            if still >= PATIENCE:
                self.report.warn(f"little was learned in {still:,} steps: is optimizer.rate too high, or too low?")
            self.journal.validated("valid", result, state, self.clock.seconds)
        state.add_validation_time(self.processes.maximum(int(1000 * (time.monotonic() - begin)))[0] / 1000)
        with self.updater.final_weights():
            found = many_apart(state, self.updater.model, self.batches, self.validator)
        self.journal.tell_apart(found, state, self.clock.seconds)
        self._correct_decay()
        self.journal.meter.reset(*self.journal.meter.sums)  # the time of a validation is not training time
        self.state.seconds = self.clock.seconds
        self.journal.note(self.state)
        self.window.note(self.state)
        self.keeper.save_validated(state, weights, "last" if result is None else "best" if is_best else "")

    def _save(self) -> None:
        self.journal.read_verdicts(self.state, self.clock.seconds)
        self.state.seconds = self.clock.seconds
        self.journal.note(self.state)
        self.window.note(self.state)
        self.keeper.save(self.state)

    def _answer_requests(self, signals: Signals) -> bool:
        """Save if somebody asks for it, and tell whether this session's time is over; a signal to stop ends the run
        here. All processes decide together."""
        self.keeper.writer.check()
        state, most = self.state, self.settings.training.max_skipped
        asked = (signals.stop, signals.save, self.clock.session_is_over, state.skipped_in_a_row >= most)
        stop, save, over, broken = self.processes.maximum(*asked)
        signals.save = False
        if broken:
            raise too_many_skipped(most, state.step, self.keeper.saved_step)
        if (save or stop or over) and state.step != self.keeper.saved_step:
            self._save()
        if stop or over:
            self._leave_weights()
        if save:
            self.report.say(f"step {state.step:,}: a checkpoint, as SIGUSR1 asked")
        if stop:
            self._stop(stop, signals)
        return bool(over)

    def _leave_weights(self) -> None:
        """The newest ones, so that what was learned so far can be tried; before the first validation as the model."""
        with self.updater.final_weights():
            weights = weights_of(self.updater.model)
        self.keeper.writer.wait()
        self.keeper.publish("last", weights, use=not self.state.validated)

    def _stop(self, number: int, signals: Signals) -> None:
        self.keeper.writer.wait()
        self.processes.gather(None)  # none goes before all is written: torchrun would end the others
        signals.obeyed = self.processes.count > 1
        run, step = self.keeper.run.path, self.state.step
        raise Stopped(
            f"stopped at step {step:,}; the run is saved, the same command goes on with {run}, and what it has learned "
            f"so far can be used",
            number,
        )


def judge_start(trainer: Trainer) -> Validation | None:
    """Tell how good a model is that the run begins with, before it learns anything new."""
    start, validator = trainer.settings.training.start, trainer.validator
    if start is None or trainer.state.step or (result := validator.validate(trainer.updater.model)) is None:
        return None
    how = "with its new vocabulary, before it learns" if trainer.settings.training.new_vocabulary else "as it is"
    trainer.report.say(f"{start} {how}: validation {result.describe(validator.task.measure)}")
    trainer.journal.validated("start", result, trainer.state, trainer.clock.seconds)
    return result


def judge_model_before(trainer: Trainer) -> None:
    """Where what is set aside has grown with the text, the model in use has to be beaten on all of it."""
    state, keeper = trainer.state, trainer.keeper
    has_just_grown = state.grown == state.step and state.best is None
    if not keeper.processes.gather(has_just_grown and keeper.run.model.exists())[0]:  # what the main one has written
        return
    result = trainer.validator.validate(load(keeper.run.path, trainer.validator.device)[0])
    if result is None:
        return
    state.best_loss, state.best_score = result.loss, result.score
    trainer.report.say(
        f"the model as it is, on this text: validation {result.describe(trainer.validator.task.measure)}"
    )
    keeper.processes.gather(None)  # all have read it
    if keeper.processes.is_main:
        keep_model(keeper.run)


def compare_with_start(trainer: Trainer, start: Validation | None, outcome: Outcome) -> None:
    """Tell where a model has become no better by what it was trained on."""
    if start is None or start.score is None or outcome.score is None or outcome.score > start.score:
        return
    trainer.report.warn(
        f"{trainer.settings.training.start}, which it began with, has {trainer.validator.task.measure} "
        f"{start.score:.1f} on the validation text, and so is no worse: more pairs, more time or a lower "
        f"optimizer.rate may help"
    )
