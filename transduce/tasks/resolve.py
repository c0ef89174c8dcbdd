"""The settings of a run: from preset, file and flags; and what of them may change when it goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from transduce import config as configuration
from transduce.config import Overrides, Settings
from transduce.errors import SettingsError
from transduce.models import presets

# When a run goes on, files may lie elsewhere: that they hold the same text is checked by its hash.
MAY_CHANGE = {f"data.{key}" for key in ("source", "target", "valid_source", "valid_target", "cache")}
MAY_CHANGE |= {f"optimizer.{key}" for key in ("rate", "factor", "clip", "weight_decay")} | {"batch.split"}
CLASSIFY: Overrides = {
    "model": {"kind": "classifier", "tie_output": False, "tie_source": False, "output_bias": True},
    "text": {"joint": False, "target_tokenizer": "labels"},
    "training": {"label_smoothing": 0.0},
}


def resolve(run: Path, preset: str | None, config: Path | None, flags: Overrides, task: str = "translate") -> Settings:
    """The settings of a run: preset, task, file and flags in rising strength; for an existing run, over what it has."""
    file = configuration.read(config) if config else {}
    stored = run / "config.yaml"
    given = preset is not None or any(keys for layer in (file, flags) for keys in layer.values())
    sections = [layer.get("data") for layer in (file, flags)]
    if not stored.exists() or (given and not started(run)):  # what failed before its first step is begun anew
        if not stored.exists() and run.exists() and not _is_empty(run):
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
    if started(run):
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
            f"it trains, what is logged and kept, how often it is validated, the learning rate, clipping, weight "
            f"decay, precision, batch.split, device and search)"
        )


def _written(value: Any) -> str:
    """As a flag has it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _may_change(name: str) -> bool:
    section, key = name.split(".")
    if section == "training":
        return key not in ("seed", "label_smoothing", "ema")
    return section == "search" or name in MAY_CHANGE


def _is_empty(folder: Path) -> bool:
    """But for files that were being written when a run was killed."""
    return folder.is_dir() and all(path.name.endswith(".part") for path in folder.iterdir())


def started(run: Path) -> bool:
    """Whether there is something to go on with; before that, every setting may still change."""
    # The names are those of training/checkpoint.py, which would load torch for a question about settings.
    return any(re.fullmatch(r"step-\d+(\.before)?", path.name) for path in (run / "training").glob("step-*"))


def config_file(settings: Settings) -> dict[str, bytes]:
    """As a run keeps them."""
    return {"config.yaml": configuration.write(settings).encode()}
