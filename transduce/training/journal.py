"""What a run says about itself: the bar, metrics.jsonl, a word on updates that were skipped and losses that jumped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from transduce.files import metrics
from transduce.files.run_folder import RunFolder
from transduce.models.device import peak_memory
from transduce.report import Progress, Report
from transduce.settings.sections import TrainingSettings
from transduce.settings.task import Task
from transduce.training.faults import UsualLoss
from transduce.training.meter import LossMeter
from transduce.training.state import RunState
from transduce.training.tensorboard import TensorBoard
from transduce.training.updater import Update
from transduce.training.validation import Validation

READ_EVERY = 0.5  # seconds between looks at what a GPU has computed; each look waits for it
NAMED = 10  # line numbers of a skipped batch that the user is shown; metrics.jsonl has all


class PendingVerdicts:
    """Updates of which nobody has asked yet whether they were skipped: to ask is to wait for the GPU."""

    def __init__(self) -> None:
        self._updates: list[Update] = []
        self._read_at = time.monotonic()

    def add(self, update: Update) -> None:
        self._updates.append(update)

    def read(self) -> list[tuple[Update, bool]]:
        """In order, whether each was skipped; waits for the GPU once."""
        updates, self._updates = self._updates, []
        verdicts = torch.stack([update.bad for update in updates]).tolist() if updates else []
        self._read_at = time.monotonic()
        return [(update, bool(bad)) for update, bad in zip(updates, verdicts, strict=True)]

    @property
    def seconds_since_read(self) -> float:
        return time.monotonic() - self._read_at


class Journal:
    """Watches updates. Only one process writes; all of them count what was skipped."""

    def __init__(
        self,
        run: RunFolder,
        settings: TrainingSettings,
        task: Task,
        device: str,
        writes: bool,
        report: Report,
        line_names: Callable[[np.ndarray], Sequence[str | int]],
        empty: float,
    ) -> None:
        """`line_names`: lines of the text that lie at places in the store; `empty`: share of the slots without any."""
        self.run = run
        self.settings = settings
        self.task = task
        self.device = device
        self.writes = writes
        self.report = report
        self.line_names = line_names
        self.empty = empty
        self.meter, self.usual, self.pending = LossMeter(), UsualLoss(), PendingVerdicts()
        self.tensorboard: TensorBoard | None = None

    def resume(self, state: RunState) -> None:
        """Go on where a checkpoint stands: later lines are forgotten."""
        self.meter.reset(state.loss_total, state.loss_tokens)
        self.usual = UsualLoss(state.usual_loss, state.lines)
        if self.writes:
            metrics.forget_after(self.run.metrics, state.step, state.validated)
            if self.settings.tensorboard:
                self.tensorboard = TensorBoard(self.run.tensorboard, state.step)

    def note(self, state: RunState) -> None:
        """Put into the state what a resumed run needs to go on with its next line."""
        state.loss_total, state.loss_tokens = self.meter.sums
        state.usual_loss, state.lines = self.usual.mean, self.usual.lines

    def observe(self, update: Update, state: RunState, seconds: float, share: float, bar: Progress) -> None:
        """The bar at every step; a line in metrics.jsonl now and then."""
        self.pending.add(update)
        self.meter.add(update.total, update.tokens, update.bad)
        is_due = state.step % self.settings.log_every == 0
        if is_due or self.device == "cpu" or self.pending.seconds_since_read > READ_EVERY:
            loss = self.read_verdicts(state, seconds)
            bar.update(
                share,
                step=f"{state.step:,}",
                epoch=f"{state.epoch + 1}",
                loss="-" if loss is None else f"{loss:.3f}",
                rate=f"{update.rate:.1e}",
                speed=f"{self.meter.speed:,.0f} tokens/s",
            )
        if is_due and loss is not None:
            self._write_training_line(loss, update, state, seconds)

    def _write_training_line(self, loss: float, update: Update, state: RunState, seconds: float) -> None:
        if self.usual.jumps_to(loss):
            self.report.warn(f"step {state.step:,}: the loss jumped to {loss:.3f}; it was about {self.usual.mean:.3f}")
            self.write("spike", state.step, seconds, loss=loss, usual=self.usual.mean)
        self.write(
            "train",
            state.step,
            seconds,
            epoch=state.epoch,
            loss=loss,
            rate=update.rate,
            gradient=float(update.gradient) if update.gradient.isfinite() else None,
            skipped=state.skipped,
            target_tokens=state.target_tokens,
            empty=round(self.empty, 4),
            tokens_per_second=round(self.meter.speed),
            memory=peak_memory(self.device),
        )
        self.meter.reset()

    def read_verdicts(self, state: RunState, seconds: float) -> float | None:
        """Find out which updates were skipped, count and name them; gives the mean loss since the last line. Waits for
        a GPU once."""
        for update, bad in self.pending.read():
            state.skipped_in_a_row = state.skipped_in_a_row + 1 if bad else 0
            if bad:
                state.skipped += 1
                self._name_skipped(update, seconds)
        return self.meter.loss

    def _name_skipped(self, update: Update, seconds: float) -> None:
        lines = self.line_names(update.places)
        named = ", ".join(line if isinstance(line, str) else f"{line:,}" for line in lines[:NAMED])
        more = f" and {len(lines) - NAMED:,} more" if len(lines) > NAMED else ""
        self.report.warn(
            f"step {update.step:,}: loss or gradient is no number; the batch was skipped (lines {named}{more}; all are "
            f"in metrics.jsonl)"
        )
        self.write("skipped", update.step, seconds, lines=list(lines))

    def validated(self, kind: str, result: Validation, state: RunState, seconds: float) -> None:
        """A line for a validation: of the weights now, or of averaged ones."""
        score = {self.task.key: result.score}
        self.write(kind, state.step, seconds, loss=result.loss, perplexity=result.perplexity, **score)

    def tell_apart(self, found: Mapping[str, float], state: RunState, seconds: float) -> None:
        """Which share of the pairs of which text does not seem to belong together."""
        for text, share in found.items():
            self.write("apart", state.step, seconds, text=text, share=share)
            about, alike = ("about", "") if text == "training" else ("up to", ", and is it text like that for training")
            self.report.warn(
                f"step {state.step:,}: {about} {share:.0%} of the {text} pairs do not seem to belong together: another "
                f"line's source explains their target as well; are both sides in the same order{alike}?"
            )

    def write(self, kind: str, step: int, seconds: float, **facts: object) -> None:
        """A line in metrics.jsonl, and for TensorBoard."""
        if not self.writes:
            return
        record = {"kind": kind, "step": step, "seconds": round(seconds, 2), **facts}
        metrics.append(self.run.metrics, record)
        if self.tensorboard is not None:
            self.tensorboard.add(record)
