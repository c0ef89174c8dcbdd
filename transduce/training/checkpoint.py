"""A complete checkpoint: RUN/training/step-N, there as a whole or not at all.

    model.safetensors       weights
    optimizer.safetensors   what the optimizer remembers of every weight: for Adam two moments and a step count
    average.safetensors     the moving average of the weights, where there is one
    random.safetensors      states of the random generators, of each process
    state.json              step, place in the data, best score so far, time spent
    manifest.json           written last; a folder without a valid one is passed over

What is saved is first copied (`snapshot`), which is quick, and then written (`write`), which another thread can do.
"""

from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transduce.core.flat import FlatWeights
from transduce.errors import ModelError
from transduce.files.atomic import beside, clear_parts, explained, flush
from transduce.files.manifest import read_manifest, verify, write_folder
from transduce.files.reading import problem_with
from transduce.files.run_folder import MODEL, REPLACED, STATE, RunFolder, step_of
from transduce.models.weights import (
    read_shapes,
    read_tensors,
    read_weights,
    refuse_other_shapes,
    tensor_bytes,
)
from transduce.training.distributed import Processes
from transduce.training.random_state import random_states, set_random_states
from transduce.training.state import RunState, read_state
from transduce.training.updater import Updater

OPTIMIZER, RANDOM, AVERAGE = "optimizer.safetensors", "random.safetensors", "average.safetensors"
FILES = (MODEL, OPTIMIZER, RANDOM, STATE)
MOST_MOMENTS = 8  # times the size of the weights that the optimizer's file may have


class Snapshot(NamedTuple):
    """A run at one moment, in the CPU's memory, while training goes on."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    average: dict[str, Tensor] | None
    random: dict[str, Tensor]
    state: RunState

    def files(self) -> dict[str, bytes]:
        files = {
            MODEL: tensor_bytes(self.weights),
            OPTIMIZER: tensor_bytes(self.optimizer),
            RANDOM: tensor_bytes(self.random),
            STATE: self.state.to_json(),
        }
        return files if self.average is None else {**files, AVERAGE: tensor_bytes(self.average)}


def snapshot(updater: Updater, state: RunState, processes: Processes) -> Snapshot | None:
    """Everything that decides how a run goes on, for the main process, which writes it. All must ask for it: each has
    its own random state."""
    random = {kind: state.tolist() for kind, state in random_states().items()}
    everyones = enumerate(processes.gather(random))
    if not processes.is_main:
        return None
    flat, average = updater.flat, updater.average
    return Snapshot(
        weights={**_frozen(updater.model), **flat.by_name(_copy(flat.weights))},
        optimizer=_optimizer_tensors(flat, updater.optimizer),
        average=None if average is None else flat.by_name(_copy(average.weights)),
        random={
            f"{kind}/{rank}": torch.tensor(numbers, dtype=torch.uint8)
            for rank, states in everyones
            for kind, numbers in states.items()
        },
        state=copy.deepcopy(state),
    )


def _frozen(model: nn.Module) -> dict[str, Tensor]:
    """What does not learn is part of a checkpoint all the same: the run then needs no other folder."""
    return {name: _copy(weight) for name, weight in model.named_parameters() if not weight.requires_grad}


def _copy(tensor: Tensor) -> Tensor:
    """In the CPU's memory; from a GPU into pages that are pinned, which it can write to directly."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).copy_(tensor.detach())


def write(run: RunFolder, now: Snapshot, keep: int) -> None:
    """As step-N; then remove all but the newest `keep`, and the last one at the full rate."""
    _replace(run, now.state.step, now.files())
    for old in run.checkpoints()[:-keep]:
        if step_of(old) != now.state.decay_begin:  # the last at the full rate, to be extended from
            shutil.rmtree(old)


def write_state(run: RunFolder, checkpoint: Path, state: RunState) -> None:
    """Replace a checkpoint by one with this state, and all else as it is."""
    files = {name: (checkpoint / name).read_bytes() for name in {*FILES, *read_manifest(checkpoint)} - {STATE}}
    _replace(run, state.step, {**files, STATE: state.to_json()})


def _replace(run: RunFolder, step: int, files: dict[str, bytes]) -> None:
    """A checkpoint of these files: as a whole, or what there was before."""
    here = run.checkpoint(step)
    part, replaced = beside(here), here.with_name(here.name + REPLACED)
    try:
        write_folder(part, files)
        with explained(here):
            if here.exists():  # a stop has saved this step before
                shutil.rmtree(replaced, ignore_errors=True)
                os.replace(here, replaced)
            os.replace(part, here)
        flush(run.training)
    finally:
        clear_parts(run.training)
    shutil.rmtree(replaced, ignore_errors=True)


def latest(run: RunFolder) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and a sentence for each damaged one passed over."""
    complaints: list[str] = []
    for checkpoint in reversed(run.checkpoints()):
        try:
            _verify(checkpoint)
            return checkpoint, complaints
        except ModelError as error:
            complaints.append(str(error))
    return None, complaints


def latest_good(run: RunFolder) -> Path | None:
    """The newest complete checkpoint that was not saved while the loss was going up; else the newest."""
    complete = [checkpoint for checkpoint in reversed(run.checkpoints()) if is_complete(checkpoint)]
    return next(
        (checkpoint for checkpoint in complete if not read_state(checkpoint).worse_windows), next(iter(complete), None)
    )


def is_complete(checkpoint: Path) -> bool:
    try:
        _verify(checkpoint)
    except ModelError:
        return False
    return True


def decayed_for_other(checkpoint: Path, limits: str) -> RunState | None:
    """Its state, where the learning rate has begun to fall for other limits than these."""
    state = read_state(checkpoint)
    return None if state.decay is None or state.decay_for == limits else state


def _verify(checkpoint: Path) -> None:
    """Refuse what is not whole; sizes are looked at before anything is read."""
    for name in (MODEL, OPTIMIZER, RANDOM):
        if problem := problem_with(checkpoint / name):
            raise ModelError(f"{checkpoint} is damaged: {name} {problem}")
    weights = (checkpoint / MODEL).stat().st_size
    for name in (OPTIMIZER, RANDOM, AVERAGE):
        if (checkpoint / name).exists() and (checkpoint / name).stat().st_size > MOST_MOMENTS * weights + 100_000_000:
            raise ModelError(f"{checkpoint} is damaged: {name} is far too large for these weights")
    read_shapes(checkpoint / MODEL)
    verify(checkpoint, {*FILES, *read_manifest(checkpoint)})
    read_state(checkpoint)


def resume(checkpoint: Path, updater: Updater, rank: int) -> RunState:
    """Put everything back as it was; what does not fit the model is refused before anything is changed."""
    flat, average = updater.flat, updater.average
    wanted = {name: tuple(weight.shape) for name, weight in updater.model.named_parameters()}
    refuse_other_shapes(read_shapes(checkpoint / MODEL), wanted, checkpoint / MODEL)
    weights = read_weights(checkpoint / MODEL)
    moments = _moments(flat, read_tensors(checkpoint / OPTIMIZER), checkpoint)
    _refuse_other_optimizer(updater, moments, checkpoint)
    kept = None if average is None else _kept_average(flat, checkpoint)
    random = read_tensors(checkpoint / RANDOM)
    state = read_state(checkpoint)
    with torch.no_grad():
        for name, parameter in updater.model.named_parameters():  # those of adapters too
            parameter.copy_(weights[name])
    groups = updater.optimizer.state_dict()["param_groups"]
    updater.optimizer.load_state_dict({"state": {0: moments} if moments else {}, "param_groups": groups})
    if average is not None and kept is not None:
        for name, weight in flat.by_name(average.weights).items():
            weight.copy_(kept[name])
    _restore_random(random, rank, checkpoint)
    return state


def _refuse_other_optimizer(updater: Updater, moments: dict[str, Tensor], checkpoint: Path) -> None:
    """What another optimizer remembers is of no use; PyTorch's own makes its memory with the first update."""
    wanted = set(updater.optimizer.state[updater.flat.weights]) or {"step", "exp_avg", "exp_avg_sq"}
    if moments and set(moments) != wanted:
        raise ModelError(
            f"{checkpoint / OPTIMIZER} holds {', '.join(sorted(moments))}, of another optimizer than "
            f"{updater.settings.optimizer.name}; go on with the one that the run was started with"
        )


def _kept_average(flat: FlatWeights, checkpoint: Path) -> dict[str, Tensor]:
    wanted = {place.name: tuple(place.shape) for place in flat.places}
    refuse_other_shapes(read_shapes(checkpoint / AVERAGE), wanted, checkpoint / AVERAGE)
    return read_weights(checkpoint / AVERAGE)


def _restore_random(random: dict[str, Tensor], rank: int, checkpoint: Path) -> None:
    """States of this process; there are none where there are more processes now than before."""
    mine = {kind.removesuffix(f"/{rank}"): state for kind, state in random.items() if kind.endswith(f"/{rank}")}
    try:
        set_random_states(mine)
    except (RuntimeError, TypeError) as error:
        raise ModelError(f"{checkpoint / RANDOM} holds no state of a random generator: {error}") from error


def _optimizer_tensors(flat: FlatWeights, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`weight/moment`: the optimizer's tensors cut by weight; one that is not of their size (a count) is repeated."""
    tensors = {}
    for moment, value in optimizer.state[flat.weights].items():
        copied, whole = _copy(value), value.shape == flat.weights.shape
        for place in flat.places:
            tensors[f"{place.name}/{moment}"] = place.of(copied) if whole else copied.clone()
    return tensors


def _moments(flat: FlatWeights, tensors: dict[str, Tensor], checkpoint: Path) -> dict[str, Tensor]:
    """The same, put together again."""
    state: dict[str, Tensor] = {}
    for moment in sorted({name.rpartition("/")[2] for name in tensors}):
        for place in flat.places:
            value = tensors.get(f"{place.name}/{moment}")
            if value is None or not value.is_floating_point() or (value.shape != place.shape and value.numel() != 1):
                raise ModelError(f"{checkpoint / OPTIMIZER} does not fit the model: {place.name}/{moment}"[:300])
            if not value.isfinite().all():
                raise ModelError(f"{checkpoint / OPTIMIZER} holds numbers that are infinite or none (NaN)")
            if value.shape != place.shape:
                state[moment] = value
                break
            place.of(state.setdefault(moment, torch.zeros(flat.weights.shape))).copy_(value)
    return state
