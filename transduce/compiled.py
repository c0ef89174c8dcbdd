"""How kernels are compiled. The only file that imports numba."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding

# nogil: threads run beside each other, and write into the same arrays without locks (Hogwild, Niu et al., 2011).
# error_model: what is divided by zero is infinite, as NumPy has it: a rate that is too high is named, and no exception.
# Compiled code is kept until the file of a kernel changes; whoever changes these options changes those files too.
# fastmath: sums may be taken in any order, which is what lets the processor add four or eight at once. But infinities
# and NaN stay what they are (no "ninf", no "nnan"): -inf is the score of a hypothesis that nobody follows.
FAST = {"reassoc", "contract", "arcp", "afn", "nsz"}
kernel = numba.njit(nogil=True, cache=True, fastmath=FAST, boundscheck=False, error_model="numpy")
exact = numba.njit(nogil=True, cache=True)  # whole numbers only; nothing to gain


def is_on_disk(function: Any) -> bool:
    """Whether a kernel was compiled on this machine before, and need only be loaded."""
    source = Path(function.py_func.__code__.co_filename).stat().st_mtime
    name = f"*.{function.__name__}-*.py{sys.version_info[0]}{sys.version_info[1]}*.nbi"
    return any(index.stat().st_mtime >= source for index in Path(function.stats.cache_path).glob(name))


def external(name: str, address: int, numbers: int) -> numba.types.ExternalFunction:
    """For kernels, a function of another library: it takes so many whole numbers, or pointers as such. Compiled code
    that is kept on the disk knows it by its name."""
    binding.add_symbol(name, address)
    return numba.types.ExternalFunction(name, numba.types.void(*[numba.types.intp] * numbers))
