"""From corpora to what is trained on: a vocabulary, and tokens in stores. A corpus is read twice: once to count and
hash, with the vocabulary's sample taken on the way, and once to tokenize; by a run that goes on, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from transduce.bundled.corpus import bundled
from transduce.data.build import Part, build_stores
from transduce.data.corpus import Corpus, ListCorpus, open_corpus
from transduce.data.store import Store
from transduce.data.survey import HoldOut, Survey, survey
from transduce.data.tokenize import Job, Sampling
from transduce.errors import DataError, SettingsError
from transduce.files.manifest import verify, write_folder
from transduce.files.run_folder import CONFIG, RunFolder
from transduce.report import Report
from transduce.settings import config_file
from transduce.settings.sections import Settings
from transduce.settings.task import task_of
from transduce.text.normalise import normalise
from transduce.text.tokenizers import Tokenizers, file_names
from transduce.training.distributed import Processes
from transduce.training.keeper import refuse_to_replace

UNKNOWN_LABELS = 10  # that a warning names


def open_corpora(settings: Settings, report: Report) -> tuple[Corpus, Corpus | None]:
    """Training and validation text as the settings name them."""
    d, labels = settings.data, task_of(settings).labels
    if d.source is None:
        if d.target or d.valid_source or d.valid_target:
            raise SettingsError("--source is missing: the other side and validation text need it")
        report.say("no --source given: training on the bundled German-English corpus")
        made = bundled()
        train, dev = ([(s.source, s.target) for s in split] for split in (made.train, made.dev))
        return ListCorpus(train, "the bundled training text"), ListCorpus(dev, "the bundled validation text")
    if d.valid_target and not d.valid_source:
        raise SettingsError("--valid-target is given without --valid-source")
    validation = open_corpus(d.valid_source, d.valid_target, labels) if d.valid_source else None
    return open_corpus(d.source, d.target, labels), validation


class Text(NamedTuple):
    """What is trained on, tokenized."""

    tokenizers: Tokenizers
    training: Store
    validation: Store | None


def prepare(
    run: RunFolder,
    training: Corpus,
    validation: Corpus | None,
    settings: Settings,
    report: Report,
    processes: Processes,
) -> Text:
    """Vocabulary and token stores, made by the main process and found by the others."""
    text = _prepare(run, training, validation, settings, report) if processes.is_main else None
    stores = None if text is None else [str(store.folder) for store in text[1:] if store is not None]
    folders = processes.gather(stores)[0]
    if text is not None:
        return text
    assert folders is not None
    train, *valid = (Store(Path(folder)) for folder in folders)
    return Text(Tokenizers.load(run.path, settings.text), train, valid[0] if valid else None)


def _prepare(run: RunFolder, training: Corpus, validation: Corpus | None, settings: Settings, report: Report) -> Text:
    labels = task_of(settings).labels
    goes_on = run.has_started
    if not goes_on:
        refuse_to_replace(run)
    surveyed = survey(training, sample=not goes_on, labels=labels, report=report)
    hold_out = surveyed.hold_out(settings.data.hold_out) if validation is None else HoldOut()
    if hold_out.every is not None:
        aside = -(-surveyed.pairs // hold_out.every)
        report.say(f"no validation text given: {aside:,} of {surveyed.pairs:,} pairs are set aside for it")
    tokenizers = _known_tokenizers(run, settings) if goes_on else _learn(run, surveyed, hold_out, settings, report)
    surveyed.sample.clear()
    other = None if validation is None else survey(validation, labels=labels, report=report)
    if labels:
        _name_unknown_labels((other or surveyed).labels, tokenizers, report)
    stores = _Stores(run, tokenizers, settings, report)
    if validation is not None and other is not None:
        (train,) = stores.build(training, surveyed, [stores.training_part(HoldOut())])
        (valid,) = stores.build(validation, other, [stores.validation_part(HoldOut(every=1))])
        return Text(tokenizers, train, valid)
    parts = [stores.training_part(hold_out)]
    parts += [stores.validation_part(hold_out)] if hold_out.every is not None else []
    train, *held_out = stores.build(training, surveyed, parts)
    return Text(tokenizers, train, held_out[0] if held_out else None)


def _known_tokenizers(run: RunFolder, settings: Settings) -> Tokenizers:
    """Those of a run that goes on."""
    verify(run.path, file_names(settings.text))
    return Tokenizers.load(run.path, settings.text)


def _learn(run: RunFolder, surveyed: Survey, hold_out: HoldOut, settings: Settings, report: Report) -> Tokenizers:
    """From the training text at a run's start; kept in its folder with the settings."""
    sample = [pair for pair in surveyed.sample if hold_out.leaves(pair.line)]
    kind = settings.text.tokenizer
    report.say(f"learning the vocabulary ({kind}) from {len(sample):,} of {surveyed.pairs:,} pairs")
    labels = surveyed.labels_left_by(hold_out) if surveyed.labels else None  # a sample could miss some
    normalised = _Normalised([(pair.source, pair.target) for pair in sample])
    tokenizers = Tokenizers.train(normalised, settings.text, labels)
    config = {CONFIG: config_file.write(settings).encode()}  # it tells that this is a run
    write_folder(run.path, {**config, **tokenizers.files()})
    return tokenizers


class _Normalised:
    """Pairs as tokenizers read them, as often as they are asked for."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = pairs

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((normalise(source), normalise(target)) for source, target in self.pairs)


def _name_unknown_labels(labels: Iterable[str], tokenizers: Tokenizers, report: Report) -> None:
    """Labels that only validation text has can never be right."""
    unknown = tokenizers.unknown(labels)
    if unknown:
        report.warn(f"validation has labels that the training text has not: {', '.join(unknown[:UNKNOWN_LABELS])}")


class _Stores(NamedTuple):
    """Where stores are built, and how."""

    run: RunFolder
    tokenizers: Tokenizers
    settings: Settings
    report: Report

    def training_part(self, hold_out: HoldOut) -> Part:
        t = self.settings.text
        sampling = Sampling(t.sampling, t.variants, self.settings.training.seed) if t.sampling else None
        job = Job(self.tokenizers, self.settings.data, sampling, teaches=True)
        return Part(job, hold_out.leaves, rule=f"all but every {hold_out.every}")

    def validation_part(self, hold_out: HoldOut) -> Part:
        job = Job(self.tokenizers, self.settings.data)
        return Part(job, hold_out.takes, rule=f"every {hold_out.every}", text=True)

    def build(self, corpus: Corpus, surveyed: Survey, parts: Sequence[Part]) -> list[Store]:
        cache = Path(self.settings.data.cache) if self.settings.data.cache else self.run.data
        stores = build_stores(corpus, surveyed.digest, parts, cache, self.report)
        for store in stores:
            self.report.say(f"{corpus.name}: {store.counts}")
            if len(store) == 0:
                raise DataError(
                    f"every pair of {corpus.name} was left out ({store.counts}); loosen data.max_tokens or others"
                )
        return stores
