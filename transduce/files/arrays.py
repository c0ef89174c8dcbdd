"""NumPy arrays as a file, in safetensors. Without PyTorch, which takes longer to load than small models to train."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from transduce.errors import ModelError
from transduce.files.reading import problem_with


def read_arrays(path: Path) -> dict[str, NDArray]:
    """Every array of a file, whatever it holds."""
    if problem := problem_with(path):
        raise ModelError(f"{path} {problem}")
    try:
        return safetensors.numpy.load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is damaged or cut short: {str(error)[:200]}") from error


def array_bytes(arrays: Mapping[str, NDArray]) -> bytes:
    """Arrays as the content of a file."""
    return safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
