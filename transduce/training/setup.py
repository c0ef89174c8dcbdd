"""From text to training: everything that a run is made of, put together."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transduce.adapt.lora import ADAPTER, adapter_bytes, attach
from transduce.adapt.start import put_weights
from transduce.core.seq2seq import Seq2Seq
from transduce.data.batches import Batches
from transduce.data.corpus import Corpus, line_name
from transduce.decoding.aligner import find_aligner
from transduce.decoding.translator import Translator
from transduce.decoding.trust import TRUST
from transduce.engine.auto import make_steps
from transduce.errors import UserError
from transduce.files import strict_json
from transduce.files.atomic import write_file
from transduce.files.lock import locked, sign
from transduce.files.manifest import write_folder
from transduce.files.reading import SMALL, read_bytes
from transduce.files.run_folder import CONFIG, MODEL, RunFolder
from transduce.models.device import prepare_device
from transduce.models.kinds import kind_of, new_model
from transduce.models.load import load
from transduce.models.weights import read_weights, tensor_bytes
from transduce.report import SILENT, Report
from transduce.settings import config_file
from transduce.settings.sections import BATCH_TOKENS, BatchSettings, Settings, listed
from transduce.settings.task import task_of
from transduce.signals import ignore_save_signal
from transduce.training import checkpoint
from transduce.training.calibrate import FEWEST, find_trust
from transduce.training.carried import put_vectors
from transduce.training.clock import Clock
from transduce.training.distributed import ALONE, Processes, process_group
from transduce.training.divergence import unusable
from transduce.training.each_file import score_each_file
from transduce.training.guided import Guide
from transduce.training.journal import Journal
from transduce.training.keeper import Keeper
from transduce.training.limits import Limits
from transduce.training.memory import find_budget
from transduce.training.prepare import Text, prepare
from transduce.training.random_state import random_states_kept
from transduce.training.recipe import Recipe, settings_of
from transduce.training.state import RunState, read_state
from transduce.training.trainer import Outcome, Trainer
from transduce.training.updater import Updater
from transduce.training.validate import Validator, guess_loss, make_score


def fit(
    run: Path,
    training: Corpus,
    validation: Corpus | None,
    wanted: Settings | Recipe,
    report: Report = SILENT,
    pause_after: float | None = None,
    began: float | None = None,
) -> Outcome:
    """From corpora to a trained model in `run`; what commands and `transduce.train` share. `pause_after`: minutes;
    `began`: when its time began to count, by time.monotonic()."""
    began, folder = began or time.monotonic(), RunFolder(run)
    device = prepare_device(settings_of(wanted).training.device)
    with ignore_save_signal(), process_group(device) as processes:
        report = report if processes.is_main else SILENT
        with locked(run) if processes.is_main else contextlib.nullcontext():
            deadline = _deadline(folder, pause_after) if processes.is_main else None
            text = prepare(folder, training, validation, wanted, report, processes)
            settings = text.settings
            if processes.is_main:
                sign(folder)  # as soon as it has a config
            _remember_deadline(folder, deadline)
            setup = Setup(folder, text, settings, device, report, processes)
            trainer = setup.trainer(began, deadline)
            report.say(Limits.of(settings.training).describe(settings.optimizer.warmup))
            outcome = _train(trainer, settings, report)
            if processes.is_main and outcome.complete and len(listed(settings.data.valid_source)) > 1:
                score_each_file(run, device, report)
            return outcome


class Setup:
    """Puts a trainer together, or only an updater to try a batch size with."""

    def __init__(
        self, run: RunFolder, text: Text, settings: Settings, device: str, report: Report, processes: Processes
    ) -> None:
        self.run, self.text, self.settings = run, text, settings
        self.device, self.report, self.processes = device, report, processes

    def trainer(self, began: float, deadline: float | None) -> Trainer:
        """Batches and a new model, ready to train or to go on."""
        batch = self._batch_settings()
        batches = self._batches(batch)
        updater = self._updater(batch, batches, self.processes)
        validator, settings = self._validator(batch, batches), updater.settings.training
        empty = batches.fill(0).empty
        self._describe(updater, batches, empty)
        kept = (self.run, updater, settings, self.processes, self.report)
        keeper = Keeper(*kept, self._model_of_the_beginning, self.text.earlier)
        journal = Journal(
            self.run,
            settings,
            validator.task,
            self.device,
            self.processes.is_main,
            self.report,
            self._line_names,
            empty,
        )
        clock = Clock(Limits.of(settings), self.processes, began, deadline)
        return Trainer(updater, batches, validator, keeper, journal, self.report, clock)

    def _line_names(self, places: np.ndarray) -> Sequence[str | int]:
        """Numbers of lines; where there are several files, with their names."""
        lines, stretches = np.unique(self.text.training.lines(places)).tolist(), self.text.stretches
        return [line_name(stretches, line) for line in lines] if len(stretches) > 1 else lines

    def _batches(self, batch: BatchSettings) -> Batches:
        share = (self.processes.rank, self.processes.count)
        return Batches(self.text.training, batch, self.settings.training.seed, self.device, share)

    def _updater(self, batch: BatchSettings, batches: Batches, processes: Processes) -> Updater:
        model = self._new_model(fill=self._newest is None)
        if not self.processes.is_main:  # the same weights, but each its own dropout
            torch.manual_seed(self.settings.training.seed + (self.processes.rank << 32))
        settings = replace(self.settings, batch=batch)
        return Updater(model, settings, self.device, batches.packed, self.report, processes, self._guide)

    def _new_model(self, fill: bool) -> Seq2Seq:
        """As the seed draws it; `fill`: with what the run begins with, a model or word vectors."""
        torch.manual_seed(self.settings.training.seed)
        tokenizers = self.text.tokenizers
        model = new_model(self.settings.model, tokenizers.source.size, tokenizers.target.size)
        if fill:
            put_weights(model, self.settings, tokenizers, self.report)
            put_vectors(model, self.settings, tokenizers, self.report)
        attach(model, self.settings.training)
        return model

    def _model_of_the_beginning(self) -> Seq2Seq:
        """For a run that has to begin again, perhaps after a stop. It leaves no trace in the random states, or all
        processes would have one dropout from then on."""
        with random_states_kept():
            return self._new_model(fill=True)

    @cached_property
    def _newest(self) -> Path | None:
        """The checkpoint that the run goes on from."""
        return checkpoint.latest(self.run)[0]

    @cached_property
    def _guide(self) -> Guide | None:
        weight = self.settings.training.guided_alignment
        return Guide(self.text.training, weight) if weight else None

    def _validator(self, batch: BatchSettings, batches: Batches) -> Validator:
        store, settings, processes = self.text.validation, self.settings, self.processes
        valid_batches, pairs = None, []
        if store is not None:
            share = batches.budget // (processes.count * batch.split)  # as much as fits in training
            budget = max(min(share, BATCH_TOKENS), store.longest + 1)
            valid_batches = Batches(store, replace(batch, layout="buckets", tokens=budget), seed=0)
            pairs = store.text(settings.training.bleu_lines)
        score = make_score(settings, self.text.tokenizers, pairs, self.device, processes)
        guess = math.inf if task_of(settings).labels else guess_loss(self.text.training)
        return Validator(task_of(settings), valid_batches, score, self.device, processes, guess)

    def _describe(self, updater: Updater, batches: Batches, empty: float) -> None:
        weights, count = sum(weight.numel() for weight in updater.model.parameters()), self.processes.count
        self.report.say(f"{len(batches.plan(0)):,} batches an epoch, {empty:.1%} of their slots empty")
        shared = f", {count} processes, {1 / count:.0%} of each batch for each" if count > 1 else ""
        self.report.say(f"model of {weights:,} weights on {self.device}{shared}")

    def _batch_settings(self) -> BatchSettings:
        """`auto` becomes what the run was started with; for a new run, what is fastest on this device, and fits."""
        batch = self.settings.batch
        before = None if self._newest is None else read_state(self._newest)
        if batch.layout == "auto":
            packs = self.device == "cuda" and kind_of(self.settings.model).packs
            layout: Any = before.layout if before else "packed" if packs else "buckets"
            batch = replace(batch, layout=layout)
        if batch.tokens == "auto" and before is not None and before.batch_tokens:
            return replace(batch, tokens=before.batch_tokens)
        if batch.tokens == "auto" and self.device != "cuda":
            self.report.say(f"batch.tokens=auto: {BATCH_TOKENS:,}, since without a GPU larger batches are no faster")
            return replace(batch, tokens=BATCH_TOKENS)
        return replace(batch, tokens=self._find_tokens(batch)) if batch.tokens == "auto" else batch

    def _find_tokens(self, batch: BatchSettings) -> int:
        """The largest batch that fits into the GPUs of all processes."""

        def try_update(tokens: int) -> None:
            some = replace(batch, tokens=tokens)
            batches = self._batches(some)
            updater = self._updater(some, batches, ALONE)  # another process may need other tries
            updater.update([batches.largest(0)], RunState())

        tokens = min(self.processes.gather(find_budget(try_update)))
        self.report.say(f"batch.tokens=auto: {tokens:,} slots a side fit into this GPU")
        return tokens


def _train(trainer: Trainer, settings: Settings, report: Report) -> Outcome:
    """Train, and say how it ended."""
    run, is_main = trainer.keeper.run, trainer.processes.is_main
    config = {CONFIG: config_file.write(settings).encode()}
    try:
        outcome = trainer.run(lambda: write_folder(run.path, config) if is_main else None)
    except torch.OutOfMemoryError as error:  # in an update it has been met already (training/memory.py)
        raise UserError(
            f"out of memory beside the updates, at step {trainer.state.step:,}; let nothing else use this GPU, "
            f"or begin a new run with smaller batch.tokens (the same command goes on from step "
            f"{trainer.keeper.saved_step:,})"
        ) from error
    measure = trainer.validator.task.measure
    score = "" if outcome.score is None else f", validation {measure} {outcome.score:.1f}"
    report.say(f"{outcome.reason}: step {outcome.step:,} after {outcome.seconds / 60:.1f} minutes")
    if outcome.complete:
        batches = trainer.validator.batches
        lines = len(batches.store) if batches is not None else 0
        complaint = unusable(trainer.state.best, outcome.score, trainer.validator.guess, lines)
        which = f"least bad ({outcome.chosen})" if complaint else outcome.chosen
        report.say(f"the {which} weights are the model in {run.path}{score}")
        if outcome.step == 0:
            what = "random" if settings.training.start is None else "the one that it began with"
            report.warn(f"the time was over before the first update, so this model is {what}; give it more --minutes")
        elif complaint:
            report.warn(complaint)
        if is_main:
            _note_what_was_found(trainer, settings, report)
            _write_adapter(run, settings, report)
        trainer.processes.gather(None)  # all end together
    return outcome


def _note_what_was_found(trainer: Trainer, settings: Settings, report: Report) -> None:
    """Into the folder of a finished model: which head links words best, and how far its translations can be trusted. Of
    a run that goes on, again."""
    validator, run = trainer.validator, trainer.keeper.run
    if validator.batches is None:
        return
    try:
        model, tokenizers, _ = load(run.path, validator.device)
        aligner = find_aligner(model, validator.batches.epoch(0), tokenizers.target.size, validator.device)
        trust = None
        if not validator.task.labels:
            steps = make_steps(model, validator.device)
            translator = Translator(model, tokenizers, settings, validator.device, steps)
            pairs = validator.batches.store.text(settings.training.bleu_lines)
            trust = find_trust(translator, pairs, trainer.batches.store)
            if len(pairs) < FEWEST:
                report.say(
                    f"no line will be called doubtful: that takes {FEWEST} validation lines, and {len(pairs)} are there"
                )
    except torch.OutOfMemoryError:  # the model is there all the same
        report.warn("no memory was left to find the head that aligns words, and whom to trust")
        return
    found = replace(settings, search=replace(settings.search, aligner=str(aligner))) if aligner else settings
    files = {CONFIG: config_file.write(found).encode()}
    write_folder(run.path, files if trust is None else {**files, TRUST: tensor_bytes(trust.tensors())})


def _write_adapter(run: RunFolder, settings: Settings, report: Report) -> None:
    """The adapters alone, for whoever has the model that the run began with; it is in every checkpoint."""
    if settings.training.lora_rank is None:
        return
    after = read_weights(run.model)
    held = read_weights(run.checkpoints()[-1] / MODEL)
    write_folder(run.path, {ADAPTER: adapter_bytes({name: held[name] for name in after}, after)})
    size = (run.path / ADAPTER).stat().st_size
    report.say(f"the adapters alone: {run.path / ADAPTER}, {size / 1e6:.2f} MB of {run.model.stat().st_size / 1e6:.2f}")


def _deadline(run: RunFolder, minutes: float | None) -> float | None:
    """When this session is to end. Where torchrun has started it again, that was decided the first time."""
    if minutes is None:
        return None
    session = os.environ.get("TORCHELASTIC_RUN_ID")
    if session and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            before = strict_json.loads(read_bytes(run.session, SMALL))
            if before["session"] == session:
                return float(before["until"])
    return time.time() + 60 * minutes


def _remember_deadline(run: RunFolder, deadline: float | None) -> None:
    """For torchrun, which may start this session again."""
    session = os.environ.get("TORCHELASTIC_RUN_ID")
    if session and deadline is not None:
        write_file(run.session, strict_json.dumps({"session": session, "until": deadline}).encode())
