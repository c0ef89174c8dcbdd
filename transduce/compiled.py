"""How kernels are compiled. The only file that imports numba."""

from __future__ import annotations

import numba

# nogil: threads run beside each other, and write into the same arrays without locks (Hogwild, Niu et al., 2011).
# error_model: a number divided by zero is infinite, as NumPy has it, and no exception.
# fastmath: sums may be taken in any order, which is what lets the processor add four or eight at once.
kernel = numba.njit(nogil=True, cache=True, fastmath=True, boundscheck=False, error_model="numpy")
exact = numba.njit(nogil=True, cache=True)  # whole numbers only; nothing to gain
