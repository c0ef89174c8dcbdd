"""transduce train: from text to a model folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from transduce.commands import Flags, Hidden
from transduce.commands.labels import PRESET, is_labeller, train_labels
from transduce.errors import SettingsError
from transduce.report import SILENT


def train(
    run: Path,
    *,
    source: list[str] | None = None,
    target: list[str] | None = None,
    weight: list[int] | None = None,
    valid_source: list[str] | None = None,
    valid_target: list[str] | None = None,
    columns: tuple[str, str] | None = None,
    languages: tuple[str, str] | None = None,
    task: Literal["translate", "classify"] = "translate",
    preset: str | None = None,
    start: Annotated[Path | None, Parameter(name="--from")] = None,
    config: Path | None = None,
    device: str | None = None,
    minutes: float | None = None,
    pause_after: float | None = None,
    autotune_minutes: float | None = None,
    settings: Flags = None,
    report: Hidden = SILENT,
) -> None:
    """Train a translator or a classifier, or go on with a run that exists.

    Example: transduce train runs/mine --source a.de --target a.en --minutes 15

    Several texts: transduce train runs/mine --source a.de --target a.en --source b.tsv --weight 3 --weight 1

    Further from a model: transduce train runs/mine --from runs/other --source a.de --target a.en --minutes 15

    A classifier in seconds: transduce train runs/topics --task classify --preset fasttext --source labelled.txt

    Without --source it trains on the bundled German-English corpus.
    Any setting can be a flag, such as --model.layers 4; transduce settings lists them.
    Flags are stronger than the file of --config, which is stronger than the preset.
    On several GPUs or machines: torchrun --nproc-per-node 4 -m transduce train runs/mine --source ...

    Parameters
    ----------
    run
        Folder of the run; made if it is new, continued if it exists.
    source
        Training text, one sentence a line, or a .tsv, .csv, .jsonl, .tmx or .parquet with both sides. Text may be
        packed as .gz, .xz or .zst. Several texts: the flag again for each.
    target
        Its translation, line by line; the flag again for each --source, in the same order.
    weight
        How often an epoch goes through a --source: a whole number for each, in the same order. Once if not given.
    valid_source
        Validation text; without it, some training pairs are set aside. The flag again for several.
    valid_target
        Its translation.
    columns
        Source and target, such as --columns 1 3: numbers in a .tsv or .csv, names in a .csv, .jsonl or .parquet.
    languages
        Source and target in a .tmx, such as --languages de en; not needed where it has two.
    task
        translate: from text to text. classify: from text to labels, which are the lines of --target; or without it the
        __label__NAME that each line of --source begins with.
    preset
        Starting point (see: transduce presets). Without one, text, machine and time decide; tiny for bundled text.
    start
        Model folder to begin with: its shape, vocabulary and weights, also of a converted model.
    config
        YAML file with sections of settings.
    device
        auto, cpu, cuda or mps.
    minutes
        Time of the whole run, everything counted; the model is done when it is over. Given more later, it goes on.
    pause_after
        Minutes after which this command saves and ends; the same command goes on with the run.
    autotune_minutes
        With --preset fasttext: search so long for settings that are good on the validation text.
    """
    began = time.monotonic()  # to load PyTorch is part of the time that is given
    text: dict[str, Any] = {"source": source, "target": target, "weight": weight, "columns": columns}
    text |= {"valid_source": valid_source, "valid_target": valid_target, "languages": languages}
    flags: dict[str, Any] = {section: dict(keys) for section, keys in (settings or {}).items()}
    flags.setdefault("data", {}).update({key: value for key, value in text.items() if value is not None})
    training_flags = {"device": device, "minutes": minutes, "start": None if start is None else str(start)}
    flags.setdefault("training", {}).update({key: value for key, value in training_flags.items() if value is not None})
    if preset == PRESET or is_labeller(run):
        if task != "classify" and preset == PRESET:
            raise SettingsError(
                "--preset fasttext needs --task classify; for word vectors see: transduce vectors train"
            )
        for flag, given in (("--minutes", minutes), ("--pause-after", pause_after), ("--from", start)):
            if given is not None:
                raise SettingsError(f"--preset fasttext trains by epochs (--vectors.epochs) and takes no {flag}")
        train_labels(run, config, flags, autotune_minutes, report)
        return
    if autotune_minutes is not None:
        raise SettingsError("--autotune-minutes goes with --preset fasttext")
    from transduce.inspect.curve import curve_at_the_end
    from transduce.signals import ignore_save_signal
    from transduce.training.prepare import open_corpora
    from transduce.training.recipe import settings_of
    from transduce.training.resolve import resolve
    from transduce.training.setup import fit

    wanted = resolve(run, preset, config, flags, task)
    resolved = settings_of(wanted)
    if task == "classify" and resolved.data.source is None:
        raise SettingsError("--task classify needs --source, text with its labels in --target or before each line")
    if pause_after is not None and not pause_after > 0:
        raise SettingsError(f"--pause-after {pause_after:g} must be above 0")
    with ignore_save_signal(), curve_at_the_end(run, report):
        training, validation = open_corpora(resolved, report)
        fit(run, training, validation, wanted, report, pause_after, began)
