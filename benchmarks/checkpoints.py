"""How long does training stand still for a checkpoint?

    python benchmarks/checkpoints.py --size base

An updater of ours makes updates and now and then a checkpoint, as a run does: the state is copied, and a thread writes
it while training goes on. Prints the usual time of an update, how long the copy takes (training stands still), how
long the writing takes (it does not), and the time of an update while something is being written.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from common import machine, synchronize, write
from systems import SIZES, ours

from transduce.files.run_folder import RunFolder
from transduce.report import SILENT
from transduce.training.distributed import ALONE
from transduce.training.keeper import Keeper


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--size", default="base", choices=SIZES)
    words.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--checkpoints", type=int, default=5)
    words.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = words.parse_args()
    step = ours(SIZES[given.size], given.device)
    run = RunFolder(Path(tempfile.mkdtemp()))
    keeper = Keeper(run, step.updater, step.updater.settings.training, ALONE, SILENT)
    for _ in range(5):
        step()
    synchronize()
    usual, copying, writing, beside = [], [], [], []
    for _ in range(given.checkpoints):
        usual += [_timed(step) for _ in range(8)]
        copying.append(_timed(lambda: keeper.save(step.state)))
        begin = time.perf_counter()
        while keeper.writer.is_busy:
            beside.append(_timed(step))
        writing.append(time.perf_counter() - begin)
        keeper.writer.wait()
    size = sum(path.stat().st_size for path in run.path.rglob("*.safetensors")) / 2  # two are kept
    result = {
        "checkpoint, MB": round(size / 1e6),
        "an update, ms": round(1e3 * statistics.median(usual), 1),
        "training stands still, ms": [round(1e3 * t) for t in copying],
        "written meanwhile, ms": [round(1e3 * t) for t in writing],
        "an update while something is written, ms": round(1e3 * statistics.median(beside), 1) if beside else None,
    }
    for name, value in (machine() | result).items():
        print(f"{name:42} {value}")
    write(given.out, f"checkpoints-{given.size}-{given.device}", result)


def _timed(work) -> float:  # type: ignore[no-untyped-def]
    synchronize()
    begin = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
