"""From corpora to what is trained on: a vocabulary, and tokens in a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from transduce.config import Settings
from transduce.errors import DataError, SettingsError
from transduce.report import Report
from transduce.tasks.resolve import config_file, started

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus
    from transduce.data.store import Sampling, Store
    from transduce.text.tokenizer import Tokenizers
    from transduce.training.distributed import Processes

ENOUGH_FOR_VOCABULARY = 250_000  # pairs, evenly taken; SentencePiece keeps its text in memory, about 1 kB a pair


def corpora(settings: Settings, report: Report) -> tuple[Corpus, Corpus | None]:
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


class Text(NamedTuple):
    """What is trained on, tokenized."""

    tokenizers: Tokenizers
    training: Store
    validation: Store | None
    validation_text: Corpus | None


def prepare(
    run: Path, training: Corpus, validation: Corpus | None, settings: Settings, report: Report, processes: Processes
) -> Text:
    """Vocabulary and token stores, made by the first process and found by the others."""
    from transduce.data import corpus
    from transduce.data.store import Sampling
    from transduce.training.checkpoint import refuse_to_replace

    pairs = corpus.count(training)
    if validation is None:
        training, validation = corpus.hold_out(training, pairs, settings.data.hold_out)
        if validation is not None:
            held = corpus.count(validation)
            report.say(f"no validation text given: {held:,} of {pairs:,} pairs are set aside for it")
    there = started(run) or not processes.is_first
    if not there:
        refuse_to_replace(run)
    tokenizers = _known_tokenizers(run, settings) if there else _learn(run, training, pairs, settings, report)
    if validation is not None and settings.text.target_tokenizer == "labels":
        _name_unknown_labels(validation, tokenizers, report)
    t = settings.text
    sampling = Sampling(t.sampling, t.variants, settings.training.seed) if t.sampling else None
    store = _store(run, training, tokenizers, settings, report, sampling)
    valid_store = None if validation is None else _store(run, validation, tokenizers, settings, report)
    return Text(tokenizers, store, valid_store, validation)


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
    write_folder(run, {**config_file(settings), **tokenizers.files()})  # the first tells that this is a run
    return tokenizers


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
