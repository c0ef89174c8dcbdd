"""What a run keeps: checkpoints to go on from, weights to be averaged, and the weights that are used.

Their order is what makes a run survive: weights kept for averaging come before the checkpoint that speaks of them, the
weights in use after it. Whoever is killed before a checkpoint goes on from the one before and writes the same bytes
again; whoever is killed after it finds the best weights among those kept (`_repair`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from torch import Tensor

from transduce.core.seq2seq import Seq2Seq
from transduce.errors import DataError, ModelError, UserError
from transduce.files import metrics
from transduce.files.atomic import clear_parts
from transduce.files.manifest import is_copy_of, remove_from_folder, write_folder
from transduce.files.run_folder import MODEL, REPLACED, RunFolder, step_of, weights_name
from transduce.models.weights import shapes, tensor_bytes
from transduce.report import Report
from transduce.settings.sections import TrainingSettings
from transduce.training import checkpoint
from transduce.training.average import is_whole, mean_of
from transduce.training.distributed import Processes
from transduce.training.state import RunState
from transduce.training.updater import Updater
from transduce.training.writer import Writer

Weights = dict[str, Tensor]


class Keeper:
    """The folder of a run that is under way. All processes ask; the main one writes."""

    def __init__(
        self,
        run: RunFolder,
        updater: Updater,
        settings: TrainingSettings,
        processes: Processes,
        report: Report,
        new_model: Callable[[], Seq2Seq],
        earlier: Collection[str] = (),
    ) -> None:
        """`new_model`: one as it is before the first update; `earlier`: names of stores that the run may come from,
        where its text has grown."""
        self.run = run
        self.updater = updater
        self.new_model = new_model
        self.settings = settings
        self.processes = processes
        self.report = report
        self.earlier, self.fresh = earlier, RunState()
        self.saved_step = 0  # of the newest checkpoint
        self.writer = Writer()

    # ---- going on ----------------------------------------------------------------------------------------------

    def resume(self, fresh: RunState, limits: str = "") -> RunState:
        """The state of the last checkpoint, with everything put back as it was; `fresh` where there is none. Where the
        rate has begun to fall for other `limits` than it has now, it is the last one at the full rate."""
        newest, complaints = checkpoint.latest(self.run)
        for complaint in complaints:
            self.report.warn(f"passed over a checkpoint: {complaint}")
        state = self.fresh = fresh
        stable: Path | None = None
        if newest is None:
            refuse_to_replace(self.run)
        else:
            before = checkpoint.decayed_for_other(newest, limits)
            stable = None if before is None else _stable(self.run, before, self.report)
            newest = stable or newest
            state = checkpoint.resume(newest, self.updater, self.processes.rank)
            self._refuse_other_text(state)
            fell = ""
            if before is not None and stable is not None:
                again = (before.seconds - state.seconds) / 60
                fell = f", before its learning rate fell; the {again:.1f} minutes since then do not count"
            self.report.say(f"going on from step {state.step:,}{fell}")
            self.saved_step = state.step
            if before is not None:
                state.decay_begin, state.decay_end, state.decay_for, state.impatient = None, None, "", 0
                state.best_loss, state.best_score = before.best_loss, before.best_score  # its model stays until beaten
        self.processes.gather(None)  # all have read it
        if self.processes.is_main:
            self.run.training.mkdir(parents=True, exist_ok=True)  # tells a run from a model
            if stable is not None:  # before what came after it is removed: a kill between loses neither
                if state.best is not None:
                    keep_model(self.run)
                checkpoint.write_state(self.run, stable, state)
                newest = self.run.checkpoint(state.step)
            self._forget_after(state.step, newest)
            self._remove_unwanted(self._wanted(state))
            self._repair(state)
        state.go_on_as(fresh)  # from here on
        return state

    def go_back(self, to_the_beginning: bool) -> RunState | None:
        """In the middle of a run: the state of the last checkpoint; None where there is none, or none worth keeping,
        and everything is as in the beginning."""
        self.writer.wait()
        self.processes.gather(None)
        newest = None if to_the_beginning else checkpoint.latest_good(self.run)
        state = None
        if newest is None:
            self.updater.begin_again(self.new_model())
        else:
            state = checkpoint.resume(newest, self.updater, self.processes.rank)
            state.go_on_as(self.fresh)
        self.saved_step = state.step if state else 0
        self.processes.gather(None)
        if self.processes.is_main:
            self._forget_after(self.saved_step, newest)
        return state

    def _refuse_other_text(self, state: RunState) -> None:
        for did, before, now in (
            ("trained", state.data, self.fresh.data),
            ("validated", state.valid_data, self.fresh.valid_data),
        ):
            if before is not None and before != now and before not in self.earlier:
                raise DataError(
                    f"{self.run.path} was {did} on other text, or with other filters, than is given now; "
                    f"give the same, with further files only after it, or a new run folder and --from {self.run.path}, "
                    f"which begins with what it has learned"
                )

    def _forget_after(self, step: int, newest: Path | None) -> None:
        """Remove what lies after the checkpoint `newest` that a run goes on from, and what was being written when it
        ended."""
        for folder in (self.run.path, self.run.path / "weights", self.run.training, self.run.kept):
            clear_parts(folder)
        for late in self.run.checkpoints():
            if late != newest and (step_of(late) > step or late.name.endswith(REPLACED)):
                shutil.rmtree(late)
        late_weights = (path.name for kept, path in self.run.kept_weights().items() if kept > step)
        remove_from_folder(self.run.kept, late_weights)

    def _repair(self, state: RunState) -> None:
        """Make the weights in use those that the checkpoint speaks of: a run may have ended between the two, or after
        weights whose checkpoint is not the one to go on from."""
        best = state.best_steps()
        if best and state.best != state.validation_of(best[0]):
            return  # the model is one of before the run was given more time
        used, step = weights_name("best" if best else "last"), best[0] if best else state.validated
        kept = self._whole_weights().get(step)
        if kept is not None and not is_copy_of(self.run.path, used, kept):
            write_folder(self.run.path, dict.fromkeys([used, MODEL], kept.read_bytes()))

    # ---- saving ------------------------------------------------------------------------------------------------

    def save(
        self, state: RunState, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
    ) -> None:
        """A checkpoint, copied now and written while training goes on; what else is to be done before and after."""
        self.writer.wait()  # so that no two copies lie in memory
        if not self.updater.flat.weights.isfinite().all():
            raise UserError(
                f"the weights are no longer numbers at step {state.step:,}; go on from the checkpoint of step "
                f"{self.saved_step:,} with a lower optimizer.rate or a smaller optimizer.clip"
            )
        now = checkpoint.snapshot(self.updater, state, self.processes)
        self.saved_step = state.step
        if now is None:
            return  # not the main process

        def work() -> None:
            before()
            metrics.flush(self.run.metrics)
            checkpoint.write(self.run, now, self.settings.keep)
            after()

        self.writer.begin(work)

    def save_validated(self, state: RunState, weights: Weights, name: str) -> None:
        """A checkpoint with the weights that were validated, to be averaged later; they are the model from now on under
        this name, unless it is empty."""
        step, wanted = state.step, self._wanted(state)

        def after() -> None:
            if name:
                self.publish(name, weights, use=True)
            self._remove_unwanted(wanted)

        self.save(state, lambda: self.keep_weights(step, weights), after)

    def keep_weights(self, step: int, weights: Weights) -> None:
        """Keep weights beyond the time of their checkpoint, to be averaged."""
        write_folder(self.run.kept, {f"step-{step}.safetensors": tensor_bytes(weights)})

    def publish(self, name: str, weights: Weights, use: bool = False) -> None:
        """As RUN/weights/name, and if wanted as the model that is used."""
        if self.processes.is_main:
            names = [weights_name(name), MODEL] if use else [weights_name(name)]
            write_folder(self.run.path, dict.fromkeys(names, tensor_bytes(weights)))

    def use(self, name: str) -> None:
        """Make published weights the model."""
        if self.processes.is_main:
            write_folder(self.run.path, {MODEL: (self.run.path / weights_name(name)).read_bytes()})

    def _wanted(self, state: RunState) -> set[int]:
        """Steps whose weights are kept for averaging."""
        t = self.settings
        return {step for step, *_ in state.validations[-t.average :]} | set(state.best_steps()[: t.keep_best])

    def _remove_unwanted(self, wanted: set[int]) -> None:
        """Remove kept weights that will not be averaged."""
        unwanted = [path.name for step, path in self.run.kept_weights().items() if step not in wanted]
        remove_from_folder(self.run.kept, unwanted)

    # ---- averages ----------------------------------------------------------------------------------------------

    def averages(self, state: RunState) -> Iterator[tuple[str, str, Weights]]:
        """The averages that can be made of the weights kept, with a name and in words."""
        t, kept = self.settings, self._whole_weights()
        best = [step for step in state.best_steps()[: t.keep_best] if step in kept]
        last = list(kept)[-t.average :]
        for name, steps in (("averaged", last), ("averaged_best", sorted(best))):
            if len(steps) > 1:
                words = f"the {'best' if name == 'averaged_best' else 'last'} checkpoints"
                yield name, words, mean_of(kept[step] for step in steps)

    def _whole_weights(self) -> dict[int, Path]:
        """Kept weights that are what they were, and of this model."""
        wanted = shapes(self.updater.model)
        return {step: path for step, path in self.run.kept_weights().items() if is_whole(path, wanted)}


def keep_model(run: RunFolder) -> None:
    """The one in use, be it an average, where the best weights are looked for, until they are beaten."""
    if run.model.exists():
        write_folder(run.path, {weights_name("best"): run.model.read_bytes()})


def refuse_to_replace(run: RunFolder) -> None:
    """A model comes after its first checkpoint: one without any is another's, or what is left of a run."""
    if run.model.exists():
        raise ModelError(
            f"{run.path} holds a model but no checkpoint to go on from, and training would replace it; choose another "
            f"run folder"
        )


def _stable(run: RunFolder, state: RunState, report: Report) -> Path | None:
    """The last checkpoint before the learning rate fell."""
    assert state.decay is not None
    stable = run.checkpoint(state.decay.begin)
    for there in (stable, stable.with_name(stable.name + REPLACED)):  # while it was replaced, the run was killed
        if checkpoint.is_complete(there):
            return there
    report.warn(f"{stable} is missing: the learning rate will jump from where it has fallen to")
    return None
