"""transduce train: from text to a model folder."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transduce.config import BATCH_TOKENS, BatchSettings, Settings
from transduce.errors import SettingsError, UserError
from transduce.report import SILENT, Report
from transduce.tasks import Flags, Hidden
from transduce.tasks.prepare import Text, corpora, prepare
from transduce.tasks.resolve import config_file, resolve
from transduce.training.signals import nothing_to_save

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus
    from transduce.models.seq2seq import Seq2Seq
    from transduce.training.distributed import Processes
    from transduce.training.trainer import Outcome, Trainer
    from transduce.training.validation import Measure


def train(
    run: Path,
    *,
    source: str | None = None,
    target: str | None = None,
    valid_source: str | None = None,
    valid_target: str | None = None,
    task: Literal["translate", "classify"] = "translate",
    preset: str | None = None,
    config: Path | None = None,
    device: str | None = None,
    max_minutes: float | None = None,
    settings: Flags = None,
    report: Hidden = SILENT,
) -> None:
    """Train a translator or a classifier, or go on with a run that exists.

    Example: transduce train runs/mine --source a.de --target a.en --model.layers 4

    Without --source it trains on the bundled German-English corpus.
    Any setting can be a flag, such as --model.layers 4; transduce settings lists them.
    Flags are stronger than the file of --config, which is stronger than the preset.
    On several GPUs or machines: torchrun --nproc-per-node 4 -m transduce train runs/mine --source ...

    Parameters
    ----------
    run
        Folder of the run; made if it is new, continued if it exists.
    source
        Training text, one sentence a line (.gz also), or a .tsv or .jsonl with both sides.
    target
        Its translation, line by line.
    valid_source
        Validation text; without it, some training pairs are set aside.
    valid_target
        Its translation.
    task
        translate: from text to text. classify: from text to labels, which are the lines of --target; or without it the
        __label__NAME that each line of --source begins with.
    preset
        Starting point (see: transduce presets); tiny for the bundled corpus and small for other text if not given.
    config
        YAML file with sections of settings.
    device
        auto, cpu, cuda or mps.
    max_minutes
        Save and end this session after so long; the same command goes on with the run.
    """
    files = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    flags: dict[str, Any] = {section: dict(keys) for section, keys in (settings or {}).items()}
    flags.setdefault("data", {}).update({key: value for key, value in files.items() if value is not None})
    if device is not None:
        flags.setdefault("training", {})["device"] = device
    resolved = resolve(run, preset, config, flags, task)
    if task == "classify" and resolved.data.source is None:
        raise SettingsError("--task classify needs --source, text with its labels in --target or before each line")
    if max_minutes is not None and not max_minutes > 0:
        raise SettingsError(f"--max-minutes {max_minutes:g} must be above 0")
    with nothing_to_save():
        training, validation = corpora(resolved, report)
        fit(run, training, validation, resolved, report, max_minutes)


def fit(
    run: Path,
    training: Corpus,
    validation: Corpus | None,
    settings: Settings,
    report: Report = SILENT,
    max_minutes: float | None = None,
) -> Outcome:
    """From corpora to a trained model in `run`; what the command and `transduce.train` share."""
    from transduce.models.folder import held
    from transduce.nn.device import choose_device
    from transduce.training.distributed import joined

    until = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    device = choose_device(settings.training.device)
    with nothing_to_save(), joined(device) as processes:
        report = report if processes.is_first else SILENT
        with held(run) if processes.is_first else contextlib.nullcontext():
            with processes.first_goes_first():
                text = prepare(run, training, validation, settings, report, processes)
            trainer = _trainer(run, text, settings, device, report, processes, until)
            report.say(_limits(settings))
            return _follow(trainer, settings)


def _trainer(
    run: Path,
    text: Text,
    settings: Settings,
    device: str,
    report: Report,
    processes: Processes,
    until: float | None,
) -> Trainer:
    """Batches and a new model, ready to train or to go on."""
    import torch

    from transduce.data.batches import Batches
    from transduce.models import folder
    from transduce.training.trainer import Trainer

    seed, share = settings.training.seed, (processes.rank, processes.count)

    def made(batch: BatchSettings, processes: Processes) -> Trainer:
        batches = Batches(text.training, batch, seed, device, share)
        valid_batches = None
        if text.validation is not None:
            share_of_it = batches.budget // (processes.count * batch.split)  # as much as fits in training
            budget = max(min(share_of_it, BATCH_TOKENS), text.validation.longest + 1)
            valid_batches = Batches(text.validation, replace(batch, layout="buckets", tokens=budget), seed=0)
        torch.manual_seed(seed)
        model = folder.new_model(settings, text.tokenizers)
        if not processes.is_first:
            torch.manual_seed(seed + (processes.rank << 32))  # the same weights, but each its own dropout
        measure = _measure(text, settings, device, processes)
        here = replace(settings, batch=batch)
        return Trainer(run, model, here, batches, valid_batches, measure, device, report, processes, until)

    trainer = made(_batch_settings(run, settings, device, made, report, processes), processes)
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    report.say(f"{trainer.batches_an_epoch:,} batches an epoch, {trainer.empty:.1%} of their slots empty")
    shared = f", {processes.count} processes, {1 / processes.count:.0%} of each batch for each" if share[1] > 1 else ""
    report.say(f"model of {weights:,} weights on {device}{shared}")
    return trainer


def _follow(trainer: Trainer, settings: Settings) -> Outcome:
    """Train; whatever happens, leave a picture of how far it came."""
    import torch

    from transduce.models import folder
    from transduce.training.distributed import AnotherDied

    run, report, first = trainer.run_folder, trainer.report, trainer.processes.is_first
    try:
        outcome = trainer.run(lambda: folder.write_folder(run, config_file(settings)) if first else None)
    except AnotherDied:
        raise  # torchrun is about to end this process: no time for a picture
    except BaseException as error:
        _draw(trainer)
        if isinstance(error, torch.OutOfMemoryError):  # in an update it has been met already (training/memory.py)
            raise UserError(
                f"out of memory beside the updates, at step {trainer.standing.step:,}; let nothing else use this GPU, "
                f"or begin a new run with smaller batch.tokens (the same command goes on from step "
                f"{trainer.saved_step:,})"
            ) from error
        raise
    _draw(trainer)
    measure = trainer.measure
    score = "" if outcome.score is None or measure is None else f", validation {measure.name} {outcome.score:.1f}"
    report.say(f"{outcome.reason}: step {outcome.step:,} after {outcome.seconds / 60:.1f} minutes")
    if outcome.complete:
        report.say(f"the {outcome.chosen} weights are the model in {run}{score}; learning curve: {run / 'curve.png'}")
    return outcome


def _draw(trainer: Trainer) -> None:
    from transduce.inspect.plots import learning_curve

    run = trainer.run_folder
    try:
        if trainer.processes.is_first and (run / "metrics.jsonl").exists():
            learning_curve(run, run / "curve.png")
    except UserError as error:
        trainer.report.warn(str(error))  # a picture is not worth a run


def _batch_settings(
    run: Path,
    settings: Settings,
    device: str,
    made: Callable[[BatchSettings, Processes], Trainer],
    report: Report,
    processes: Processes,
) -> BatchSettings:
    """`auto` becomes what the run was started with; for a new run, what is fastest on this device, and fits."""
    from transduce.training.checkpoint import latest, standing_of
    from transduce.training.distributed import ALONE
    from transduce.training.memory import find_budget

    batch = settings.batch
    found, _ = latest(run / "training")
    before = None if found is None else standing_of(found)
    if batch.layout == "auto":
        packs = device == "cuda" and settings.model.kind != "rnn"
        layout: Any = before.layout if before else "packed" if packs else "buckets"
        batch = replace(batch, layout=layout)
    if batch.tokens == "auto" and before is not None and before.batch_tokens:
        batch = replace(batch, tokens=before.batch_tokens)
    elif batch.tokens == "auto" and device != "cuda":
        batch = replace(batch, tokens=BATCH_TOKENS)
        report.say(f"batch.tokens=auto: {batch.tokens:,}, since without a GPU larger batches are no faster")
    elif batch.tokens == "auto":

        def try_update(tokens: int) -> None:
            trainer = made(replace(batch, tokens=tokens), ALONE)  # another process may need other tries
            trainer.update([trainer.train_batches.largest(0)])

        batch = replace(batch, tokens=min(processes.gather(find_budget(try_update))))
        report.say(f"batch.tokens=auto: {batch.tokens:,} slots a side fit into this GPU")
    return batch


def _limits(settings: Settings) -> str:
    """When training will stop, in words; and a word on a schedule that cannot unfold before that."""
    t, warmup = settings.training, settings.optimizer.warmup
    limits = [f"{t.steps:,} steps"] if t.steps else []
    limits += [f"{t.epochs} epochs"] if t.epochs else []
    limits += [f"{t.minutes:g} minutes"] if t.minutes else []
    limits += [f"{t.patience} validations without a better one"] if t.patience else []
    short = f"; optimizer.warmup={warmup} is longer than that" if t.steps and t.steps < warmup else ""
    return f"training stops after {' or '.join(limits)}{', whichever comes first' if len(limits) > 1 else ''}{short}"


def _measure(text: Text, settings: Settings, device: str, processes: Processes) -> Measure | None:
    """Decodes validation text greedily: BLEU of translations, accuracy of labels. Every process takes its share."""
    from transduce.decoding.translator import Translator
    from transduce.evaluate import bleu, exact_match, metrics
    from transduce.models.folder import Loaded
    from transduce.text.tokenizer import normalise
    from transduce.training.validation import Measure

    tokenize, lines = settings.training.bleu_tokenizer, settings.training.bleu_lines
    metrics(tokenize)  # complain now, not after an hour
    if text.validation_text is None or lines == 0:
        return None
    pairs = list(itertools.islice(text.validation_text, lines))
    references = [pair.target for pair in pairs]

    def decode(model: Seq2Seq) -> list[str]:
        translator = Translator(Loaded(model, text.tokenizers, settings), device).with_search(beam=1)
        mine = [pair.source for pair in pairs[processes.rank :: processes.count]]
        shares = processes.gather([found.text for found in translator.translate(mine)])
        return [shares[i % processes.count][i // processes.count] for i in range(len(pairs))]

    if settings.text.target_tokenizer == "labels":
        labels = [normalise(label) for label in references]
        return Measure("accuracy", lambda model: 100 * exact_match(decode(model), labels))
    return Measure("BLEU", lambda model: bleu(decode(model), references, tokenize, settings.text.lowercase))
