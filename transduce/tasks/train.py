"""transduce train: from text to a model folder."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from transduce import config as configuration
from transduce.config import BATCH_TOKENS, BatchSettings, Overrides, Settings
from transduce.errors import DataError, SettingsError, UserError
from transduce.models import presets
from transduce.report import SILENT, Report
from transduce.tasks import Flags, Hidden
from transduce.training.signals import nothing_to_save

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus
    from transduce.data.store import Sampling, Store
    from transduce.models.seq2seq import Seq2Seq
    from transduce.text.tokenizer import Tokenizers
    from transduce.training.distributed import Processes
    from transduce.training.trainer import Outcome, Trainer
    from transduce.training.validation import Measure

# When a run goes on, files may lie elsewhere: that they hold the same text is checked by its hash.
MAY_CHANGE = {f"data.{key}" for key in ("source", "target", "valid_source", "valid_target", "cache")}
MAY_CHANGE |= {f"optimizer.{key}" for key in ("rate", "factor", "clip", "weight_decay")} | {"batch.split"}
CLASSIFY: Overrides = {
    "model": {"kind": "classifier", "tie_output": False, "tie_source": False, "output_bias": True},
    "text": {"joint": False, "target_tokenizer": "labels"},
    "training": {"label_smoothing": 0.0},
}
ENOUGH_FOR_VOCABULARY = 250_000  # pairs, evenly taken; SentencePiece keeps its text in memory, about 1 kB a pair


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
        training, validation = _corpora(resolved, report)
        fit(run, training, validation, resolved, report, max_minutes)


def resolve(run: Path, preset: str | None, config: Path | None, flags: Overrides, task: str = "translate") -> Settings:
    """The settings of a run: preset, task, file and flags in rising strength; for an existing run, over what it has."""
    file = configuration.read(config) if config else {}
    stored = run / "config.yaml"
    given = preset is not None or any(keys for layer in (file, flags) for keys in layer.values())
    sections = [layer.get("data") for layer in (file, flags)]
    if not stored.exists() or (given and not _started(run)):  # what failed before its first step is begun anew
        if not stored.exists() and run.exists() and (not run.is_dir() or any(run.iterdir())):
            raise SettingsError(f"{run} exists and is not a run folder; choose another name")
        own_text = any(isinstance(keys, dict) and keys.get("source") for keys in sections)
        base = presets.find(preset or ("small" if own_text else "tiny")).settings
        if task == "classify" and base.get("model", {}).get("kind", "transformer") != "transformer":
            raise SettingsError(
                f"--task classify trains an encoder of the Transformer; the preset {preset} is of another kind"
            )
        resolved = configuration.compose(base, *([CLASSIFY] if task == "classify" else []), file, flags)
        configuration.check_idle(resolved)
        return resolved
    before = configuration.compose(configuration.read(stored))
    if task == "classify" and before.model.kind != "classifier":
        raise SettingsError(
            f"{run} holds a model of kind {before.model.kind}, not a classifier; choose another run folder"
        )
    layers = [presets.find(preset).settings] if preset else []
    now = configuration.compose(*layers, file, flags, base=before)
    if _started(run):
        _refuse_changes(run, configuration.flat(before), configuration.flat(now))
    return now


def _refuse_changes(run: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """A run that goes on is the same run: what decides its updates stays."""
    changed = [name for name, value in new.items() if value != old[name] and not _may_change(name)]
    adam = {"adam", "adamw"}  # which remember the same
    changed = [n for n in changed if n != "optimizer.name" or {old[n], new[n]} != adam]
    if changed:
        told = ", ".join(f"{name}={_written(old[name])}, not {_written(new[name])}" for name in changed)
        raise SettingsError(
            f"{run} was started with {told}; leave that out, or choose another run folder (what may change: how long "
            f"it trains, what is logged, validated and kept, the learning rate, clipping, device and search)"
        )


def _written(value: Any) -> str:
    """As a flag has it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _may_change(name: str) -> bool:
    section, key = name.split(".")
    if section == "training":
        return key not in ("seed", "label_smoothing", "ema")
    return section == "search" or name in MAY_CHANGE


def _started(run: Path) -> bool:
    """Whether there is something to go on with; before that, every setting may still change."""
    return any((run / "training").glob("step-*[0-9]"))


def fit(
    run: Path,
    training: Corpus,
    validation: Corpus | None,
    settings: Settings,
    report: Report = SILENT,
    max_minutes: float | None = None,
) -> Outcome:
    """From corpora to a trained model in `run`; what the command and `transduce.train` share."""
    from transduce.nn.device import choose_device
    from transduce.training.distributed import joined

    until = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    device = choose_device(settings.training.device)
    with nothing_to_save(), joined(device) as processes:
        report = report if processes.is_first else SILENT
        with processes.first_goes_first():
            text = _prepare(run, training, validation, settings, report, processes)
        trainer = _trainer(run, text, settings, device, report, processes, until)
        report.say(_limits(settings))
        return _follow(trainer, settings)


class Text(NamedTuple):
    """What is trained on, tokenized."""

    tokenizers: Tokenizers
    training: Store
    validation: Store | None
    validation_text: Corpus | None


def _prepare(
    run: Path, training: Corpus, validation: Corpus | None, settings: Settings, report: Report, processes: Processes
) -> Text:
    """Vocabulary and token stores, made by the first process and found by the others."""
    from transduce.data import corpus
    from transduce.data.store import Sampling

    pairs = corpus.count(training)
    if validation is None:
        training, validation = corpus.hold_out(training, pairs, settings.data.hold_out)
        if validation is not None:
            held = corpus.count(validation)
            report.say(f"no validation text given: {held:,} of {pairs:,} pairs are set aside for it")
    there = _started(run) or not processes.is_first
    tokenizers = _known_tokenizers(run, settings) if there else _learn(run, training, pairs, settings, report)
    if validation is not None and settings.text.target_tokenizer == "labels":
        _name_unknown_labels(validation, tokenizers, report)
    t = settings.text
    sampling = Sampling(t.sampling, t.variants, settings.training.seed) if t.sampling else None
    store = _store(run, training, tokenizers, settings, report, sampling)
    valid_store = None if validation is None else _store(run, validation, tokenizers, settings, report)
    return Text(tokenizers, store, valid_store, validation)


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

    def made(batch: BatchSettings) -> Trainer:
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

    trainer = made(_batch_settings(run, settings, device, made, report, processes))
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    report.say(f"{trainer.batches_an_epoch:,} batches an epoch, {trainer.empty:.1%} of their slots empty")
    shared = f", {processes.count} processes, {1 / processes.count:.0%} of each batch for each" if share[1] > 1 else ""
    report.say(f"model of {weights:,} weights on {device}{shared}")
    return trainer


def _follow(trainer: Trainer, settings: Settings) -> Outcome:
    """Train; whatever happens, leave a picture of how far it came."""
    from transduce.models import folder
    from transduce.training.distributed import AnotherDied

    run, report, first = trainer.run_folder, trainer.report, trainer.processes.is_first
    try:
        outcome = trainer.run(lambda: folder.write_folder(run, _config_file(settings)) if first else None)
    except AnotherDied:
        raise  # torchrun is about to end this process: no time for a picture
    except BaseException:
        _draw(trainer)
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
    made: Callable[[BatchSettings], Trainer],
    report: Report,
    processes: Processes,
) -> BatchSettings:
    """`auto` becomes what the run was started with; for a new run, what is fastest on this device, and fits."""
    from transduce.training.checkpoint import latest, standing_of
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
            trainer = made(replace(batch, tokens=tokens))
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


def _corpora(settings: Settings, report: Report) -> tuple[Corpus, Corpus | None]:
    """Training and validation text as the settings name them."""
    from transduce.data.corpus import ListCorpus, open_corpus
    from transduce.text.bundled import bundled

    d = settings.data
    if d.source is None:
        if d.target or d.valid_source or d.valid_target:
            raise SettingsError("--source is missing: the other side and validation text need it")
        report.say("no --source given: training on the bundled German-English corpus")
        made = bundled()
        splits = [[(pair.source, pair.target) for pair in split] for split in (made.train, made.dev)]
        return ListCorpus(splits[0], "the bundled training text"), ListCorpus(splits[1], "the bundled validation text")
    if d.valid_target and not d.valid_source:
        raise SettingsError("--valid-target is given without --valid-source")
    labels = settings.text.target_tokenizer == "labels"
    validation = open_corpus(d.valid_source, d.valid_target, labels) if d.valid_source else None
    return open_corpus(d.source, d.target, labels), validation


def _known_tokenizers(run: Path, settings: Settings) -> Tokenizers:
    """Those of a run that goes on."""
    from transduce.models.folder import verify
    from transduce.text.tokenizer import Tokenizers

    tokenizers = Tokenizers.load(run, settings.text)
    verify(run, tokenizers.files())
    return tokenizers


def _learn(run: Path, training: Corpus, pairs: int, settings: Settings, report: Report) -> Tokenizers:
    """From the training text at a run's start; kept in its folder with the settings."""
    from transduce.data.corpus import Every, Normalised
    from transduce.models.folder import write_folder
    from transduce.text.tokenizer import Tokenizers

    every = -(-pairs // ENOUGH_FOR_VOCABULARY)
    report.say(f"learning the vocabulary ({settings.text.tokenizer}) from {pairs // every:,} of {pairs:,} pairs")
    labels = settings.text.target_tokenizer == "labels"  # a sample could miss some
    every_label = {pair.target for pair in Normalised(training)} if labels else None
    tokenizers = Tokenizers.train(Normalised(Every(training, every)), settings.text, every_label)
    write_folder(run, {**tokenizers.files(), **_config_file(settings)})
    return tokenizers


def _config_file(settings: Settings) -> dict[str, bytes]:
    return {"config.yaml": configuration.write(settings).encode()}


def _name_unknown_labels(validation: Corpus, tokenizers: Tokenizers, report: Report) -> None:
    """Labels that only validation text has can never be right."""
    from transduce.data.corpus import Normalised
    from transduce.text.tokenizer import UNKNOWN

    labels = sorted({pair.target for pair in Normalised(validation)})
    unknown = [label for label in labels if tokenizers.target.encode([label]) == [[UNKNOWN]]]
    if unknown:
        report.warn(f"validation has labels that the training text has not: {', '.join(unknown[:10])}")


def _store(
    run: Path,
    text: Corpus,
    tokenizers: Tokenizers,
    settings: Settings,
    report: Report,
    sampling: Sampling | None = None,
) -> Store:
    from transduce.data import store

    cache = Path(settings.data.cache) if settings.data.cache else run / "data"
    built = store.build(text, tokenizers, settings.data, cache, report, sampling)
    report.say(f"{text.name}: {built.counts}")
    if len(built) == 0:
        raise DataError(f"every pair of {text.name} was left out ({built.counts}); loosen data.max_tokens or others")
    return built


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
