"""What the benchmarks share: the machine in words, systems timed in turns, sentences of a given length."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch


def machine() -> dict[str, str]:
    """Where and with what a figure was measured."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
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


@dataclass
class Timed:
    """A system and what it did."""

    name: str
    step: Callable[[], int]  # does one update, gives its target tokens
    memory: int = 0  # peak bytes
    build_seconds: float = 0.0
    speeds: list[float] = field(default_factory=list)  # target tokens a second, one a round

    @property
    def speed(self) -> float:
        return statistics.median(self.speeds)

    def ratio(self, other: Timed) -> tuple[float, float, float]:
        """Median, lowest and highest of this speed over the other's, round by round."""
        ratios = [a / b for a, b in zip(self.speeds, other.speeds, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def build(name: str, make: Callable[[], Callable[[], int]], warm_up: int = 3) -> Timed:
    """Make a system and let it compile; its peak memory is what came on top of what was there."""
    before = time.perf_counter()
    base = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    system = Timed(name, make())
    for _ in range(warm_up):
        system.step()
    synchronize()
    if torch.cuda.is_available():
        system.memory = torch.cuda.max_memory_allocated() - base
    system.build_seconds = time.perf_counter() - before
    print(f"{name}: ready after {system.build_seconds:.0f} s", file=sys.stderr, flush=True)
    return system


def race(systems: Sequence[Timed], rounds: int = 5, seconds: float = 2.0) -> None:
    """Time them one after the other, `rounds` times, each round beginning with another one."""
    for number in range(rounds):
        turn = number % len(systems)
        for system in [*systems[turn:], *systems[:turn]]:
            synchronize()
            begin, tokens, steps = time.perf_counter(), 0, 0
            while time.perf_counter() - begin < seconds or steps < 3:
                tokens += sum(system.step() for _ in range(5))
                steps += 5
                synchronize()
            system.speeds.append(tokens / (time.perf_counter() - begin))


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


def sentence_lengths(count: int, mean: float, seed: int = 0, longest: int = 127) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of both sides of sentence pairs: log-normal as in real text, the sides within a fifth of each other."""
    rng = np.random.default_rng(seed)
    target = rng.lognormal(np.log(mean) - 0.45**2 / 2, 0.45, count)
    source = target * rng.uniform(0.8, 1.2, count)
    return tuple(np.clip(np.rint(side), 2, longest - 1).astype(np.int64) for side in (source, target))


def write(path: Path, name: str, facts: dict) -> None:
    """As JSON, with the machine."""
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.json").write_text(json.dumps({"benchmark": name, **machine(), **facts}, indent=1) + "\n")


def as_facts(system: Timed) -> dict:
    facts = asdict(system)
    del facts["step"]
    return {**facts, "speed": system.speed}
