"""Weights as files, in safetensors: named tensors behind a header of names, types and shapes; nothing is executed.

What a header says is compared with what is wanted before anything is read or built.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from transduce.core.low_rank import LowRank
from transduce.errors import ModelError
from transduce.files.manifest import WAY_OUT
from transduce.files.reading import problem_with

Shape = tuple[int, ...]
FLOATS = ("F64", "F32", "F16", "BF16")  # types a weight may have, as safetensors calls them


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the weights by name, with what adapters add to them; a shared one once."""
    adapted = _adapted(model)
    read = (
        (name, adapted[name].merged() if name in adapted else weight) for name, weight in _parameters(model).items()
    )
    return {name: weight.detach().to("cpu", copy=True) for name, weight in read}


def shapes(model: nn.Module) -> dict[str, Shape]:
    """The shape of every weight."""
    return {name: tuple(weight.shape) for name, weight in _parameters(model).items()}


def restore(model: nn.Module, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Put weights into a model of the same shape; adapters then add nothing."""
    refuse_other_shapes({name: tuple(weight.shape) for name, weight in weights.items()}, shapes(model), origin)
    with torch.no_grad():
        for name, parameter in _parameters(model).items():
            parameter.copy_(weights[name])
        for module in _adapted(model).values():
            module.B.zero_()


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """All but those of adapters."""
    adapters = {id(part) for module in _adapted(model).values() for part in (module.A, module.B)}
    return {name: weight for name, weight in model.named_parameters() if id(weight) not in adapters}


def _adapted(model: nn.Module) -> dict[str, LowRank]:
    """Projections with an adapter, by the names of their weights."""
    return {f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, LowRank)}


def refuse_other_shapes(have: Mapping[str, Shape], want: Mapping[str, Shape], origin: Path) -> None:
    """Raise a ModelError that names the first weight that is missing, unexpected or misshapen."""
    if odd := sorted(have.keys() ^ want.keys()):
        raise ModelError(f"{origin} does not fit config.yaml: {odd[0][:80]} is on one side only")
    for name, shape in want.items():
        if have[name] != shape:
            raise ModelError(f"{origin} does not fit config.yaml: {name} has shape {have[name]}, not {shape}")


def read_shapes(path: Path) -> dict[str, Shape]:
    """The shapes that a file's header promises; a file of another size, or with what is no weight, is refused."""
    if problem := problem_with(path):
        raise ModelError(f"{path} {problem}")
    try:
        with safe_open(path, "pt") as file:
            header = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
            types = {name: tensor.get_dtype() for name, tensor in header.items()}
            promised = {name: tuple(tensor.get_shape()) for name, tensor in header.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path.parent} is damaged: {path.name} was cut short or altered; {WAY_OUT}") from error
    for name, kind in types.items():
        if kind not in FLOATS:
            raise ModelError(f"{path} holds {name[:80]} as {kind}, which is no type of a weight")
    return promised


def read_note(path: Path) -> dict[str, str]:
    """What somebody has noted in a file's header."""
    if problem := problem_with(path):
        raise ModelError(f"{path} {problem}")
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged or cut short: {str(error)[:200]}") from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file, all of them finite numbers."""
    weights = read_tensors(path)
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise ModelError(f"{path} holds numbers that are infinite or none (NaN), in {name[:80]}")
    return weights


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file, whatever it holds."""
    if problem := problem_with(path):
        raise ModelError(f"{path} {problem}")
    try:
        return safetensors.torch.load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path} is damaged or cut short: {str(error)[:200]}") from error


def tensor_bytes(tensors: Mapping[str, Tensor], note: dict[str, str] | None = None) -> bytes:
    """Tensors as the content of a file."""
    return safetensors.torch.save(dict(tensors), note)
