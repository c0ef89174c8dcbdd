"""The end of a run: last and averaged weights beside the best, and whichever validates best becomes the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from transduce.models.weights import restore, weights_of
from transduce.report import Report
from transduce.training.journal import Journal
from transduce.training.keeper import Keeper
from transduce.training.state import RunState
from transduce.training.validate import Validator


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    seconds: float
    reason: str
    chosen: str  # best, averaged, averaged_best or last: the weights in model.safetensors; "": to be continued
    score: float | None  # of the validation, by the measure
    target_tokens: int  # trained on
    complete: bool = True


def pause(state: RunState) -> Outcome:
    """A session whose time is over; the run goes on with the next."""
    reason, best = "the minutes of --pause-after are over; the same command goes on", state.best
    score = best.score if best else None
    return Outcome(state.step, state.seconds, reason, "", score, state.target_tokens, complete=False)


def conclude(
    reason: str,
    state: RunState,
    seconds: Callable[[], float],
    keeper: Keeper,
    validator: Validator,
    journal: Journal,
    report: Report,
) -> Outcome:
    """Write and judge what can be used, and choose. The model holds other weights afterwards. `seconds`: the clock."""
    keeper.writer.wait()
    keeper.processes.gather(None)  # the others read what the main one has written
    updater = keeper.updater
    chosen, best = ("last" if state.best is None else "best"), state.best
    with updater.final_weights():
        keeper.publish("last", weights_of(updater.model))
    for name, words, mean in keeper.averages(state):
        restore(updater.model, mean, keeper.run.path)
        result = validator.validate(updater.model)
        keeper.publish(name, mean)
        if result is not None:
            journal.validated(name, result, state, seconds())
            report.say(f"average of {words}: validation {result.describe(validator.task.measure)}")
            chosen, best = (name, result) if result.better_than(best) else (chosen, best)
    keeper.use(chosen)
    score = {validator.task.key: best.score} if best else {}
    journal.write("finished", state.step, seconds(), reason=reason, chosen=chosen, **score)
    keeper.processes.gather(None)  # nobody reads it before it is there
    return Outcome(state.step, seconds(), reason, chosen, best.score if best else None, state.target_tokens)
