"""Begin a run with a model that there is: its shape, its vocabulary and its weights; text and schedule are new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transduce.adapt.vocabulary import carried_over
from transduce.core.seq2seq import Seq2Seq
from transduce.errors import SettingsError
from transduce.files.run_folder import MODEL
from transduce.models.load import load_text
from transduce.models.weights import read_weights, restore
from transduce.report import Report
from transduce.settings.entries import Entry, convert, entries
from transduce.settings.sections import Overrides, Settings, TextSettings
from transduce.settings.task import Task, task_of
from transduce.text.languages import languages_of, needs_languages
from transduce.text.tokenizers import Tokenizers

# What may differ from the model that a run begins with: nothing of it is in the weights.
FREE = {f"model.{key}" for key in ("dropout", "embedding_dropout", "token_dropout", "residual_dropout")}
FREE |= {"model.attention_dropout", "model.feed_forward_dropout", "text.sampling", "text.variants"}
FREE |= {"text.source_language", "text.target_language"}


def start_of(*layers: Overrides) -> Path | None:
    """The model that settings ask to begin with."""
    named = [keys.get("start") for layer in layers if isinstance(keys := layer.get("training"), Mapping)]
    found = next((name for name in reversed(named) if name is not None), None)
    name = convert(_entry("training.start"), found)  # a file may say null
    return None if name is None else Path(str(name))


def new_vocabulary(*layers: Overrides) -> bool:
    """Whether settings ask for a vocabulary of the new text."""
    named = [keys.get("new_vocabulary") for layer in layers if isinstance(keys := layer.get("training"), Mapping)]
    found = next((value for value in reversed(named) if value is not None), False)
    return bool(convert(_entry("training.new_vocabulary"), found))


def _entry(name: str) -> Entry:
    return next(entry for entry in entries() if entry.name == name)


def settings_of_start(folder: Path, task: Task, *layers: Overrides) -> Overrides:
    """What a run takes over from it, and no flag or file may change."""
    settings, tokenizers = load_text(folder)
    if task_of(settings) != task:
        kind = "labels" if task_of(settings).labels else "translates"
        raise SettingsError(f"--from {folder} does not go with --task {task.name}: that model {kind}")
    taken: dict[str, dict[str, Any]] = {name: asdict(getattr(settings, name)) for name in ("model", "text", "search")}
    if new_vocabulary(*layers):  # the new text then decides how it is cut
        if languages_of(tokenizers.source):
            raise SettingsError(
                f"--training.new_vocabulary: {folder} knows languages by tokens of its vocabulary, which a new one "
                f"would not have"
            )
        del taken["text"]
        if taken["model"]["tie_source"]:
            del taken["model"]["tie_source"]
    for layer in layers:
        for section in [name for name in ("model", "text") if name in taken]:
            keys = layer.get(section)
            for key, value in keys.items() if isinstance(keys, Mapping) else ():
                name = f"{section}.{key}"
                if name in FREE or key not in taken[section]:
                    continue
                if convert(_entry(name), value) != taken[section][key]:  # a file has numbers as text
                    raise SettingsError(
                        f"{name}={value} cannot be: the run begins with {folder}, where it is {taken[section][key]}"
                    )
    return {**taken, "data": {"max_tokens": settings.data.max_tokens}}


def tokenizers_of_start(settings: Settings) -> Tokenizers | None:
    """Those of the model that a run begins with, or of its teacher; None where it has neither."""
    folder = settings.training.start or settings.training.teacher
    if folder is None or settings.training.new_vocabulary:
        return None
    before, tokenizers = load_text(Path(folder))
    if settings.training.teacher and not _read_alike(before.text, settings.text):
        raise SettingsError(
            f"training.teacher={folder} needs its vocabulary and text settings: transduce distill --word-level has them"
        )
    if needs_languages(settings.text):
        known = sorted(languages_of(tokenizers.source))
        if known:
            raise SettingsError(
                f"{folder} knows {len(known)} languages ({', '.join(known[:4])}, ...): say which ones "
                f"the text has, with --text.source_language and --text.target_language"
            )
    return Tokenizers.from_files(tokenizers.files(), settings.text)


def _read_alike(one: TextSettings, two: TextSettings) -> bool:
    """Whether two models get the same tokens for the same text."""
    free = {name.removeprefix("text."): None for name in FREE if name.startswith("text.")}
    return {**asdict(one), **free} == {**asdict(two), **free}


def put_weights(model: Seq2Seq, settings: Settings, tokenizers: Tokenizers, report: Report) -> None:
    """Give a model the weights of the one that its run begins with, if there is one."""
    if settings.training.start is None:
        return
    path = Path(settings.training.start) / MODEL
    weights = read_weights(path)
    if settings.training.new_vocabulary:
        before = load_text(path.parent)[1]
        weights, words = carried_over(weights, model, before, tokenizers)
        report.say(f"vocabulary of {settings.training.start}: {words}")
    restore(model, weights, path)
