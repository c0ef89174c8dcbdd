"""Every path of a model folder and of a run folder, and the names of what training leaves there.

config.yaml  tokenizer.model  model.safetensors  manifest.json     the model: these can be copied elsewhere
weights/best.safetensors, last, averaged, averaged_best            other weights of it
metrics.jsonl  curve.png  attention.html  tensorboard/             how it learned and what it looks at
training/step-N/           a complete checkpoint
training/weights/          weights of some steps, kept for averaging, with a manifest of their own
training/machine           where it was trained last: there its lock tells whether it is under way
training/chosen.json       which settings nobody gave, so that the recipe chose them
training/session.json      when a session that torchrun may start again is to end
data/                      tokenized text
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CONFIG = "config.yaml"
MODEL = "model.safetensors"
METRICS = "metrics.jsonl"
MACHINE = "training/machine"
STATE = "state.json"  # of a checkpoint
REPLACED = ".replaced"  # a checkpoint that is being replaced by one of the same step
_CHECKPOINT = re.compile(rf"step-(\d{{1,18}})(?:{re.escape(REPLACED)})?", re.ASCII)
_KEPT = re.compile(r"step-(\d{1,18})\.safetensors", re.ASCII)


def weights_name(name: str) -> str:
    """Where a model folder has its `best`, `last` or `averaged` weights."""
    return f"weights/{name}.safetensors"


@dataclass(frozen=True)
class ModelFolder:
    """What is needed to use a model."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def model(self) -> Path:
        return self.path / MODEL

    @property
    def attention_page(self) -> Path:
        return self.path / "attention.html"


@dataclass(frozen=True)
class RunFolder(ModelFolder):
    """What training needs beside the model."""

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def curve(self) -> Path:
        return self.path / "curve.png"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def training(self) -> Path:
        return self.path / "training"

    @property
    def kept(self) -> Path:
        return self.training / "weights"

    @property
    def machine(self) -> Path:
        return self.path / MACHINE

    @property
    def chosen(self) -> Path:
        return self.training / "chosen.json"

    @property
    def session(self) -> Path:
        return self.training / "session.json"

    def checkpoint(self, step: int) -> Path:
        return self.training / f"step-{step}"

    def checkpoints(self) -> list[Path]:
        """Folders of checkpoints, oldest first; unfinished ones, and what somebody else has put there, left out."""
        names = (path for path in _entries(self.training) if _CHECKPOINT.fullmatch(path.name))
        folders = (path for path in names if path.is_dir() and not path.is_symlink())
        return sorted(folders, key=lambda path: (step_of(path), not path.name.endswith(REPLACED)))

    def kept_weights(self) -> dict[int, Path]:
        """Weights kept for averaging by their step, oldest first."""
        names = (path for path in _entries(self.kept) if _KEPT.fullmatch(path.name))
        files = (path for path in names if path.is_file() and not path.is_symlink())
        return dict(sorted((step_of(path), path) for path in files))

    @property
    def has_started(self) -> bool:
        """Whether there is something to go on with; before that, every setting may still change."""
        return bool(self.checkpoints())


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint, or of weights that were kept."""
    match = _CHECKPOINT.fullmatch(path.name) or _KEPT.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
