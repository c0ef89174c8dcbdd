"""From text to a trained model in its run folder: count, encode, train; a run that exists goes on."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.survey import refuse_sentences
from transduce.errors import DataError, SettingsError, Stopped
from transduce.fasttext.cuts import SUBWORDS, Cut, cut_files, kept_cut, learn_cut
from transduce.fasttext.dictionary import Dictionary, count
from transduce.fasttext.encode import LabelledLine, Lines, Text, encode, refuse_unlabelled
from transduce.fasttext.folder import arrays_of, network_of, save
from transduce.fasttext.kernels.hashing import mark_word_ngrams
from transduce.fasttext.network import Network, new_network, word_buckets
from transduce.fasttext.pretrained import begin_with
from transduce.fasttext.training import train
from transduce.files import strict_json
from transduce.files.arrays import array_bytes, read_arrays
from transduce.files.lock import locked, sign
from transduce.files.manifest import verify, write_folder
from transduce.files.reading import SMALL, read_bytes
from transduce.files.run_folder import CONFIG, MODEL, STATE, RunFolder
from transduce.report import SILENT, Progress, Report
from transduce.settings import config_file
from transduce.settings.sections import Settings, VectorSettings
from transduce.text.sentences import is_east_asian

FEW_LINES = 100
BLOCKS = 0.1  # of the changes of label that there would be by chance


class Source(NamedTuple):
    """Text that was read, whatever is to be learned from it."""

    dictionary: Dictionary
    text: Text


def read_source(
    s: VectorSettings,
    lines: Lines,
    folder: Path,
    report: Report = SILENT,
    hashed: bool = False,
    cut: Cut | None = None,
) -> Source:
    """Read the text twice: to count, and to write it as numbers into a folder; once more before that, where subwords
    are to be learned and no `cut` is given. `hashed`: as word n-grams need it."""
    cut = cut or _learned_cut(s, lines, report)
    with report.progress("count words") as bar:
        dictionary = count(_counted(lines, bar), cut, s.min_count, s.min_label_count, s.objective == "labels")
    with report.progress("read") as bar:
        text = encode(_counted(lines, bar), dictionary, folder, hashed or s.word_ngrams > 1)
    if s.objective == "labels":
        refuse_unlabelled(text)
        refuse_sentences(dictionary.labels, text.lines)
        if len(dictionary.labels) < 2:
            raise DataError(f"all lines have the same label, {dictionary.labels[0]}: there is nothing to tell apart")
        if _are_blocks(text):
            report.warn(
                "lines of one label stand together, and what comes last is learned best; shuffle the lines first, by "
                "shuf"
            )
    if s.tokens == "words" and _has_no_words(lines):
        report.warn("the text has no spaces between words; take --vectors.tokens characters")
    words, labels = len(dictionary.words), len(dictionary.labels)
    report.say(
        f"{dictionary.tokens:,} words in {text.lines:,} lines; {words:,} different ones come often enough"
        + (f"; {labels:,} labels" if labels else "")
    )
    return Source(dictionary, text)


def _are_blocks(text: Text) -> bool:
    """Whether the first label changes from line to line far more seldom than it would by chance."""
    first = np.asarray(text.label_ids)[np.minimum(text.label_starts[:-1], max(0, len(text.label_ids) - 1))]
    shares = np.bincount(first) / len(first)
    by_chance = (1 - (shares**2).sum()) * (len(first) - 1)
    return len(first) >= FEW_LINES and int((first[1:] != first[:-1]).sum()) < BLOCKS * by_chance


def _has_no_words(lines: Lines) -> bool:
    """Whether its first lines are of a script without spaces, and have none."""
    some = [text for _, text in itertools.islice(lines(), FEW_LINES) if is_east_asian(text)]
    return len(some) > FEW_LINES / 2 and sum(len(text.split()) for text in some) < 3 * len(some)


def _learned_cut(s: VectorSettings, lines: Lines, report: Report) -> Cut:
    if s.tokens in SUBWORDS:
        report.say(f"learning {s.pieces:,} subwords ({s.tokens})")
    return learn_cut(s, (line for _, line in lines()))


def network_for(settings: VectorSettings, source: Source, report: Report = SILENT) -> Network:
    """A model that has not learned anything yet."""
    network = new_network(settings, source.dictionary, _buckets_seen(settings, *source))
    if settings.pretrained:
        begin_with(network, Path(settings.pretrained), report)
    return network


def _counted(lines: Lines, bar: Progress) -> Iterator[LabelledLine]:
    for number, line in enumerate(lines(), 1):
        if number % 10_000 == 0:
            bar.update(number, lines=f"{number:,}")
        yield line


def _buckets_seen(s: VectorSettings, dictionary: Dictionary, text: Text) -> NDArray[np.bool_]:
    """Which buckets an n-gram of the text falls into."""
    seen = np.zeros(s.buckets, np.bool_)
    if s.longest:
        seen[word_buckets([*dictionary.words, *dictionary.rare], s)[1]] = True
    if s.objective == "labels" and s.word_ngrams > 1:
        mark_word_ngrams(text.hashes, text.starts, s.word_ngrams, s.buckets, seen)
    return seen


def fit(run: Path, settings: Settings, lines: Lines, report: Report = SILENT) -> Network:
    """Train in a run folder, or go on there, and leave the model."""
    folder, began = RunFolder(run), time.monotonic()
    with locked(run):
        started = folder.checkpoints()
        if not started and folder.model.exists():
            raise SettingsError(f"{run} is trained to its end; choose another run folder")
        cut = kept_cut(settings.vectors, run) if started else None
        source = _read_or_leave_nothing(settings.vectors, lines, folder, report, cut)
        if not started:
            write_folder(run, {CONFIG: config_file.write(settings).encode(), **cut_files(source.dictionary.cut)})
            sign(folder)
        text, mark, place = source.text, source.text.fingerprint(), 0
        if started:
            network, place = _read_checkpoint(started[-1], settings, mark, source.dictionary)
            report.say(f"{run} goes on after {place:,} stretches of its text")
        else:
            network = network_for(settings.vectors, source, report)
        place, signal = train(network, text, report, place, lambda at: _write_checkpoint(folder, network, at, mark))
        save(network, settings, run)  # also when it was stopped: what it knows can be used
        if signal:
            raise Stopped(f"stopped; what it knows so far is the model in {run}, and the same command goes on", signal)
        for path in (*folder.checkpoints(), folder.data):
            shutil.rmtree(path, ignore_errors=True)
    report.say(f"the model is in {run}, {time.monotonic() - began:.1f} s after the beginning")
    return network


def _read_or_leave_nothing(
    s: VectorSettings, lines: Lines, folder: RunFolder, report: Report, cut: Cut | None
) -> Source:
    """Text that cannot be learned from leaves no folder behind."""
    try:
        return read_source(s, lines, folder.data, report, cut=cut)
    except BaseException:
        shutil.rmtree(folder.data, ignore_errors=True)
        raise


def _write_checkpoint(folder: RunFolder, network: Network, place: int, mark: int) -> None:
    before = folder.checkpoints()
    state = strict_json.dumps({"place": place, "text": mark}).encode()
    write_folder(folder.checkpoint(place), {MODEL: array_bytes(arrays_of(network)), STATE: state})
    for path in before:
        if path != folder.checkpoint(place):
            shutil.rmtree(path)


def _read_checkpoint(path: Path, settings: Settings, mark: int, dictionary: Dictionary) -> tuple[Network, int]:
    verify(path, [MODEL, STATE])
    state = strict_json.loads(read_bytes(path / STATE, SMALL))
    if state["text"] != mark:
        raise DataError(
            f"{path.parent.parent} was begun with another text; give the same, or choose another run folder"
        )
    network = network_of(read_arrays(path / MODEL), settings, path / MODEL, dictionary.cut)
    return replace(network, dictionary=dictionary), int(state["place"])  # the same, with rare words
