"""transduce train: from text to a model folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transduce import config as configuration
from transduce.config import Overrides, Settings
from transduce.errors import DataError, SettingsError, UserError
from transduce.models import presets
from transduce.report import SILENT, Report
from transduce.tasks import Flags, Hidden

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus
    from transduce.data.store import Store
    from transduce.models.seq2seq import Seq2Seq
    from transduce.text.tokenizer import Tokenizers
    from transduce.training.trainer import Measure, Outcome

# Files may lie elsewhere when a run goes on; that they hold the same text is checked by its hash.
MAY_MOVE = {f"data.{key}" for key in ("source", "target", "valid_source", "valid_target", "cache")}
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
    settings: Flags = None,
    report: Hidden = SILENT,
) -> None:
    """Train a translator or a classifier, or go on with a run that exists.

    Example: transduce train runs/mine --source a.de --target a.en --model.layers 4

    Without --source it trains on the bundled German-English corpus.
    Any setting can be a flag, such as --model.layers 4; transduce settings lists them.
    Flags are stronger than the file of --config, which is stronger than the preset.

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
    """
    files = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    flags: dict[str, Any] = {section: dict(keys) for section, keys in (settings or {}).items()}
    flags.setdefault("data", {}).update({key: value for key, value in files.items() if value is not None})
    if device is not None:
        flags.setdefault("training", {})["device"] = device
    resolved = resolve(run, preset, config, flags, task)
    if task == "classify" and resolved.data.source is None:
        raise SettingsError("--task classify needs --source, text with its labels in --target or before each line")
    training, validation = _corpora(resolved, report)
    fit(run, training, validation, resolved, report)


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
    old, new = configuration.flat(before), configuration.flat(now)
    for name, value in new.items():
        frozen = name.startswith(("model.", "text.", "data.")) and name not in MAY_MOVE
        frozen |= name == "optimizer.name" and {value, old[name]} != {"adam", "adamw"}  # those remember the same
        if frozen and value != old[name] and _started(run):
            raise SettingsError(
                f"{run} was started with {name}={old[name]} and cannot go on with {value}; "
                f"leave the setting out, or choose another run folder"
            )
    return now


def _started(run: Path) -> bool:
    """Whether there is something to go on with; before that, every setting may still change."""
    return any((run / "training").glob("step-*"))


def fit(run: Path, training: Corpus, validation: Corpus | None, settings: Settings, report: Report = SILENT) -> Outcome:
    """From corpora to a trained model in `run`; what the command and `transduce.train` share."""
    import torch

    from transduce.data import corpus
    from transduce.data.batches import Batches
    from transduce.inspect.plots import learning_curve
    from transduce.models import folder
    from transduce.nn.device import choose_device
    from transduce.training.trainer import Trainer

    device, settings_given = choose_device(settings.training.device), settings
    pairs = corpus.count(training)
    if validation is None:
        training, validation = corpus.hold_out(training, pairs, settings.data.hold_out)
        if validation is not None:
            held = corpus.count(validation)
            report.say(f"no validation text given: {held:,} of {pairs:,} pairs are set aside for it")
    tokenizers = _tokenizers(run, training, pairs, settings, report)

    if validation is not None and settings.text.target_tokenizer == "labels":
        _name_unknown_labels(validation, tokenizers, report)
    store = _store(run, training, tokenizers, settings, report)
    settings = replace(settings, batch=replace(settings.batch, layout=_layout(run, settings, device)))
    batches = Batches(store, settings.batch, tokenizers, settings.training.seed, settings.text.sampling, device)
    report.say(f"{len(batches.plan(0)):,} batches an epoch, {batches.fill(0).empty:.1%} of their slots empty")
    valid_batches = None
    if validation is not None:
        valid_store = _store(run, validation, tokenizers, settings, report)
        valid_batches = Batches(valid_store, replace(settings.batch, layout="buckets"), tokenizers, seed=0)

    torch.manual_seed(settings.training.seed)
    model = folder.new_model(settings, tokenizers)
    report.say(f"model of {sum(weight.numel() for weight in model.parameters()):,} weights on {device}")
    measure = _measure(validation, tokenizers, settings, device)
    trainer = Trainer(run, model, settings, batches, valid_batches, measure, device, report)
    report.say(_limits(settings))
    try:
        outcome = trainer.run(lambda: folder.write_folder(run, _config_file(settings_given)))
    finally:
        try:
            learning_curve(run, run / "curve.png")
        except UserError as error:
            report.warn(str(error))  # a picture is not worth a run
    score = "" if outcome.score is None or measure is None else f", validation {measure.name} {outcome.score:.1f}"
    report.say(f"{outcome.reason}: {outcome.step:,} steps in {outcome.seconds / 60:.1f} minutes")
    report.say(f"the {outcome.chosen} weights are the model in {run}{score}; learning curve: {run / 'curve.png'}")
    return outcome


def _layout(run: Path, settings: Settings, device: str) -> Any:
    """`auto` becomes what the run was started with; for a new run, what is fastest on this device."""
    from transduce.training.checkpoint import latest, standing_of

    if settings.batch.layout != "auto":
        return settings.batch.layout
    found, _ = latest(run / "training")
    if found is not None:
        return standing_of(found).layout
    packs = settings.model.kind != "rnn" and not settings.text.sampling
    return "packed" if device == "cuda" and packs else "buckets"


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


def _tokenizers(run: Path, training: Corpus, pairs: int, settings: Settings, report: Report) -> Tokenizers:
    """Learned from the training text at a run's start, and kept in its folder with the settings."""
    from transduce.data.corpus import Every, Normalised
    from transduce.models.folder import verify, write_folder
    from transduce.text.tokenizer import Tokenizers

    if _started(run):
        tokenizers = Tokenizers.load(run, settings.text)
        verify(run, tokenizers.files())
        return tokenizers
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


def _store(run: Path, text: Corpus, tokenizers: Tokenizers, settings: Settings, report: Report) -> Store:
    from transduce.data import store

    cache = Path(settings.data.cache) if settings.data.cache else run / "data"
    built = store.build(text, tokenizers, settings.data, cache, report)
    report.say(f"{text.name}: {built.counts}")
    if len(built) == 0:
        raise DataError(f"every pair of {text.name} was left out ({built.counts}); loosen data.max_tokens or others")
    return built


def _measure(validation: Corpus | None, tokenizers: Tokenizers, settings: Settings, device: str) -> Measure | None:
    """Decodes validation text greedily: BLEU of translations, accuracy of labels."""
    from transduce.decoding.translator import Translator
    from transduce.evaluate import bleu, exact_match, metrics
    from transduce.models.folder import Loaded
    from transduce.text.tokenizer import normalise
    from transduce.training.trainer import Measure

    tokenize, lines = settings.training.bleu_tokenizer, settings.training.bleu_lines
    metrics(tokenize)  # complain now, not after an hour
    if validation is None or lines == 0:
        return None
    pairs = [pair for _, pair in zip(range(lines), validation, strict=False)]
    references = [pair.target for pair in pairs]

    def decode(model: Seq2Seq) -> list[str]:
        translator = Translator(Loaded(model, tokenizers, settings), device).with_search(beam=1)
        return [found.text for found in translator.translate([pair.source for pair in pairs])]

    if settings.text.target_tokenizer == "labels":
        labels = [normalise(label) for label in references]
        return Measure("accuracy", lambda model: 100 * exact_match(decode(model), labels))
    return Measure("BLEU", lambda model: bleu(decode(model), references, tokenize, settings.text.lowercase))
