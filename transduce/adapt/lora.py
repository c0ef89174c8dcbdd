"""LoRA: adapters learn, the model stays as it is. The model that a run gives is an ordinary one, with the adapters in
its weights; beside it lies a small file with the adapters alone, for whoever has the model they were made for.

RUN/adapter.safetensors: for each adapted weight W = W₀ + B A two matrices, and the fingerprint of the model of W₀.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.core.low_rank import adapt
from transduce.core.precision import Linear
from transduce.core.seq2seq import Seq2Seq
from transduce.errors import ModelError, SettingsError
from transduce.models.weights import read_note, read_weights, tensor_bytes, weights_of
from transduce.settings.sections import TrainingSettings

PARTS = ("query", "key", "value", "output", "inner", "outer")  # projections of attention and feed-forward layers
ADAPTER = "adapter.safetensors"
EXACT = 1e-6  # of the largest singular value: what is below is rounding


def attach(model: Seq2Seq, t: TrainingSettings) -> None:
    """Adapters for the projections that settings name, if they do; nothing else learns then."""
    if t.lora_rank is None:
        return
    parts = [part.strip() for part in t.lora_parts.split(",")]
    for part in parts:
        if part not in PARTS:
            raise SettingsError(f"training.lora_parts={t.lora_parts}: {part!r} is none of {', '.join(PARTS)}")
    model.requires_grad_(False)
    alpha = 2.0 * t.lora_rank if t.lora_alpha is None else t.lora_alpha
    for name, module in model.named_modules():
        if isinstance(module, Linear) and name.rpartition(".")[2] in parts:
            adapt(module, t.lora_rank, alpha, t.lora_dropout)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise SettingsError(f"training.lora_parts={t.lora_parts}: the model has no such projections")


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """A model's: the same numbers, the same fingerprint."""
    found = hashlib.sha256()
    for name in sorted(weights):
        found.update(name.encode() + weights[name].detach().float().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def factored(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What changed of each weight, as B and A of the least rank that gives all of it: also of an average of several
    adapters, whose rank is higher than theirs."""
    found: dict[str, Tensor] = {}
    for name, weight in after.items():
        if torch.equal(weight, before[name]):
            continue
        if weight.dim() != 2:
            raise ModelError(f"{name} has changed too, and is no matrix; this is no adapter")
        u, s, v = torch.linalg.svd((weight - before[name]).double(), full_matrices=False)
        rank = max(1, int((s > EXACT * s[0]).sum()))
        found[f"{name}.B"] = (u[:, :rank] * s[:rank]).float().contiguous()
        found[f"{name}.A"] = v[:rank].float().contiguous()
    return found


def adapter_bytes(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> bytes:
    """The content of an adapter's file."""
    return tensor_bytes(factored(before, after), {"base": fingerprint(before)})


def with_adapter(model: Seq2Seq, path: Path) -> Seq2Seq:
    """A model beside this one, with an adapter; weights that the adapter leaves alone are those of both."""
    changed = {name.rpartition(".")[0] for name in read_weights(_file(path))}
    shared = {id(weight): weight for name, weight in model.named_parameters() if name not in changed}
    twin = copy.deepcopy(model, shared)  # which takes what is in its memory for a copy already made
    put_adapter(twin, path)
    return twin


@torch.no_grad()
def put_adapter(model: nn.Module, path: Path) -> None:
    """Add an adapter, by its file or its run's folder, to the model that it was made for, in place; to another it is
    refused."""
    path = _file(path)
    base, matrices = read_note(path).get("base"), read_weights(path)
    if base != fingerprint(weights_of(model)):
        raise ModelError(f"{path} was made for another model; an adapter fits only the model it was trained on")
    weights = dict(model.named_parameters())
    for name in sorted({name.rpartition(".")[0] for name in matrices}):
        thin, tall = (matrices.get(f"{name}.{part}", torch.zeros(0)) for part in ("A", "B"))
        fits = thin.dim() == tall.dim() == 2 and len(thin) == tall.size(1) and name in weights
        if not fits or (len(tall), thin.size(1)) != tuple(weights[name].shape):
            raise ModelError(f"{path} is damaged: what it has for {name[:80]} does not fit the model")
        weights[name].add_((tall.double() @ thin.double()).float().to(weights[name].device))


def _file(path: Path) -> Path:
    """An adapter by its file, or by its run's folder."""
    return path / ADAPTER if path.is_dir() else path
