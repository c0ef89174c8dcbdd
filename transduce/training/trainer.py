"""The training loop: batches in, updates, validation and checkpoints at intervals, the best weights at the end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.config import Settings
from transduce.data.batches import Batch, Batches
from transduce.errors import DataError, Stopped, UserError
from transduce.models.folder import MODEL, is_up_to_date, restore, tensor_bytes, weights_of, write_folder
from transduce.models.seq2seq import Seq2Seq
from transduce.nn.device import memory_in_use
from transduce.report import SILENT, Progress, Report
from transduce.training import checkpoint, optimizers
from transduce.training.average import MovingAverage, is_whole, mean_of
from transduce.training.checkpoint import Standing
from transduce.training.distributed import ALONE, Processes
from transduce.training.faults import Updates, UsualLoss, is_bad
from transduce.training.flat import FlatWeights
from transduce.training.gradients import FastGradients, Gradients, PlainGradients, can_be_fast
from transduce.training.memory import InParts
from transduce.training.metrics import Metrics, Mirror
from transduce.training.schedule import learning_rate
from transduce.training.signals import Requests, requests
from transduce.training.validation import Measure, Validation, validate
from transduce.training.writer import Writer

READ_EVERY = 0.5  # seconds between looks at what a GPU has computed; each look waits for it
NAMED = 10  # line numbers of a skipped batch that the user is shown; metrics.jsonl has all


class Update(NamedTuple):
    """What one step of the optimizer saw. Tensors stay where they are until somebody looks."""

    total: Tensor  # loss, smoothed, summed over target tokens
    tokens: int
    rate: float
    gradient: Tensor  # norm before clipping
    bad: Tensor  # 1.0: loss or gradient is no number, and nothing was changed


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


class Trainer:
    """Trains a model in a run folder. `measure` translates validation text and scores it."""

    def __init__(
        self,
        run: Path,
        model: Seq2Seq,
        settings: Settings,
        train: Batches,
        valid: Batches | None,
        measure: Measure | None,
        device: str,
        report: Report = SILENT,
        processes: Processes = ALONE,
        until: float | None = None,
    ) -> None:
        self.run_folder = run
        self.model = model.to(device)
        self.settings = settings
        self.train_batches = train
        self.valid_batches = valid
        self.measure = measure
        self.device = device
        self.report = report
        self.processes = processes
        self.until = until  # when this session is to end, by time.monotonic()
        t = settings.training
        self.flat = FlatWeights(self.model)
        self.optimizer = optimizers.make_optimizer(self.flat, settings.optimizer)
        self.average = MovingAverage(self.flat, t.ema) if t.ema else None
        self.gradients = self._gradients()
        self.in_parts = InParts(self.gradients, settings.batch.split, device, report)
        self.standing = Standing(
            data=train.store.folder.name,
            valid_data=valid.store.folder.name if valid is not None else "",
            layout=train.settings.layout,
            batch_tokens=train.budget,
        )
        self.saved_step = 0  # of the newest checkpoint
        self.metrics = Metrics(run / "metrics.jsonl")
        self.unread, self.usual = Updates(), UsualLoss()
        self.writer = Writer()
        self.batches_an_epoch = len(train.plan(0))
        self.empty = train.fill(0).empty  # share of the slots
        self.started = self.looked = time.monotonic()

    # ---- the story ---------------------------------------------------------------------------------------------

    def run(self, begin: Callable[[], None] = lambda: None) -> Outcome:
        """Train until a limit is reached, from the last checkpoint if there is one; `begin` when that has worked."""
        self._resume()
        begin()
        beside = 0 if self.optimizer.state else 2 * self.flat.weights.nbytes  # Adam's moments, made by the first update
        self.in_parts.try_first(lambda: self.train_batches.largest(self.standing.epoch), beside)
        self.started = time.monotonic() - self.standing.seconds
        with requests() as noted, self.report.progress("train", total=1.0) as bar:
            try:
                for epoch, used, batches in self._groups():
                    if self._validation_is_due():  # first: a stop does not wait for it, and it is made up for here
                        self._validate_and_save()
                    if reason := self._finished(epoch):
                        break
                    update = self.update(batches)
                    self.standing.epoch, self.standing.batch = epoch, used
                    self._tell(update, bar)
                    if self._is_to_pause(noted):
                        return self._pause()
                if self._validation_is_due(at_the_end=True):
                    self._validate_and_save()
                self._is_to_pause(noted)  # ends here if it is to stop; if only the time is over, what is left is little
                return self._conclude(reason)
            finally:
                self.writer.wait()

    def update(self, batches: list[Batch]) -> Update:
        """One step of the optimizer on one or more batches, the loss divided by all their tokens."""
        self.model.train()
        tokens = sum(batch.tokens for batch in batches)
        total = self.in_parts.add(batches, tokens, self.standing.step + 1)
        self.processes.sum(self.flat.gradient)
        self.processes.sum(total)
        norm = self._clip()
        bad = is_bad(total, norm)
        at = self.standing
        at.step += 1
        at.target_tokens += tokens
        rate = learning_rate(
            at.step, self.settings.optimizer, self.settings.model.d_model, self.settings.training.steps
        )
        at.rate_squares += rate**2
        for group in self.optimizer.param_groups:
            group.update(lr=rate, number=at.step, share=rate**2 / at.rate_squares)
        optimizers.step(self.optimizer, bad)
        if self.average is not None:
            self.average.update(at.step, bad)
        self.gradients.clear()
        self.unread.add(at.step, np.concatenate([batch.pairs for batch in batches]), bad)
        return Update(total, tokens, rate, norm, bad)

    def _clip(self) -> Tensor:
        """Gradients longer than optimizer.clip are shortened to it; gives their norm before."""
        gradient, longest = self.flat.gradient, self.settings.optimizer.clip
        norm = gradient.norm()
        if longest is not None:
            gradient.mul_((longest / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def validate(self) -> Validation | None:
        """Of the weights that the model holds now."""
        if self.valid_batches is None:
            return None
        return validate(self.model, self.valid_batches, self.measure, self.device, self.processes)

    # ---- its chapters ------------------------------------------------------------------------------------------

    def _gradients(self) -> Gradients:
        """As fast as this machine and these settings allow."""
        t, b = self.settings.training, self.settings.batch
        has = self.device == "cuda" and torch.cuda.is_bf16_supported()
        self.model.stream = torch.bfloat16 if t.precision == "bfloat16" or (t.precision == "auto" and has) else None
        fast = t.fast and can_be_fast(self.device) and self.train_batches.packed
        if fast:
            return FastGradients(self.model, t.label_smoothing, self.flat, b.accumulate * b.split)
        return PlainGradients(self.model, t.label_smoothing, self.flat)

    def _resume(self) -> None:
        found, complaints = checkpoint.latest(self.run_folder / "training")
        for complaint in complaints:
            self.report.warn(f"passed over a checkpoint: {complaint}")
        if found is not None:
            given = self.standing
            self.standing = checkpoint.resume(
                found, self.model, self.flat, self.optimizer, self.average, self.processes.rank
            )
            for did, one, two in (
                ("trained", self.standing.data, given.data),
                ("validated", self.standing.valid_data, given.valid_data),
            ):
                if one is not None and one != two:
                    raise DataError(
                        f"{self.run_folder} was {did} on other text, or with other filters, than is given now; "
                        f"give the same, or choose another run folder"
                    )
            self.report.say(f"going on from step {self.standing.step:,}")
            self.saved_step = self.standing.step
        else:
            checkpoint.refuse_to_replace(self.run_folder)
        self.processes.gather(None)  # all have read it
        at = self.standing
        self.metrics.clear(at.loss_total, at.loss_tokens)
        self.usual = UsualLoss(at.usual_loss, at.lines)
        if self.processes.is_first:
            (self.run_folder / "training").mkdir(parents=True, exist_ok=True)  # tells a run from a model
            checkpoint.forget_after(self.run_folder / "training", at.step, found)
            checkpoint.let_go(self.run_folder / "training", self._wanted())
            self.metrics.forget_after(at.step, at.validated)
            self._make_up_for_weights()
            if self.settings.training.tensorboard:
                self.metrics.mirror = Mirror(self.run_folder / "tensorboard", at.step)

    def _groups(self) -> Iterator[tuple[int, int, list[Batch]]]:
        """The batches of each update, without end, from where the run stands in the data.

        With them the epoch, and how many of its batches are used once they are.
        """
        used = self.standing.batch
        for epoch in itertools.count(self.standing.epoch):
            batches = self.train_batches.epoch(epoch, skip=used)
            while group := list(itertools.islice(batches, self.settings.batch.accumulate)):
                used += len(group)
                yield epoch, used, group
            used = 0

    def _finished(self, epoch: int) -> str:
        """The limit that has been reached before an update in this epoch; empty if none has."""
        t, at = self.settings.training, self.standing
        if t.steps is not None and at.step >= t.steps:
            return "all steps done"
        if t.epochs is not None and epoch >= t.epochs:
            return f"all {t.epochs} epochs done"
        if t.minutes is not None and self.processes.highest(self._seconds() >= 60 * t.minutes)[0]:
            return f"{t.minutes:g} minutes are over"
        if t.patience is not None and at.since_best >= t.patience:
            return f"no better validation in the last {t.patience}"
        return ""

    def _final_weights(self) -> AbstractContextManager[None]:
        """Within, the model holds the weights that are meant to be used: their moving average, if there is one."""
        return self.average.in_place() if self.average else optimizers.final_weights(self.optimizer)

    def _validation_is_due(self, at_the_end: bool = False) -> bool:
        """Every so many steps; later where the last update was skipped: the one before it may have ruined the weights,
        and no good checkpoint is to give way to such ones."""
        at, every = self.standing, 1 if at_the_end else self.settings.training.validate_every
        if at.step // every == at.validated // every:
            return False
        self._look()
        return not at.skipped_in_a_row

    def _wanted(self) -> set[int]:
        """Steps whose weights are kept for averaging."""
        at, t = self.standing, self.settings.training
        return {step for step, *_ in at.validations[-t.average :]} | set(at.best_steps()[: t.keep_best])

    def _validate_and_save(self) -> None:
        """The files are written while training goes on: what the checkpoint speaks of before it, the weights that are
        used after it (`_make_up_for_weights`)."""
        at = self.standing
        self._look()
        with self._final_weights():
            result, weights = self.validate(), weights_of(self.model)
        name = "last"
        if result is not None:
            better = result.better_than(self._best())
            at.since_best = 0 if better else at.since_best + 1
            if better:
                at.best_loss, at.best_score = result.loss, result.score
            name = "best" if better else ""
            told = f"{result.told(self.measure)}{' (best so far)' if better else ''}"
            self.report.say(f"step {at.step:,}: validation {told}")
            self._log_validation("valid", result)
        at.validations.append((at.step, *(result or (None, None))))
        at.validated = at.step
        self.metrics.clear(*self.metrics.sums)  # the time of a validation is not training time
        folder, step, wanted = self.run_folder / "training", at.step, self._wanted()

        def after() -> None:
            if name:
                self._write_weights(name, weights, use=True)
            checkpoint.let_go(folder, wanted)

        self._save(lambda: checkpoint.keep_weights(folder, step, tensor_bytes(weights)), after)

    def _make_up_for_weights(self) -> None:
        """A run that ended between a checkpoint and the weights to be used, or after weights whose checkpoint is not
        the one to go on from: those in use become those that the checkpoint speaks of."""
        best = self.standing.best_steps()
        used = "weights/best.safetensors" if best else "weights/last.safetensors"
        step = best[0] if best else self.standing.validated
        kept = checkpoint.kept_weights(self.run_folder / "training").get(step)
        if kept is not None and is_whole(kept) and not is_up_to_date(self.run_folder, used, kept):
            write_folder(self.run_folder, dict.fromkeys([used, MODEL], kept.read_bytes()))

    def _best(self) -> Validation | None:
        at = self.standing
        return None if at.best_loss is None else Validation(at.best_loss, at.best_score)

    def _save(self, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> None:
        """A checkpoint, copied now and written while training goes on; what else is to be done before and after."""
        self._look()
        self.writer.wait()  # so that no two copies lie in memory
        at = self.standing
        if not self.flat.weights.isfinite().all():
            raise UserError(
                f"the weights are no longer numbers at step {at.step:,}; go on from the checkpoint of step "
                f"{self.saved_step:,} with a lower optimizer.rate or a smaller optimizer.clip"
            )
        at.seconds = self._seconds()
        at.loss_total, at.loss_tokens = self.metrics.sums
        at.usual_loss, at.lines = self.usual.mean, self.usual.lines
        now = checkpoint.snapshot(self.flat, self.optimizer, self.average, at, self.processes)
        self.saved_step = at.step
        if now is None:
            return  # not the first process

        def work() -> None:
            before()
            self.metrics.flush()
            checkpoint.write(self.run_folder / "training", now, self.settings.training.keep)
            after()

        self.writer.begin(work)

    def _is_to_pause(self, noted: Requests) -> bool:
        """Save if somebody asks for it, and tell whether the time is over; a signal to stop ends the run here. All
        processes decide together."""
        self.writer.check()
        is_over = self.until is not None and time.monotonic() >= self.until
        is_broken = self.standing.skipped_in_a_row >= self.settings.training.max_skipped
        stop, save, over, broken = self.processes.highest(noted.stop, noted.save, is_over, is_broken)
        noted.save = False
        if broken:
            raise self._too_many_skipped()
        if (save or stop or over) and self.standing.step != self.saved_step:
            self._save()
        if save:
            self.report.say(f"step {self.standing.step:,}: a checkpoint, as SIGUSR1 asked")
        if stop:
            self.writer.wait()
            self.processes.gather(None)  # none goes before all is written: torchrun would end the others
            noted.obeyed = self.processes.count > 1
            run, step = self.run_folder, self.standing.step
            raise Stopped(f"stopped at step {step:,}; the run is saved, the same command goes on with {run}", stop)
        return bool(over)

    def _too_many_skipped(self) -> UserError:
        return UserError(
            f"{self.settings.training.max_skipped} batches in a row gave no number, up to step {self.standing.step:,}; "
            f"go on from the checkpoint of step {self.saved_step:,} with a lower optimizer.rate or a smaller "
            f"optimizer.clip, or mend the text"
        )

    def _pause(self) -> Outcome:
        at, best = self.standing, self._best()
        reason = "the minutes of --max-minutes are over; the same command goes on"
        return Outcome(at.step, self._seconds(), reason, "", best.score if best else None, at.target_tokens, False)

    def _conclude(self, reason: str) -> Outcome:
        """Write last and averaged weights beside the best; what validates best becomes the model."""
        self.writer.wait()
        self.processes.gather(None)  # the others read what the first has written
        chosen, best = ("last", None) if self._best() is None else ("best", self._best())
        with self._final_weights():
            self._write_weights("last", weights_of(self.model))
        for name, told, mean in self._means():
            restore(self.model, mean, self.run_folder)
            result = self.validate()
            self._write_weights(name, mean)
            if result is not None:
                self._log_validation(name, result)
                self.report.say(f"average of {told}: validation {result.told(self.measure)}")
                chosen, best = (name, result) if result.better_than(best) else (chosen, best)
        at = self.standing
        if self.processes.is_first:
            used = self.run_folder / "weights" / f"{chosen}.safetensors"
            write_folder(self.run_folder, {MODEL: used.read_bytes()})
        self._log("finished", reason=reason, chosen=chosen)
        self.processes.gather(None)  # nobody reads it before it is there
        return Outcome(at.step, self._seconds(), reason, chosen, best.score if best else None, at.target_tokens)

    def _means(self) -> Iterator[tuple[str, str, dict[str, Tensor]]]:
        """The averages that can be made of the weights kept, with a name and in words."""
        t, kept = self.settings.training, checkpoint.kept_weights(self.run_folder / "training")
        shapes = {name: weight.shape for name, weight in self.model.named_parameters()}
        kept = {step: path for step, path in kept.items() if is_whole(path, shapes)}
        best = [step for step in self.standing.best_steps()[: t.keep_best] if step in kept]
        last = list(kept)[-t.average :]
        for name, steps in (("averaged", last), ("averaged_best", sorted(best))):
            if len(steps) > 1:
                told = f"the {'best' if name == 'averaged_best' else 'last'} checkpoints"
                yield name, told, mean_of(kept[step] for step in steps)

    def _write_weights(self, name: str, weights: dict[str, Tensor], use: bool = False) -> None:
        """As RUN/weights/name, and if wanted as the model that is used."""
        if self.processes.is_first:
            names = [f"weights/{name}.safetensors", MODEL] if use else [f"weights/{name}.safetensors"]
            write_folder(self.run_folder, dict.fromkeys(names, tensor_bytes(weights)))

    # ---- watching ----------------------------------------------------------------------------------------------

    def _tell(self, update: Update, bar: Progress) -> None:
        """The bar at every step; a line in metrics.jsonl now and then."""
        at = self.standing
        self.metrics.add(update.total, update.tokens, update.bad)
        write = at.step % self.settings.training.log_every == 0
        if write or self.device == "cpu" or time.monotonic() - self.looked > READ_EVERY:
            loss = self._look()
            bar.update(
                self._share_done(),
                step=f"{at.step:,}",
                epoch=f"{at.epoch + 1}",
                loss="-" if loss is None else f"{loss:.3f}",
                rate=f"{update.rate:.1e}",
                speed=f"{self.metrics.speed:,.0f} tokens/s",
            )
        if write and loss is not None:
            if self.usual.jumps_to(loss):
                self.report.warn(f"step {at.step:,}: the loss jumped to {loss:.3f}; it was about {self.usual.mean:.3f}")
                self._log("spike", loss=loss, usual=self.usual.mean)
            self._log(
                "train",
                epoch=at.epoch,
                loss=loss,
                rate=update.rate,
                gradient=float(update.gradient) if update.gradient.isfinite() else None,
                skipped=at.skipped,
                target_tokens=at.target_tokens,
                empty=round(self.empty, 4),
                tokens_per_second=round(self.metrics.speed),
                memory=memory_in_use(self.device),
            )
            self.metrics.clear()

    def _look(self) -> float | None:
        """The mean loss since the last line of metrics.jsonl; waits for a GPU. Names the updates that were skipped."""
        at = self.standing
        for skipped, update in self.unread.read():
            at.skipped_in_a_row = at.skipped_in_a_row + 1 if skipped else 0
            if skipped:
                at.skipped += 1
                lines = np.sort(self.train_batches.store.lines(update.places)).tolist()
                more = f" and {len(lines) - NAMED:,} more" if len(lines) > NAMED else ""
                self.report.warn(
                    f"step {update.step:,}: loss or gradient is no number; the batch was skipped (lines "
                    f"{', '.join(f'{line:,}' for line in lines[:NAMED])}{more}; all are in metrics.jsonl)"
                )
                self._log("skipped", step=update.step, lines=lines)
        self.looked = time.monotonic()
        return self.metrics.loss

    def _log(self, kind: str, step: int | None = None, **facts: object) -> None:
        if self.processes.is_first:
            self.metrics.write(kind, step or self.standing.step, self._seconds(), **facts)

    def _log_validation(self, kind: str, result: Validation) -> None:
        score = {(self.measure.name if self.measure else "BLEU").lower(): result.score}
        self._log(kind, None, loss=result.loss, perplexity=result.perplexity, **score)

    def _share_done(self) -> float:
        """Of the limit that is nearest."""
        t, at = self.settings.training, self.standing
        shares = [
            at.step / t.steps if t.steps else 0,
            (at.epoch + at.batch / self.batches_an_epoch) / t.epochs if t.epochs else 0,
            self._seconds() / (60 * t.minutes) if t.minutes else 0,
        ]
        return min(1.0, max(shares))

    def _seconds(self) -> float:
        return time.monotonic() - self.started
