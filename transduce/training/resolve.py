"""The settings of a run: from preset, file and flags; and what of them may change when it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transduce.adapt.start import settings_of_start, start_of
from transduce.errors import ModelError, SettingsError
from transduce.files.manifest import MANIFEST
from transduce.files.reading import followed
from transduce.files.run_folder import CONFIG, RunFolder
from transduce.settings import config_file, presets
from transduce.settings.checks import check_idle
from transduce.settings.compose import by_the_clock, compose
from transduce.settings.entries import flat, written
from transduce.settings.presets import AUTO
from transduce.settings.sections import Overrides, Settings
from transduce.settings.task import TASKS, Task, task_of
from transduce.training.chosen import recipe_of
from transduce.training.recipe import Recipe

# When a run goes on, files may lie elsewhere: that they hold the same text is checked by its hash.
MAY_CHANGE = {f"data.{key}" for key in ("source", "target", "valid_source", "valid_target", "cache")}
MAY_CHANGE |= {"data.columns", "data.languages"}
MAY_CHANGE |= {f"model.{key}dropout" for key in ("", "embedding_", "residual_", "attention_", "feed_forward_")}
MAY_CHANGE |= {f"optimizer.{key}" for key in ("rate", "factor", "clip", "weight_decay")} | {"batch.split"}
FIXED = (
    "seed",
    "label_smoothing",
    "ema",
    "start",
    "teacher",
    "teacher_share",
    "guided_alignment",
    "vectors_rest",
    "freeze",
    "unfreeze_every",
    "new_vocabulary",
)  # of the section training
PATHS = ("training.start", "training.teacher")


def resolve(
    run: Path, preset: str | None, config: Path | None, flags: Overrides, task: str = "translate"
) -> Settings | Recipe:
    """The settings of a run: preset, task, file and flags in rising strength; for an existing run, over what it has. A
    recipe, where the text and the machine are to decide the rest."""
    folder, file = RunFolder(run), config_file.read(config) if config else {}
    _refuse_damaged(folder)
    given = preset is not None or any(keys for layer in (file, flags) for keys in layer.values())
    names = preset is not None or start_of(file, flags) is not None or _name_text(file, flags)
    anew = given and not folder.has_started and names
    if not folder.config.exists() or anew:  # what failed before its first step is new, if it is given its text again
        return _for_new_run(run, preset, TASKS[task], file, flags)
    before = config_file.read_whole(folder.config)
    if task_of(before) != TASKS[task] and task != "translate":
        raise SettingsError(
            f"{run} holds a model of kind {before.model.kind}, not a classifier; choose another run folder"
        )
    layers = [presets.find(preset).settings] if preset else []
    layers += [] if folder.has_started else [by_the_clock(file, flags)]
    now = compose(*layers, file, flags, base=before)
    if folder.has_started:
        _refuse_changes(run, flat(before), flat(now))
    return recipe_of(folder, before, *layers, file, flags) or now


def _for_new_run(run: Path, preset: str | None, task: Task, file: Overrides, flags: Overrides) -> Settings | Recipe:
    if run.exists() and not RunFolder(run).config.exists() and not _is_empty(run):
        raise SettingsError(f"{run} exists and is not a run folder; choose another name")
    if start := start_of(file, flags):
        return _from_model(start, preset, task, file, flags)
    if preset == AUTO or (preset is None and _name_text(file, flags)):
        recipe = Recipe(task.settings, file, flags)
        check_idle(recipe.settings)
        return recipe
    base = presets.find(preset or "tiny").settings
    if task.settings and base.get("model", {}).get("kind", "transformer") != "transformer":
        raise SettingsError(
            f"--task {task.name} trains an encoder of the Transformer; the preset {preset} is of another kind"
        )
    resolved = compose(base, by_the_clock(file, flags), task.settings, file, flags)
    if resolved.model.kind == "fasttext":
        raise SettingsError("model.kind=fasttext is trained with --task classify --preset fasttext")
    check_idle(resolved)
    return resolved


def _name_text(*layers: Overrides) -> bool:
    sections = [layer.get("data") for layer in layers]
    return any(isinstance(keys, dict) and keys.get("source") for keys in sections)


def _from_model(start: Path, preset: str | None, task: Task, file: Overrides, flags: Overrides) -> Recipe:
    """What a model decides stays; the rest is chosen for the text and the time, more calmly than for a new one."""
    if preset not in (None, AUTO):
        raise SettingsError(f"--preset {preset} does not go with --from {start}, which decides the model")
    recipe = Recipe(settings_of_start(start, task, file, flags), file, flags)
    check_idle(recipe.settings)
    return recipe


def _refuse_damaged(folder: RunFolder) -> None:
    """A run that has lost its settings or its manifest cannot go on, and must not begin anew over what is left."""
    if not folder.has_started:
        return
    for name in (CONFIG, MANIFEST):
        path = folder.path / name
        if not path.exists() or path.stat().st_size == 0:
            problem = "is empty" if path.exists() else "is missing"
            raise ModelError(
                f"{folder.path} is damaged: {name} {problem}; copy it from a backup, or choose another run"
            )


def _refuse_changes(run: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """A run that goes on is the same run: what decides its updates stays."""
    changed = [name for name, value in new.items() if value != old[name] and not _may_change(name)]
    changed = [n for n in changed if n not in PATHS or not _is_one_path(old[n], new[n])]
    adam = {"adam", "adamw"}  # which remember the same
    changed = [n for n in changed if n != "optimizer.name" or {old[n], new[n]} != adam]
    if changed:
        changes = ", ".join(f"{name}={written(old[name])}, not {written(new[name])}" for name in changed)
        raise SettingsError(
            f"{run} was started with {changes}; leave that out, or choose another run folder (what may change: how "
            f"long it trains, what is logged and kept, how often it is validated, the learning rate, clipping, weight "
            f"decay, dropout, precision, batch.split, device and search)"
        )


def _is_one_path(old: str | None, new: str | None) -> bool:
    """However it is spelled."""
    return old is not None and new is not None and followed(Path(old)) == followed(Path(new))


def _may_change(name: str) -> bool:
    section, key = name.split(".")
    if section == "training":
        return key not in FIXED and not key.startswith("lora_")
    return section == "search" or name in MAY_CHANGE


def _is_empty(folder: Path) -> bool:
    """But for files that were being written when a run was killed."""
    return folder.is_dir() and all(path.name.endswith(".part") for path in folder.iterdir())
