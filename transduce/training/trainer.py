"""The training loop: batches in, updates, validation and checkpoints at intervals, the best weights at the end."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.config import Settings
from transduce.data.batches import Batch, Batches
from transduce.errors import DataError, ModelError, Stopped, UserError
from transduce.models.folder import MODEL, restore, tensor_bytes, weights_of, write_folder
from transduce.models.seq2seq import Seq2Seq
from transduce.nn.device import memory_in_use
from transduce.report import SILENT, Progress, Report
from transduce.training import checkpoint
from transduce.training.checkpoint import Standing
from transduce.training.flat import FlatWeights
from transduce.training.gradients import FastGradients, Gradients, PlainGradients, can_be_fast
from transduce.training.loss import cross_entropy
from transduce.training.metrics import Metrics
from transduce.training.optimizers import final_weights, make_optimizer, trains_other_weights
from transduce.training.schedule import learning_rate
from transduce.training.signals import StopRequest, stop_requests

READ_EVERY = 0.5  # seconds between looks at what a GPU has computed; each look waits for it


class Update(NamedTuple):
    """What one step of the optimizer saw. Tensors stay where they are until somebody looks."""

    total: Tensor  # loss, smoothed, summed over target tokens
    tokens: int
    rate: float
    gradient: Tensor  # norm before clipping


class Measure(NamedTuple):
    """What is decoded from validation text and counted, in percent."""

    name: str  # BLEU, or accuracy
    of: Callable[[Seq2Seq], float]


class Validation(NamedTuple):
    """How good the weights are on held-out text."""

    loss: float  # nats a token, no smoothing
    score: float | None  # by the measure; None: no text is decoded

    def better_than(self, other: Validation | None) -> bool:
        """By score where both have one, by loss where it is equal or missing."""
        if other is None:
            return True
        if self.score is None or other.score is None or self.score == other.score:
            return self.loss < other.loss
        return self.score > other.score

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 99))

    def told(self, measure: Measure | None) -> str:
        score = "" if self.score is None or measure is None else f", {measure.name} {self.score:.1f}"
        return f"loss {self.loss:.3f}, perplexity {self.perplexity:.2f}{score}"


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    seconds: float
    reason: str
    chosen: str  # best, averaged or last: the weights in model.safetensors
    score: float | None  # of the validation, by the measure
    target_tokens: int  # trained on


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
    ) -> None:
        self.run_folder = run
        self.model = model.to(device)
        self.settings = settings
        self.train_batches = train
        self.valid_batches = valid
        self.measure = measure
        self.device = device
        self.report = report
        self.flat = FlatWeights(self.model)
        self.optimizer = make_optimizer(self.flat, settings.optimizer)
        self.gradients = self._gradients()
        self.standing = Standing(data=train.store.folder.name, layout=train.settings.layout)
        self.saved_step = 0  # of the newest checkpoint
        self.metrics = Metrics(run / "metrics.jsonl")
        self.batches_an_epoch = len(train.plan(0))
        self.started = self.looked = time.monotonic()

    # ---- the story ---------------------------------------------------------------------------------------------

    def run(self, begin: Callable[[], None] = lambda: None) -> Outcome:
        """Train until a limit is reached, from the last checkpoint if there is one; `begin` when that has worked."""
        self._resume()
        begin()
        self.started = time.monotonic() - self.standing.seconds
        with stop_requests() as request, self.report.progress("train", total=1.0) as bar:
            for epoch, used, batches in self._groups():
                if reason := self._finished(epoch):
                    break
                update = self.update(batches)
                self.standing.epoch, self.standing.batch = epoch, used
                self._tell(update, bar)
                if self.standing.step % self.settings.training.validate_every == 0:
                    self._validate_and_save()
                self._stop_if_asked(request)
            if self.standing.step != self.saved_step:
                self._validate_and_save()
                self._stop_if_asked(request)
            return self._conclude(reason)

    def update(self, batches: list[Batch]) -> Update:
        """One step of the optimizer on one or more batches, the loss divided by all their tokens."""
        self.model.train()
        tokens = sum(batch.tokens for batch in batches)
        totals = [self.gradients.add(batch.to(self.device), 1 / tokens) for batch in batches]
        norm = self._clip()
        at = self.standing
        at.step += 1
        at.target_tokens += tokens
        rate = learning_rate(
            at.step, self.settings.optimizer, self.settings.model.d_model, self.settings.training.steps
        )
        at.rate_squares += rate**2
        for group in self.optimizer.param_groups:
            group.update(lr=rate, number=at.step, share=rate**2 / at.rate_squares)
        self.optimizer.step()
        self.gradients.clear()
        return Update(torch.stack(totals).sum(), tokens, rate, norm)

    def _clip(self) -> Tensor:
        """Gradients longer than optimizer.clip are shortened to it; gives their norm before."""
        gradient, longest = self.flat.gradient, self.settings.optimizer.clip
        norm = gradient.norm()
        if longest is not None:
            gradient.mul_((longest / (norm + 1e-6)).clamp(max=1.0))
        return norm

    @torch.no_grad()
    def validate(self) -> Validation | None:
        """Loss without smoothing, and the measure by decoding."""
        if self.valid_batches is None:
            return None
        self.model.eval()
        total, count = 0.0, 0
        for batch in self.valid_batches.epoch(0):
            batch = batch.to(self.device)
            loss = cross_entropy(self.model(batch.source, batch.target_in), batch.target_out)
            total += float(loss.total)
            count += int(loss.tokens)
        return Validation(total / count, self.measure.of(self.model) if self.measure else None)

    # ---- its chapters ------------------------------------------------------------------------------------------

    def _gradients(self) -> Gradients:
        """As fast as this machine and these settings allow."""
        t = self.settings.training
        has = self.device == "cuda" and torch.cuda.is_bf16_supported()
        self.model.stream = torch.bfloat16 if t.precision == "bfloat16" or (t.precision == "auto" and has) else None
        fast = t.fast and can_be_fast(self.device) and self.train_batches.packed
        if fast:
            return FastGradients(self.model, t.label_smoothing, self.flat, self.settings.batch.accumulate)
        return PlainGradients(self.model, t.label_smoothing, self.flat)

    def _resume(self) -> None:
        found, complaints = checkpoint.latest(self.run_folder / "training")
        for complaint in complaints:
            self.report.warn(f"passed over a checkpoint: {complaint}")
        if found is not None:
            text = self.standing.data
            self.standing = checkpoint.resume(found, self.model, self.flat, self.optimizer)
            if self.standing.data != text:
                raise DataError(
                    f"{self.run_folder} was trained on other text, or with other filters, than is given now; "
                    f"give the same, or choose another run folder"
                )
            self.report.say(f"going on from step {self.standing.step:,}")
            self.saved_step = self.standing.step
        elif (self.run_folder / MODEL).exists():
            raise ModelError(
                f"{self.run_folder} holds a model but no checkpoint to go on from, and training would replace it; "
                f"choose another run folder"
            )
        checkpoint.forget_after(self.run_folder / "training", self.standing.step)
        self.metrics.forget_after(self.standing.step)

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
        if t.minutes is not None and self._seconds() >= 60 * t.minutes:
            return f"{t.minutes:g} minutes are over"
        if t.patience is not None and at.since_best >= t.patience:
            return f"no better validation in the last {t.patience}"
        return ""

    def _validate_and_save(self) -> None:
        at, t = self.standing, self.settings.training
        self._look()
        with final_weights(self.optimizer):
            result, weights = self.validate(), weights_of(self.model)
        if result is None:
            self._save_weights("last", weights, use=True)
        else:
            better = result.better_than(self._best())
            at.since_best = 0 if better else at.since_best + 1
            if better:
                at.best_loss, at.best_score = result.loss, result.score
                self._save_weights("best", weights, use=True)
            told = f"{result.told(self.measure)}{' (best so far)' if better else ''}"
            self.report.say(f"step {at.step:,}: validation {told}")
            self._log_validation("valid", result)
        self._save()
        other = tensor_bytes(weights) if trains_other_weights(self.optimizer) else None
        checkpoint.keep_for_average(self.run_folder / "training", at.step, t.average, other)

    def _best(self) -> Validation | None:
        at = self.standing
        return None if at.best_loss is None else Validation(at.best_loss, at.best_score)

    def _save(self) -> None:
        self._look()
        self.standing.seconds = self._seconds()
        folder = self.run_folder / "training"
        checkpoint.save(folder, self.model, self.flat, self.optimizer, self.standing, self.settings.training.keep)
        self.saved_step = self.standing.step

    def _stop_if_asked(self, request: StopRequest) -> None:
        if request.signal is None:
            return
        if self.standing.step != self.saved_step:
            self._save()
        run, step = self.run_folder, self.standing.step
        raise Stopped(
            f"stopped at step {step:,}; the run is saved, the same command goes on with {run}", request.signal
        )

    def _conclude(self, reason: str) -> Outcome:
        """Write last and averaged weights beside the best; what validates best becomes the model."""
        chosen, best = ("last", None) if self._best() is None else ("best", self._best())
        with final_weights(self.optimizer):
            self._save_weights("last", weights_of(self.model))
        mean = checkpoint.averaged(self.run_folder / "training")
        if mean is not None:
            restore(self.model, mean, self.run_folder)
            result = self.validate()
            better = result is not None and result.better_than(best)
            self._save_weights("averaged", mean)
            if result is not None:
                self._log_validation("averaged", result)
                self.report.say(f"average of the last checkpoints: validation {result.told(self.measure)}")
                chosen, best = ("averaged", result) if better else (chosen, best)
        used = self.run_folder / "weights" / f"{chosen}.safetensors"
        write_folder(self.run_folder, {MODEL: used.read_bytes()})
        at = self.standing
        return Outcome(at.step, self._seconds(), reason, chosen, best.score if best else None, at.target_tokens)

    def _save_weights(self, name: str, weights: dict[str, Tensor], use: bool = False) -> None:
        """As RUN/weights/name, and if wanted as the model that is used."""
        content = tensor_bytes(weights)
        names = [f"weights/{name}.safetensors", MODEL] if use else [f"weights/{name}.safetensors"]
        write_folder(self.run_folder, dict.fromkeys(names, content))

    # ---- watching ----------------------------------------------------------------------------------------------

    def _tell(self, update: Update, bar: Progress) -> None:
        """The bar at every step; a line in metrics.jsonl now and then."""
        at = self.standing
        self.metrics.add(update.total + 0 * update.gradient, update.tokens)  # a gradient that is no number shows too
        write = at.step % self.settings.training.log_every == 0
        if write or self.device == "cpu" or time.monotonic() - self.looked > READ_EVERY:
            loss = self._look()
            bar.update(
                self._share_done(),
                step=f"{at.step:,}",
                epoch=f"{at.epoch + 1}",
                loss=f"{loss:.3f}",
                rate=f"{update.rate:.1e}",
                speed=f"{self.metrics.speed:,.0f} tokens/s",
            )
        if write:
            self._log(
                "train",
                epoch=at.epoch,
                loss=loss,
                rate=update.rate,
                gradient=float(update.gradient),
                target_tokens=at.target_tokens,
                tokens_per_second=round(self.metrics.speed),
                memory=memory_in_use(self.device),
            )

    def _look(self) -> float:
        """The mean loss since the last line of metrics.jsonl; waits for a GPU. Weights that went wrong end the run."""
        loss = self.metrics.loss
        self.looked = time.monotonic()
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is no longer a number at step {self.standing.step:,}; go on from the checkpoint of step "
                f"{self.saved_step:,} with a lower optimizer.rate or a smaller optimizer.clip"
            )
        return loss

    def _log(self, kind: str, **numbers: float | None) -> None:
        self.metrics.write(kind, self.standing.step, self._seconds(), **numbers)

    def _log_validation(self, kind: str, result: Validation) -> None:
        score = {(self.measure.name if self.measure else "BLEU").lower(): result.score}
        self._log(kind, loss=result.loss, perplexity=result.perplexity, **score)

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
