"""What train, evaluate and inspect do where the model is fastText's classifier."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import DataError, SettingsError
from transduce.files.output import check_output
from transduce.files.run_folder import CONFIG, RunFolder
from transduce.report import Report, Table
from transduce.settings import config_file, presets
from transduce.settings.compose import compose
from transduce.settings.entries import flat, written
from transduce.settings.sections import Overrides, Settings, listed

if TYPE_CHECKING:
    from transduce.fasttext.encode import LabelledLine, Lines
    from transduce.fasttext.labeller import Labeller
    from transduce.fasttext.network import Network

PRESET = "fasttext"
SHOWN = 12  # labels with an F1 of their own in a table, the most frequent ones
VOICES = 15  # words and n-grams that an explanation names
MAY_CHANGE = {"vectors.threads"}


def is_labeller(folder: Path) -> bool:
    """Whether a folder holds a model of the kind fasttext."""
    return folder.is_dir() and config_file.is_fasttext(folder)


def train_labels(run: Path, config: Path | None, flags: Overrides, minutes: float | None, report: Report) -> None:
    """Train fastText's classifier, or go on with it; with `minutes`, search for good settings first."""
    from transduce.fasttext.fit import fit
    from transduce.fasttext.labelled import labelled_lines

    settings = _settings_of(run, config, flags)
    d = settings.data
    if not d.source:
        raise SettingsError("--preset fasttext needs --source, text with its labels in --target or before each line")
    columns = None if d.columns is None else (d.columns[0], d.columns[1])
    lines = labelled_lines(listed(d.source), listed(d.target), columns)
    valid = None
    if d.valid_source:
        valid = list(labelled_lines(listed(d.valid_source), listed(d.valid_target), columns)())
    if minutes is None:
        network = fit(run, settings, lines, report)
    else:
        network = _search(run, settings, lines, valid, minutes, report)
    if valid:
        from transduce.fasttext.measure import measured

        found = measured(network, valid)
        report.say(f"validation text: P@1 {found.precision:.4f}, R@1 {found.recall:.4f} of {found.lines:,} lines")


def _settings_of(run: Path, config: Path | None, flags: Overrides) -> Settings:
    file = config_file.read(config) if config else {}
    started = bool(RunFolder(run).checkpoints())
    if not started:
        if run.exists() and {path.name for path in run.iterdir()} - {CONFIG, "data"} and not (run / CONFIG).exists():
            raise SettingsError(f"{run} exists and is not a run folder; choose another name")
        return compose(presets.find(PRESET).settings, file, flags)
    before = config_file.read_whole(run / CONFIG)
    now = compose(file, flags, base=before)
    old, new = flat(before), flat(now)
    changed = [name for name in new if new[name] != old[name] and not name.startswith("data.")]
    for name in set(changed) - MAY_CHANGE:
        raise SettingsError(
            f"{run} was started with {name}={written(old[name])}, not {written(new[name])}; leave that out, or choose "
            f"another run folder"
        )
    return now


def _search(
    run: Path, settings: Settings, lines: Lines, valid: list[LabelledLine] | None, minutes: float, report: Report
) -> Network:
    """The best of many models that are trained within some minutes."""
    from transduce.fasttext.autotune import autotune
    from transduce.fasttext.fit import read_source
    from transduce.fasttext.folder import save
    from transduce.files.lock import locked

    if not valid:
        raise SettingsError("--autotune-minutes needs validation text to judge settings by: give --valid-source")
    if RunFolder(run).model.exists():
        raise SettingsError(f"{run} is trained to its end; choose another run folder")
    place = tempfile.mkdtemp()
    try:
        with locked(run):
            source = read_source(settings.vectors, lines, Path(place), report, hashed=True)
            best = autotune(settings.vectors, source, valid, minutes, report)
            save(best.network, replace(settings, vectors=best.settings), run)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    report.say(f"the model is in {run}")
    return best.network


def evaluate_labels(
    model: Path,
    source: str,
    reference: str | None,
    columns: tuple[str, str] | None,
    k: int,
    confusion: Path | None,
) -> dict[str, Any]:
    """The scores of fastText's classifier on lines with any number of labels."""
    from transduce.fasttext.labelled import labelled_lines
    from transduce.fasttext.labeller import Labeller
    from transduce.fasttext.measure import measured

    if confusion is not None:
        check_output(confusion, [source, *([reference] if reference else [])])
    labeller = Labeller.load(model)
    lines = list(labelled_lines([source], [reference] if reference else [], columns)())
    if not any(given for given, _ in lines):
        raise DataError(f"{source} has no labels to compare with: begin lines with __label__NAME, or give --reference")
    found = measured(labeller.network, lines, k)
    if confusion is not None:
        _draw_confusion(labeller, lines, confusion)
    scores = {f"P@{k}": found.precision, f"R@{k}": found.recall, "accuracy": found.accuracy}
    scores |= {"macro_f1": found.macro_f1, "calibration_error": found.calibration_error}
    labels = {
        name: {"precision": round(p, 4), "recall": round(r, 4), "f1": round(f, 4), "lines": n}
        for name, (p, r, f, n) in sorted(found.f1.items(), key=lambda item: -item[1][3])
        if n
    }
    bins = [{"probability": round(p, 4), "right": round(share, 4), "lines": n} for p, share, n in found.calibration]
    rounded = {name: round(score, 4) for name, score in scores.items()}
    counts = {"lines": found.lines, "without_labels": len(lines) - found.lines}
    return {"model": str(model), "source": source, **counts, "scores": rounded, "labels": labels, "calibration": bins}


def _draw_confusion(labeller: Labeller, lines: list[LabelledLine], path: Path) -> None:
    from transduce.fasttext.measure import confusion
    from transduce.inspect.plots import confusion_matrix

    single = [(given[0], line) for given, line in lines if len(given) == 1]
    said = [t.text for t in labeller.stream(line for _, line in single)]
    names = labeller.labels[:30]
    confusion_matrix(confusion(said, [given for given, _ in single], names), names, path)


def table_of_labels(result: dict[str, Any]) -> Table:
    """The same for people."""
    rows = [[name.replace("_", "-"), f"{score:.4f}"] for name, score in result["scores"].items()]
    labels = list(result["labels"].items())
    below = ["", f"{'label':24}{'precision':>10}{'recall':>8}{'F1':>8}{'lines':>8}"]
    for name, one in labels[:SHOWN]:
        numbers = f"{one['precision']:10.3f}{one['recall']:8.3f}{one['f1']:8.3f}{one['lines']:8,}"
        below.append(f"{name[:23]:24}{numbers}")
    if len(labels) > SHOWN:
        below.append(f"... and {len(labels) - SHOWN:,} more; --json has all")
    below += ["", "Of the lines whose label was called so probable, so many were right:"]
    below += [
        f"  {one['probability']:.2f}  {one['right']:.2f}  ({one['lines']:,} lines)" for one in result["calibration"]
    ]
    return Table(["", result["model"]], rows, [f"{result['lines']:,} lines of {result['source']}", ""], below)


def explain_labels(model: Path, sentence: str, label: str | None, page: Path | None) -> Iterator[str]:
    """Which words and n-grams spoke for a label."""
    from transduce.fasttext.labeller import Labeller
    from transduce.inspect.voices import write_voices

    labeller = Labeller.load(model)
    best = labeller.translate(sentence, n_best=5)
    if not best.candidates:
        raise DataError("there is nothing in this line that the model knows")
    label = label or best.candidates[0].text
    voices = labeller.explain(sentence, label)
    if page is not None:
        write_voices(labeller, sentence, label, page)
    yield f"{sentence}  ->  {', '.join(f'{one.text} ({math.exp(one.score):.2f})' for one in best.candidates)}"
    yield from (f"  {voice.weight:+8.3f}  {voice.text}" for voice in voices[:VOICES])
