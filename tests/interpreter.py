"""Runs kernels of Triton's on a CPU, through its interpreter.

The interpreter must be chosen before Triton is imported, and other tests may have imported it: hence a process, which
runs one program after the other.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from unittest import mock

SECONDS = 300  # for one program, on a slow machine


@contextmanager
def interpreter() -> Iterator[Callable[[str], str]]:
    """Within, the function runs a program, and gives the traceback of what that raises, or nothing."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        with mock.patch.dict(os.environ, {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}):
            process.submit(importlib.import_module, "triton")  # starts it, with what the environment is now
        yield lambda program: process.submit(_run, program).result(SECONDS)


def _run(program: str) -> str:
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "program"})
    except Exception:
        return traceback.format_exc()
    return ""
