"""Where the matrix product is that PyTorch itself multiplies with: BLAS, of whichever library it was built with."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch


@cache
def address_of_sgemm() -> int | None:
    """Where BLAS has its product of float32 matrices in this process; None: it is not to be found."""
    package = Path(torch.__file__).parent
    places = [
        *(package / "lib").glob("libtorch_cpu.*"),
        *package.glob("lib/*openblas*"),
        *package.glob("../torch.libs/*blas*"),
    ]
    for library in places:
        try:
            return ctypes.cast(ctypes.CDLL(str(library))["sgemm_"], ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None
