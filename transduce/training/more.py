"""What a run that goes on must be given: more time than it has had, above all where its text has grown."""

from __future__ import annotations

from transduce.errors import ModelError, SettingsError
from transduce.files.run_folder import RunFolder
from transduce.settings.sections import Settings
from transduce.training.limits import Limits
from transduce.training.state import RunState, read_state


def refuse_less_time(run: RunFolder, settings: Settings) -> None:
    """A run that has ended would go back to before its learning rate fell, to end earlier, and worse."""
    state, limits = _newest(run), Limits.of(settings.training)
    if state is None or not _has_ended(state) or state.decay_for == limits.of_decay():
        return
    if limits.reached(state.step, state.epoch, state.seconds, 0):
        had = f"{state.step:,} steps in {state.seconds / 60:.1f} minutes"
        raise SettingsError(
            f"{run.path} has had that and more, {had}: limits (--minutes, training.steps) are of the whole run, so "
            f"give a larger one"
        )


def refuse_no_time(run: RunFolder, settings: Settings) -> None:
    """For text that came later."""
    state, limits = _newest(run), Limits.of(settings.training)
    if state is None:
        return
    falls = state.decay is not None and state.decay_for == limits.of_decay()
    if falls or limits.reached(state.step, state.epoch, state.seconds, 0):
        what, given = "its learning rate has fallen" if falls else "its time is over", " or ".join(limits.words())
        raise SettingsError(
            f"the text of {run.path} has grown, but {what} for {given}: give it more than that (--minutes N, "
            f"of the whole run, or training.steps)"
        )


def _newest(run: RunFolder) -> RunState | None:
    """Of the newest checkpoint that tells one."""
    for checkpoint in reversed(run.checkpoints()):
        try:
            return read_state(checkpoint)
        except ModelError:
            continue
    return None


def _has_ended(state: RunState) -> bool:
    return state.decay is not None and state.step >= state.decay.end
