"""What the benchmarks share: the machine in words, systems timed in turns, sentences of a given length."""

from __future__ import annotations

import json
import multiprocessing
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch


def machine() -> dict[str, str]:
    """Where and with what a figure was measured."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    here = str(Path(__file__).parent)
    git = ["git", "-C", here, "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False)
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("triton", "transformers"):
        if name in sys.modules:
            versions[name] = sys.modules[name].__version__
    return {
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "gpu": gpu,
        **versions,
        "commit": commit.stdout.strip() or "not a clone",
        "date": time.strftime("%Y-%m-%d"),
    }


def spread(lines: Sequence[Any], most: int) -> list[Any]:
    """So many of them, from the whole of it: test text may be sorted by length."""
    return [lines[i * len(lines) // most] for i in range(most)] if len(lines) > most else list(lines)


class Worker:
    """A system in a process of its own: built while others are, then timed in turns with them."""

    def __init__(self, name: str, make: Callable[..., Callable[[], int]], *given: Any) -> None:
        self.name = name
        self.speeds: list[float] = []  # target tokens a second, one a round
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, given), daemon=True)
        self._process.start()

    def ready(self) -> bool:
        """Wait until it is built; afterwards `memory` and `seconds` are known. False: it could not be built."""
        self.memory, self.seconds, complaint = self._answer()
        print(f"{self.name}: {complaint or f'ready after {self.seconds:.0f} s'}", file=sys.stderr, flush=True)
        return not complaint

    def run(self, seconds: float) -> float:
        """Target tokens a second over so many seconds of updates."""
        return self.ask("run", seconds)

    def ask(self, what: str, value: Any = None) -> Any:
        """`run`, or something that the step itself offers by that name."""
        self._pipe.send((what, value))
        return self._answer()

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            return 0, 0.0, "its process ended"

    @property
    def speed(self) -> float:
        return statistics.median(self.speeds)

    def ratio(self, other: Worker) -> tuple[float, float, float]:
        """Median, lowest and highest of this speed over the other's, round by round."""
        ratios = [a / b for a, b in zip(self.speeds, other.speeds, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)

    def facts(self) -> dict[str, Any]:
        keys = ("name", "memory", "seconds", "speeds", "speed")
        return {key: getattr(self, key) for key in keys}


def _serve(pipe: Any, make: Callable[..., Callable[[], int]], given: tuple) -> None:
    """Build, say so, then do as asked until the pipe closes."""
    begin = time.perf_counter()
    try:
        step = make(*given)
        for _ in range(4):
            step()
        synchronize()
    except Exception as error:  # a peer that cannot be built is a result too
        pipe.send((0, 0.0, f"failed: {type(error).__name__}: {str(error)[:300]}"))
        return
    memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    memory += step.uncounted() if hasattr(step, "uncounted") else 0
    _make_room()
    pipe.send((memory, time.perf_counter() - begin, ""))
    while True:
        try:
            what, value = pipe.recv()
        except EOFError:
            return
        pipe.send(_measure(step, value) if what == "run" else getattr(step, what)(value))
        _make_room()


def _make_room() -> None:
    """For the others on the same GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _measure(step: Callable[[], int], seconds: float) -> float:
    for _ in range(2):
        step()
    synchronize()
    begin, tokens, steps = time.perf_counter(), 0, 0
    while time.perf_counter() - begin < seconds or steps < 3:
        tokens += step()
        steps += 1
    synchronize()
    return tokens / (time.perf_counter() - begin)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def race(workers: Sequence[Worker], rounds: int = 5, seconds: float = 2.0) -> None:
    """Time them one after the other, `rounds` times, each round beginning with another one."""
    for number in range(rounds):
        turn = number % len(workers)
        for worker in [*workers[turn:], *workers[:turn]]:
            worker.speeds.append(worker.run(seconds))


def matrix_rate() -> float:
    """FLOP/s of large bfloat16 products on random numbers: the hardware's limit as measured."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    synchronize()
    begin = time.perf_counter()
    for _ in range(30):
        a @ b
    synchronize()
    return 30 * 2 * 8192**3 / (time.perf_counter() - begin)


def sentence_lengths(count: int, mean: float, longest: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of both sides of sentence pairs: log-normal as in real text, the sides within a fifth of each other."""
    rng = np.random.default_rng(seed)
    target = rng.lognormal(np.log(mean) - 0.45**2 / 2, 0.45, count)
    source = target * rng.uniform(0.8, 1.2, count)
    return tuple(np.clip(np.rint(side), 2, longest - 1).astype(np.int64) for side in (source, target))


def write(path: Path, name: str, facts: dict) -> None:
    """As JSON, with the machine."""
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.json").write_text(json.dumps({"benchmark": name, **machine(), **facts}, indent=1) + "\n")
