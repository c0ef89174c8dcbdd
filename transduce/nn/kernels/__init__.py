"""Operators of our own, mostly kernels in Triton, each beside a plain twin that computes the same.

They run where the model is compiled for a GPU (training/gradients.py), and nowhere else. A machine without Triton
(macOS, or PyTorch for CPUs) never meets them. The tests run them on a CPU through Triton's interpreter.
"""

from __future__ import annotations

import importlib
import importlib.util

import torch
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None


WIDEST_HEAD = 64  # of attention, that was tried and fits on the chip
_loaded = False


def load() -> None:
    """Make those that need Triton known as `torch.ops.transduce.NAME`."""
    global _loaded
    for name in ("segment_attention", "residual_norm", "relu_gradient", "table_gradient"):
        importlib.import_module(f"{__name__}.{name}")
    _loaded = True


def in_use(x: Tensor) -> bool:
    """Whether this is the compiled path on a GPU."""
    return _loaded and x.is_cuda and torch.compiler.is_compiling()
