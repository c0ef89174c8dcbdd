"""What training leaves on disk, so that it can go on: RUN/training/step-N, complete or not there at all.

    model.safetensors       weights
    optimizer.safetensors   what the optimizer remembers of every weight: for Adam two moments and a step count
    average.safetensors     the moving average of the weights, where there is one
    random.safetensors      states of the random generators, of each process
    standing.json           step, place in the data, best score so far, time spent
    manifest.json           written last; a folder without a valid one is passed over

Beside them RUN/training/weights keeps the last few weights, and the best few, for averaging. What is saved is first
copied (`snapshot`), which is quick, and then written (`write`), which another thread can do.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transduce.errors import ModelError
from transduce.models.folder import (
    MODEL,
    flush,
    manifest,
    read_tensors,
    restore,
    tensor_bytes,
    verify,
    write_file,
    write_folder,
)
from transduce.training.average import MovingAverage
from transduce.training.distributed import Processes
from transduce.training.flat import FlatWeights
from transduce.training.validation import Validation

FILES = (MODEL, "optimizer.safetensors", "random.safetensors", "standing.json")
AVERAGE = "average.safetensors"
BEFORE = ".before"  # a checkpoint that is being replaced by one of the same step
NAME = re.compile(rf"step-\d+(\.safetensors|{re.escape(BEFORE)})?")


@dataclass
class Standing:
    """Where a run stands."""

    step: int = 0  # updates done, or skipped
    epoch: int = 0  # passes begun, from 0
    batch: int = 0  # batches of this epoch already used
    seconds: float = 0.0  # time spent, earlier sessions included
    target_tokens: int = 0
    rate_squares: float = 0.0  # sum of the squared learning rates, by which Schedule-Free weighs its average
    data: str = ""  # name of the token store: the text that is trained on
    valid_data: str | None = None  # and that is validated on; "": there is none; none: an older version did not say
    layout: str = "buckets"  # of its batches, by which `batch` counts
    batch_tokens: int = 0  # slots of a batch, where batch.tokens=auto has found them
    validated: int = 0  # the step of the last validation
    best_loss: float | None = None
    best_score: float | None = None
    since_best: int = 0  # validations without a better one
    validations: list[tuple[int, float | None, float | None]] = field(default_factory=list)  # step, loss, score
    loss_total: float = 0.0  # since the last line of metrics.jsonl
    loss_tokens: int = 0
    usual_loss: float = 0.0  # of the lines so far
    lines: int = 0
    skipped: int = 0  # updates whose loss or gradient was no number
    skipped_in_a_row: int = 0

    def best_steps(self) -> list[int]:
        """The steps that were validated, the best first; of equal ones the earlier."""
        best: list[tuple[Validation, int]] = []
        for step, loss, score in self.validations:
            if loss is not None:  # there was validation text
                found = Validation(loss, score)
                place = next((i for i, (other, _) in enumerate(best) if found.better_than(other)), len(best))
                best.insert(place, (found, step))
        return [step for _, step in best]


class Snapshot(NamedTuple):
    """A run at one moment, in the CPU's memory, while training goes on."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    average: dict[str, Tensor] | None
    random: dict[str, Tensor]
    standing: Standing


def snapshot(
    flat: FlatWeights,
    optimizer: torch.optim.Optimizer,
    average: MovingAverage | None,
    standing: Standing,
    processes: Processes,
) -> Snapshot | None:
    """Everything that decides how a run goes on, for the first process, which writes it. All must ask for it: each has
    its own random state."""
    random = {"cpu": torch.get_rng_state().tolist()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state().tolist()
    everyones = enumerate(processes.gather(random))
    if not processes.is_first:
        return None
    return Snapshot(
        weights=flat.by_name(_copy(flat.weights)),
        optimizer=_optimizer_tensors(flat, optimizer),
        average=None if average is None else flat.by_name(_copy(average.weights)),
        random={
            f"{kind}/{rank}": torch.tensor(state, dtype=torch.uint8)
            for rank, states in everyones
            for kind, state in states.items()
        },
        standing=copy.deepcopy(standing),
    )


def _copy(tensor: Tensor) -> Tensor:
    """In the CPU's memory; from a GPU into pages that are pinned, which it can write to directly."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).copy_(tensor.detach())


def write(folder: Path, now: Snapshot, keep: int) -> None:
    """As step-N; then let go of all but the newest `keep`."""
    files = {
        MODEL: tensor_bytes(now.weights),
        "optimizer.safetensors": tensor_bytes(now.optimizer),
        "random.safetensors": tensor_bytes(now.random),
        "standing.json": json.dumps(asdict(now.standing), indent=1).encode(),
    }
    if now.average is not None:
        files[AVERAGE] = tensor_bytes(now.average)
    here, beside, before = (folder / f"step-{now.standing.step}{end}" for end in ("", ".part", BEFORE))
    shutil.rmtree(beside, ignore_errors=True)
    try:
        write_folder(beside, files)
        if here.exists():  # a stop has saved this step before
            shutil.rmtree(before, ignore_errors=True)
            os.replace(here, before)
        os.replace(beside, here)
        flush(folder)
    finally:
        for left in folder.glob("*.part"):
            shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(before, ignore_errors=True)
    for old in _by_step(folder, "step-*")[:-keep]:
        shutil.rmtree(old)


def keep_weights(folder: Path, step: int, weights: bytes) -> None:
    """Keep weights beyond the time of their checkpoint, to be averaged."""
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    write_file(folder / "weights" / f"step-{step}.safetensors", weights)


def let_go(folder: Path, wanted: set[int]) -> None:
    """Of kept weights that are no longer wanted."""
    for step, path in kept_weights(folder).items():
        if step not in wanted:
            path.unlink()


def kept_weights(folder: Path) -> dict[int, Path]:
    """By step, oldest first."""
    return {_step(path): path for path in _by_step(folder / "weights", "step-*.safetensors")}


def refuse_to_replace(run: Path) -> None:
    """A model comes after its first checkpoint: one without any is another's, or what is left of a run."""
    if (run / MODEL).exists():
        raise ModelError(
            f"{run} holds a model but no checkpoint to go on from, and training would replace it; choose another run "
            f"folder"
        )


def forget_after(folder: Path, step: int, found: Path | None) -> None:
    """Remove what lies after the checkpoint `found` that a run goes on from, and what was being written when it
    ended."""
    for left in folder.glob("*.part"):
        shutil.rmtree(left, ignore_errors=True)
    for late in _by_step(folder, "step-*"):
        if late != found and (_step(late) > step or late.name.endswith(BEFORE)):
            shutil.rmtree(late)
    for late in _by_step(folder / "weights", "step-*.safetensors"):
        if _step(late) > step:
            late.unlink()


def latest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and a sentence for each damaged one passed over."""
    complaints: list[str] = []
    for checkpoint in reversed(_by_step(folder, "step-*")):
        try:
            verify(checkpoint, {*FILES, *manifest(checkpoint)})
            return checkpoint, complaints
        except ModelError as error:
            complaints.append(str(error))
    return None, complaints


def resume(
    checkpoint: Path,
    model: nn.Module,
    flat: FlatWeights,
    optimizer: torch.optim.Optimizer,
    average: MovingAverage | None,
    rank: int,
) -> Standing:
    """Put everything back as it was."""
    restore(model, read_tensors(checkpoint / MODEL), checkpoint / MODEL)
    _restore_optimizer(flat, optimizer, read_tensors(checkpoint / "optimizer.safetensors"))
    if average is not None:
        kept = read_tensors(checkpoint / AVERAGE)
        for name, weight in flat.by_name(average.weights).items():
            weight.copy_(kept[name])
    random = read_tensors(checkpoint / "random.safetensors")
    if f"cpu/{rank}" in random:  # not where there are more processes now than before
        torch.set_rng_state(random[f"cpu/{rank}"])
    if f"cuda/{rank}" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random[f"cuda/{rank}"])
    return standing_of(checkpoint)


def standing_of(checkpoint: Path) -> Standing:
    """Where the run stood; a checkpoint of an older version may say less."""
    stored = json.loads((checkpoint / "standing.json").read_text())
    return Standing(**{f.name: stored[f.name] for f in fields(Standing) if f.name in stored})


def _optimizer_tensors(flat: FlatWeights, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`weight/moment`: the optimizer's tensors cut by weight; one that is not of their size (a count) is repeated."""
    found = {}
    for moment, value in optimizer.state[flat.weights].items():
        copied, whole = _copy(value), value.shape == flat.weights.shape
        for place in flat.places:
            found[f"{place.name}/{moment}"] = place.of(copied) if whole else copied.clone()
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
    """Oldest first; unfinished ones, and what somebody else has put there, left out."""
    wanted = Path.is_file if pattern.endswith(".safetensors") else Path.is_dir
    found = (path for path in folder.glob(pattern) if NAME.fullmatch(path.name) and wanted(path))
    return sorted(found, key=lambda path: (_step(path), not path.name.endswith(BEFORE)))


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-").removesuffix(".safetensors").removesuffix(BEFORE))
