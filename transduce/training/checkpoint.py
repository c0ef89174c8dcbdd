"""What training leaves on disk, so that it can go on: RUN/training/step-N, complete or not there at all.

    model.safetensors       weights
    optimizer.safetensors   what the optimizer remembers of every weight: for Adam two moments and a step count
    random.safetensors      states of the random generators
    standing.json           step, place in the data, best score so far, time spent
    manifest.json           written last; a folder without a valid one is passed over

Beside them RUN/training/weights keeps the last few weights for averaging.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.errors import ModelError
from transduce.models.folder import (
    MODEL,
    read_tensors,
    restore,
    tensor_bytes,
    verify,
    weights_of,
    write_file,
    write_folder,
)
from transduce.training.flat import FlatWeights

FILES = (MODEL, "optimizer.safetensors", "random.safetensors", "standing.json")


@dataclass
class Standing:
    """Where a run stands."""

    step: int = 0  # updates done
    epoch: int = 0  # passes begun, from 0
    batch: int = 0  # batches of this epoch already used
    seconds: float = 0.0  # time spent, earlier sessions included
    target_tokens: int = 0
    rate_squares: float = 0.0  # sum of the squared learning rates, by which Schedule-Free weighs its average
    data: str = ""  # name of the token store: the text that is trained on
    layout: str = "buckets"  # of its batches, by which `batch` counts
    best_loss: float | None = None
    best_score: float | None = None
    since_best: int = 0  # validations without a better one


def save(
    folder: Path,
    model: nn.Module,
    flat: FlatWeights,
    optimizer: torch.optim.Optimizer,
    standing: Standing,
    keep: int,
) -> None:
    """Write step-N; then let go of all but the newest `keep`."""
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    files = {
        MODEL: tensor_bytes(weights_of(model)),
        "optimizer.safetensors": tensor_bytes(_optimizer_tensors(flat, optimizer)),
        "random.safetensors": tensor_bytes(random),
        "standing.json": json.dumps(asdict(standing), indent=1).encode(),
    }
    here, beside = folder / f"step-{standing.step}", folder / f"step-{standing.step}.part"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        write_folder(beside, files)
        shutil.rmtree(here, ignore_errors=True)
        os.replace(beside, here)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    for old in _by_step(folder, "step-*")[:-keep]:
        shutil.rmtree(old)


def keep_for_average(folder: Path, step: int, most: int, other: bytes | None = None) -> None:
    """Keep the weights of checkpoint step-N, or `other` in their place, beyond its time: the last `most` of them."""
    snapshot = folder / "weights" / f"step-{step}.safetensors"
    snapshot.parent.mkdir(exist_ok=True)
    snapshot.unlink(missing_ok=True)
    if other is not None:
        write_file(snapshot, other)
    else:
        try:
            os.link(folder / f"step-{step}" / MODEL, snapshot)  # the same bytes, not a copy
        except OSError:
            shutil.copyfile(folder / f"step-{step}" / MODEL, snapshot)
    for old in _by_step(snapshot.parent, "step-*.safetensors")[:-most]:
        old.unlink()


def forget_after(folder: Path, step: int) -> None:
    """Remove what lies after the checkpoint that a run goes on from; it will be written again."""
    for late in _by_step(folder, "step-*"):
        if _step(late) > step:
            shutil.rmtree(late)
    for late in _by_step(folder / "weights", "step-*.safetensors"):
        if _step(late) > step:
            late.unlink()


def latest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and a sentence for each damaged one passed over."""
    complaints: list[str] = []
    for checkpoint in reversed(_by_step(folder, "step-*")):
        try:
            verify(checkpoint, FILES)
            return checkpoint, complaints
        except ModelError as error:
            complaints.append(str(error))
    return None, complaints


def resume(checkpoint: Path, model: nn.Module, flat: FlatWeights, optimizer: torch.optim.Optimizer) -> Standing:
    """Put everything back as it was."""
    restore(model, read_tensors(checkpoint / MODEL), checkpoint / MODEL)
    _restore_optimizer(flat, optimizer, read_tensors(checkpoint / "optimizer.safetensors"))
    random = read_tensors(checkpoint / "random.safetensors")
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])
    return standing_of(checkpoint)


def standing_of(checkpoint: Path) -> Standing:
    """Where the run stood; a checkpoint of an older version may say less."""
    stored = json.loads((checkpoint / "standing.json").read_text())
    return Standing(**{f.name: stored[f.name] for f in fields(Standing) if f.name in stored})


def averaged(folder: Path) -> dict[str, Tensor] | None:
    """The mean of the kept weights, damaged ones left out; None when there are fewer than two."""
    mean: dict[str, Tensor] = {}
    count = 0
    for path in _by_step(folder / "weights", "step-*.safetensors"):
        try:
            weights = read_tensors(path)
        except ModelError:
            continue
        count += 1
        for name, weight in weights.items():
            mean[name] = mean.get(name, 0.0) + weight.double()
    return {name: (total / count).float() for name, total in mean.items()} if count > 1 else None


def _optimizer_tensors(flat: FlatWeights, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`weight/moment`: the optimizer's tensors cut by weight; one that is not of their size (a count) is repeated."""
    found = {}
    for moment, value in optimizer.state[flat.weights].items():
        whole = value.shape == flat.weights.shape
        for name, part in flat.by_name(value if whole else flat.weights).items():
            found[f"{name}/{moment}"] = (part if whole else value).detach().to("cpu", copy=True)
    return found


def _restore_optimizer(flat: FlatWeights, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[str, Tensor] = {}
    for moment in {name.rpartition("/")[2] for name in tensors}:
        for place in flat.places:
            value = tensors[f"{place.name}/{moment}"]
            if value.shape != place.shape:
                state[moment] = value
                break
            place.of(state.setdefault(moment, torch.zeros(flat.weights.shape))).copy_(value)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": {0: state} if state else {}, "param_groups": groups})


def _by_step(folder: Path, pattern: str) -> list[Path]:
    """Oldest first; unfinished ones left out."""
    return sorted((path for path in folder.glob(pattern) if not path.name.endswith(".part")), key=_step)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-").removesuffix(".safetensors"))
