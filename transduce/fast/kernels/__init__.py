"""Operators of our own, mostly kernels in Triton, each beside a plain twin that computes the same.

They run where a working copy of a model was made fast (fast/modules.py) and in the recorded search of a GPU (engine/),
and nowhere else. A machine without Triton (macOS, or PyTorch for CPUs) never meets them. The tests run them on a CPU
through Triton's interpreter.
"""

from __future__ import annotations

import importlib
import importlib.util
import os

from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None
WIDEST_HEAD = 64  # of attention, that was tried and fits on the chip


def load() -> None:
    """Make those that need Triton known as `torch.ops.transduce.NAME`."""
    for name in ("segment_attention", "residual_norm", "relu_gradient", "table_gradient"):
        importlib.import_module(f"{__name__}.{name}")


def can_run_on(x: Tensor) -> bool:
    """Whether a Triton kernel can work on this tensor: on a GPU, or through the interpreter."""
    return x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
