"""The states of PyTorch's random generators: of the CPU, and of the GPU that this process uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


def random_states() -> dict[str, Tensor]:
    """The state of each generator that there is: `cpu`, `cuda`, `mps`."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: Mapping[str, Tensor]) -> None:
    """Put states back; one of a generator that is not there is passed over."""
    if "cpu" in states:
        torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if "mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["mps"])


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Whatever is drawn or seeded within leaves no trace. (PyTorch's fork_rng takes one kind of GPU, and by default all
    GPUs of the machine.)"""
    before = random_states()
    try:
        yield
    finally:
        set_random_states(before)
