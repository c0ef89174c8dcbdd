"""From corpora to what is trained on: a vocabulary, and tokens in stores. A corpus is read twice: once to count and
hash, with the vocabulary's sample taken on the way, and once to tokenize; by a run that goes on, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from transduce.adapt.start import tokenizers_of_start
from transduce.bundled.corpus import bundled
from transduce.core.special import UNKNOWN
from transduce.data.build import Part, build_stores, store_name
from transduce.data.corpus import Corpus, ListCorpus, Stretch
from transduce.data.drawn import drawn
from transduce.data.facts import facts
from transduce.data.one_file import Two
from transduce.data.open import open_files, remarks
from transduce.data.store import Store
from transduce.data.survey import HoldOut, Survey, refuse_sentences, survey
from transduce.data.tokenize import Job, Sampling
from transduce.errors import DataError, SettingsError
from transduce.files.manifest import verify, write_folder
from transduce.files.run_folder import CONFIG, RunFolder
from transduce.models.device import prepare_device
from transduce.report import Report
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, Settings, listed
from transduce.settings.task import task_of
from transduce.text.normalise import normalise
from transduce.text.subwords import WrongVocabulary
from transduce.text.tokenizers import Tokenizers, file_names
from transduce.training import checkpoint
from transduce.training.chosen import choose_again, keep_choices
from transduce.training.distributed import Processes
from transduce.training.keeper import refuse_to_replace
from transduce.training.more import refuse_less_time, refuse_no_time
from transduce.training.recipe import Choice, Machine, Recipe, for_text, for_time, settings_of
from transduce.training.state import read_state
from transduce.training.trial import seconds_an_update

UNKNOWN_LABELS = 10  # that a warning names
VOCABULARY_PAIRS = 50_000  # that a recipe's vocabulary is learned from: it is given a time
TRIED = 2000  # pairs that the machine is tried with
UNRELATED = 0.2  # correlation of the lengths of both sides: about 0.9 of translations, but 0.4 where all are short
TOO_FEW = 100  # pairs
ENOUGH_TO_TELL = 200  # pairs
MOST_FILES = 12  # of a text that may grow: with each, there are more ways in which it may have begun
UNKNOWN_SHARE = 0.1  # of the tokens, from which a vocabulary does not fit


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
    training, validation = text_of(d, labels), validation_text_of(d, labels) if d.valid_source else None
    for corpus in (training, validation):
        for remark in remarks(corpus) if corpus is not None else ():
            report.say(remark)
    return training, validation


def text_of(data: DataSettings, labels: bool = False) -> Corpus:
    """The training text that settings name."""
    return open_files(listed(data.source), listed(data.target), labels, *_chosen(data))


def validation_text_of(data: DataSettings, labels: bool = False) -> Corpus:
    """The validation text, likewise."""
    flags = ("--valid-source", "--valid-target")
    return open_files(listed(data.valid_source), listed(data.valid_target), labels, *_chosen(data), flags)


def _chosen(data: DataSettings) -> tuple[Two | None, Two | None]:
    """Columns and languages."""
    columns, languages = (None if two is None else (two[0], two[1]) for two in (data.columns, data.languages))
    return columns, languages


class Text(NamedTuple):
    """What is trained on, tokenized, and with which settings."""

    settings: Settings
    tokenizers: Tokenizers
    training: Store
    validation: Store | None
    stretches: Sequence[Stretch] = ()  # the lines of each part of the training text, where the main process knows
    earlier: Sequence[str] = ()  # stores of a run whose text has grown: it may go on from them


def prepare(
    run: RunFolder,
    training: Corpus,
    validation: Corpus | None,
    wanted: Settings | Recipe,
    report: Report,
    processes: Processes,
) -> Text:
    """Vocabulary and token stores, made by the main process and found by the others. What a recipe leaves open is
    chosen on the way."""
    text = _prepare(run, training, validation, wanted, report, processes.count) if processes.is_main else None
    both = () if text is None else (text.training, text.validation)
    stores = [str(store.folder) for store in both if store is not None]
    chosen = {} if text is None else asdict(text.settings)
    folders, chosen, earlier = processes.gather((stores, chosen, () if text is None else text.earlier))[0]
    if text is not None:
        return text
    settings = compose(chosen)
    train, *valid = (Store(Path(folder)) for folder in folders)
    return Text(settings, Tokenizers.load(run.path, settings.text), train, valid[0] if valid else None, (), earlier)


def _prepare(
    run: RunFolder,
    training: Corpus,
    validation: Corpus | None,
    wanted: Settings | Recipe,
    report: Report,
    processes: int,
) -> Text:
    settings = settings_of(wanted)
    labels = task_of(settings).labels
    goes_on = run.has_started
    refuse_less_time(run, settings)
    if not goes_on:
        refuse_to_replace(run)
    other = None if validation is None else survey(validation, labels=labels, report=report)  # first: it is soon known
    surveyed = survey(training, sample=not goes_on, labels=labels, report=report)
    refuse_sentences(surveyed.labels, surveyed.pairs)
    hold_out = surveyed.hold_out(settings.data.hold_out) if validation is None else HoldOut()
    earlier: Sequence[str] = ()
    if goes_on:
        tokenizers = _known_tokenizers(run, settings)
        stores = _Stores(run, tokenizers, settings, report)
        if before := None if labels or settings.data.weight else stores.of_before(surveyed, validation is None):
            hold_out, earlier = before
    _tell_hold_out(surveyed, hold_out, report)
    if not goes_on:
        settings, tokenizers = settle(surveyed, hold_out, wanted, report, processes)
        config = {CONFIG: config_file.write(settings).encode()}  # it tells that this is a run
        write_folder(run.path, {**config, **tokenizers.files()})
        stores = _Stores(run, tokenizers, settings, report)
    keep_choices(run, wanted)
    surveyed.sample.clear()
    if labels:
        _name_unknown_labels((other or surveyed).labels, tokenizers, report)
    parts = [stores.training_part(hold_out, surveyed.stretches)]
    parts += [stores.validation_part(hold_out)] if hold_out.every is not None else []
    train, *valid = stores.build(training, surveyed, parts)
    _refuse_empty(train, training)
    if valid and not len(valid[0]):
        report.warn("no pair that is set aside for validation can be used, so there is none; give it --valid-source")
        valid = []
    if validation is not None and other is not None:
        valid = stores.build(validation, other, [stores.validation_part(HoldOut(every=1))])
        _refuse_empty(valid[0], validation)
    if goes_on and isinstance(wanted, Recipe):
        for words in choose_again(run, wanted, train):
            report.say(words)
        settings = wanted.settings
    return Text(settings, tokenizers, train, valid[0] if valid else None, surveyed.stretches, earlier)


def _tell_hold_out(surveyed: Survey, hold_out: HoldOut, report: Report) -> None:
    if hold_out.every is None:
        return
    aside = len(hold_out.lines(surveyed.pairs))
    report.say(f"no validation text given: {aside:,} of {surveyed.pairs:,} pairs are set aside for it")
    for stretch, tag in zip(surveyed.stretches, surveyed.tags, strict=True):
        if tag and not all(surveyed.tags):
            report.say(f"none of {stretch.name}, where every source begins with {tag[:20]}, as what a model has made")
    if hold_out.copies:
        report.say(f"{len(hold_out.copies):,} more have a source that is among those; training does without them")
    elif copies := surveyed.copies_of(hold_out):
        report.warn(
            f"the text repeats itself: {len(copies):,} pairs have a source that is set aside too, and validation "
            f"will look better than it is; give other text with --valid-source"
        )


def _known_tokenizers(run: RunFolder, settings: Settings) -> Tokenizers:
    """Those of a run that goes on."""
    verify(run.path, file_names(settings.text))
    return Tokenizers.load(run.path, settings.text)


def settle(
    surveyed: Survey, hold_out: HoldOut, wanted: Settings | Recipe, report: Report, processes: int = 1
) -> tuple[Settings, Tokenizers]:
    """The vocabulary of a new run, and the settings that its recipe left open. `processes`: that will train."""
    sample = [pair for pair in surveyed.sample if hold_out.leaves(pair.line)]
    known_before = tokenizers_of_start(settings_of(wanted))
    if not isinstance(wanted, Recipe):
        return wanted, known_before or _learn(surveyed, hold_out, wanted, report)
    known = facts(sample, surveyed.pairs)
    surveyed.sample = list(drawn(surveyed.sample, VOCABULARY_PAIRS))
    labels = task_of(wanted.settings).labels
    if known.correlation < UNRELATED and known.pairs >= ENOUGH_TO_TELL and not labels:
        report.warn(
            f"the lengths of the two sides hardly go together (correlation {known.correlation:.2f}): are these the "
            f"same lines? transduce doctor tells"
        )
    if known.pairs < TOO_FEW and wanted.settings.training.start is None and not labels:
        report.warn(f"{known.pairs:,} pairs are too few to learn to translate from: some thousand are a beginning")
    same = sum(pair.source == pair.target for pair in sample)
    if same > len(sample) / 2:
        report.warn(f"{same:,} of {len(sample):,} pairs have the same text on both sides: is that the right --target?")
    device = prepare_device(wanted.settings.training.device)
    for words in wanted.choose(for_text(known, wanted, device, processes)):
        report.say(words)
    tokenizers = known_before or _learn_chosen(
        wanted, lambda settings: _learn(surveyed, hold_out, settings, report), report
    )
    pairs = [(pair.source, pair.target) for pair in drawn(sample, TRIED)]
    longest = wanted.settings.data.max_tokens
    encoded = [pair for pair in tokenizers.encode_pairs(list(_Normalised(pairs))) if max(map(len, pair)) < longest]
    if not encoded:
        raise DataError(f"no pair has fewer than data.max_tokens={longest} tokens a side: cut the text into sentences")
    if wanted.settings.training.start is not None and known_before is not None:
        _warn_of_the_unknown(encoded, report)
    tokens = sum(len(pair[0 if labels else 1]) + 1 for pair in encoded) / len(encoded)  # of what is long
    sizes = (tokenizers.source.size, tokenizers.target.size)
    machine = Machine(device, lambda settings: seconds_an_update(settings, sizes, encoded, device), processes)
    for words in for_time(known, tokens, machine, wanted):
        report.say(words)
    return wanted.settings, tokenizers


def _warn_of_the_unknown(encoded: Sequence[tuple[list[int], list[int]]], report: Report) -> None:
    """Where the vocabulary of a model that there is does not know the text."""
    for side, name in enumerate(("source", "target")):
        tokens = [token for pair in encoded for token in pair[side]]
        share = tokens.count(UNKNOWN) / max(1, len(tokens))
        if share > UNKNOWN_SHARE:
            report.warn(
                f"{share:.0%} of the {name}'s tokens are unknown to the vocabulary of the model; with "
                f"--training.new_vocabulary true it gets one of this text"
            )


def _learn_chosen(recipe: Recipe, learn: Callable[[Settings], Tokenizers], report: Report) -> Tokenizers:
    """The vocabulary that a recipe chose; one of another size where the text does not support it."""
    while True:
        try:
            return learn(recipe.settings)
        except WrongVocabulary as error:
            if recipe.has(error.name):
                raise
            large = error.wanted > error.possible
            why = "all that the text supports" if large else "room for its characters, and as much for what they make"
            size = error.possible if large else 2 * error.possible
            for words in recipe.choose(iter([Choice(error.name, size, why)])):
                report.say(words)


def _learn(surveyed: Survey, hold_out: HoldOut, settings: Settings, report: Report) -> Tokenizers:
    """The vocabulary, from the training text."""
    sample = sum(hold_out.leaves(pair.line) for pair in surveyed.sample)
    report.say(f"learning the vocabulary ({settings.text.tokenizer}) from {sample:,} of {surveyed.pairs:,} pairs")
    return learn_vocabulary(surveyed, hold_out, settings)


def learn_vocabulary(surveyed: Survey, hold_out: HoldOut, settings: Settings) -> Tokenizers:
    """From the sample of a survey, without what is set aside."""
    labels = surveyed.labels_left_by(hold_out) if surveyed.labels else None  # a sample could miss some
    sample = [(pair.source, pair.target) for pair in surveyed.sample if hold_out.leaves(pair.line)]
    return Tokenizers.train(_Normalised(sample), settings.text, labels)


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

    def training_part(self, hold_out: HoldOut, stretches: Sequence[Stretch]) -> Part:
        t = self.settings.text
        sampling = Sampling(t.sampling, t.variants, self.settings.training.seed) if t.sampling else None
        job = Job(self.tokenizers, self.settings.data, sampling, teaches=True)
        weight = self.settings.data.weight or (1,)
        weights = () if set(weight) == {1} else tuple(zip((s.lines for s in stretches), weight, strict=True))
        rule = f"all but one drawn of {hold_out.every}{' that is not made' if hold_out.made else ''}"
        copies = " and their copies" if hold_out.copies else ""
        return Part(job, hold_out.leaves, rule=f"{rule}{copies}", weights=weights)

    def validation_part(self, hold_out: HoldOut) -> Part:
        job = Job(self.tokenizers, self.settings.data)
        made = " that is not made" if hold_out.made else ""
        return Part(job, hold_out.takes, rule=f"one drawn of {hold_out.every}{made}", text=True)

    def of_before(self, surveyed: Survey, sets_aside: bool) -> tuple[HoldOut, Sequence[str]] | None:
        """Where the run has learned from this text, or from its first files: what is set aside, by the text that the
        run began with, so that no pair changes sides; and how the stores of the first files are called."""
        newest, _ = checkpoint.latest(self.run)
        was, parts = "" if newest is None else read_state(newest).data, len(surveyed.stretches)
        if parts > MOST_FILES:
            return None
        wanted = self.settings.data.hold_out
        for told in surveyed.as_told():
            shares = [told.first(count).every(wanted) if sets_aside else None for count in range(1, parts + 1)]
            tries = ((known, every) for known in range(parts, 0, -1) for every in dict.fromkeys(shares[:known][::-1]))
            for known, every in tries:
                begun = told.first(known)
                if self._names(begun, every)[0] != was or begun.made != told.made[: begun.pairs]:
                    continue
                if known < parts:
                    refuse_no_time(self.run, self.settings)
                    self.report.say(f"the text has grown to {surveyed.pairs:,} pairs: a new pass over it begins")
                earlier = [name for n in range(1, parts) for name in self._names(told.first(n), every)]
                earlier += [""] if known < parts and sets_aside else []  # of too little text none could be set aside
                return told.one_of(every), earlier
        return None

    def _names(self, surveyed: Survey, every: int | None) -> tuple[str, str]:
        """Of the stores for training and validation, where one of so many is set aside."""
        hold_out = surveyed.one_of(every)
        parts = self.training_part(hold_out, surveyed.stretches), self.validation_part(hold_out)
        return store_name(surveyed.digest, parts[0]), store_name(surveyed.digest, parts[1])

    def build(self, corpus: Corpus, surveyed: Survey, parts: Sequence[Part]) -> list[Store]:
        cache = Path(self.settings.data.cache) if self.settings.data.cache else self.run.data
        stores = build_stores(corpus, surveyed.digest, parts, cache, self.report)
        for store in stores:
            self.report.say(f"{corpus.name}: {store.counts}")
            if len(store) != store.counts.kept:
                self.report.say(f"by their weights (data.weight), an epoch goes through {len(store):,} pairs")
        return stores


def _refuse_empty(store: Store, corpus: Corpus) -> None:
    if len(store) == 0:
        raise DataError(f"every pair of {corpus.name} was left out ({store.counts}); loosen data.max_tokens or others")
