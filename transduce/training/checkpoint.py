"""What training leaves on disk, so that it can go on: RUN/training/step-N, complete or not there at all.

    model.safetensors       weights
    optimizer.safetensors   Adam's two moments and step count of every weight
    random.safetensors      states of the random generators
    progress.json           step, place in the data, best score so far, time spent
    manifest.json           written last; a folder without a valid one is passed over

Beside them RUN/training/weights keeps the last few weights for averaging.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.errors import ModelError
from transduce.models.folder import MODEL, read_tensors, restore, tensor_bytes, verify, weights_of, write_folder


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0  # updates done
    epoch: int = 0  # passes begun, from 0
    batch: int = 0  # batches of this epoch already used
    seconds: float = 0.0  # time spent, earlier sessions included
    target_tokens: int = 0
    best_score: float | None = None
    best_step: int = 0
    since_best: int = 0  # validations without a better one


def save(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, keep: int, average: int
) -> None:
    """Write step-N; then let go of what is older than asked to keep."""
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    files = {
        MODEL: tensor_bytes(weights_of(model)),
        "optimizer.safetensors": tensor_bytes(_optimizer_tensors(model, optimizer)),
        "random.safetensors": tensor_bytes(random),
        "progress.json": json.dumps(asdict(progress), indent=1).encode(),
    }
    here = folder / f"step-{progress.step}"
    if not here.exists():
        beside = folder / f"step-{progress.step}.part"
        shutil.rmtree(beside, ignore_errors=True)
        try:
            write_folder(beside, files)
            os.replace(beside, here)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    _snapshot(here / MODEL, folder / "weights" / f"step-{progress.step}.safetensors")
    for old in _by_step(folder, "step-*")[:-keep]:
        shutil.rmtree(old)
    for old in _by_step(folder / "weights", "step-*.safetensors")[:-average]:
        old.unlink()


def latest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and a sentence for each damaged one passed over."""
    complaints: list[str] = []
    for checkpoint in reversed(_by_step(folder, "step-*")):
        try:
            verify(checkpoint)
            return checkpoint, complaints
        except ModelError as error:
            complaints.append(str(error))
    return None, complaints


def resume(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put everything back as it was."""
    restore(model, read_tensors(checkpoint / MODEL), checkpoint / MODEL)
    tensors = read_tensors(checkpoint / "optimizer.safetensors")
    places = {name: i for i, (name, _) in enumerate(model.named_parameters())}
    state: dict[int, dict[str, Tensor]] = {i: {} for i in places.values()}
    for name, tensor in tensors.items():
        weight, _, moment = name.rpartition("/")
        state[places[weight]][moment] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    random = read_tensors(checkpoint / "random.safetensors")
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])
    stored = json.loads((checkpoint / "progress.json").read_text())
    return Progress(**{f.name: stored[f.name] for f in fields(Progress)})


def averaged(folder: Path) -> dict[str, Tensor] | None:
    """The mean of the kept weights; None when there are fewer than two."""
    paths = _by_step(folder / "weights", "step-*.safetensors")
    if len(paths) < 2:
        return None
    mean = {name: weight.double() for name, weight in read_tensors(paths[0]).items()}
    for path in paths[1:]:
        for name, weight in read_tensors(path).items():
            mean[name] += weight
    return {name: (total / len(paths)).float() for name, total in mean.items()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}/{key}": value.detach().cpu().contiguous()
        for name, weight in model.named_parameters()
        for key, value in optimizer.state[weight].items()
    }


def _snapshot(weights: Path, snapshot: Path) -> None:
    """A hard link where the file system has them: the same bytes, kept after the checkpoint is gone."""
    snapshot.parent.mkdir(exist_ok=True)
    snapshot.unlink(missing_ok=True)
    try:
        os.link(weights, snapshot)
    except OSError:
        shutil.copyfile(weights, snapshot)


def _by_step(folder: Path, pattern: str) -> list[Path]:
    """Oldest first; unfinished ones left out."""
    found = [(re.fullmatch(r"step-(\d+)(\.safetensors)?", path.name), path) for path in folder.glob(pattern)]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]
