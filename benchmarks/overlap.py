"""Does it pay to sum gradients while backward is at work?

    torchrun --nproc-per-node 2 benchmarks/overlap.py [--size 10M]

Two processes (on CPUs over gloo) make updates of one model, in turns with sums in buckets that overlap with backward
and with one sum after it. Prints the median time of an update both ways, and the time that the sum alone takes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from common import machine, write
from systems import SIZES, _Text

from transduce.data.batches import Batches
from transduce.models.device import prepare_device
from transduce.models.kinds import new_model
from transduce.settings.compose import compose
from transduce.training.distributed import process_group
from transduce.training.overlap import GradientSum
from transduce.training.state import RunState
from transduce.training.updater import Updater


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--size", default="10M", choices=SIZES)
    words.add_argument("--tokens", type=int, default=2048)
    words.add_argument("--updates", type=int, default=20)
    words.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = words.parse_args()
    torch.set_num_threads(1)
    size = replace(SIZES[given.size], tokens=given.tokens, pairs=3000)
    model = {"layers": size.layers, "d_model": size.d_model, "d_ff": size.d_ff, "heads": size.heads}
    settings = compose({"model": model, "batch": {"tokens": size.tokens, "layout": "buckets"}})
    with process_group(prepare_device("cpu")) as processes:
        torch.manual_seed(0)
        built = new_model(settings.model, size.vocabulary, size.vocabulary)
        updater = Updater(built, settings, "cpu", processes=processes)
        after = GradientSum(updater.model, updater.flat, processes, overlap=False)
        overlapping, state = updater.sum, RunState()
        batches = Batches(_Text(size), settings.batch, 1, share=(processes.rank, processes.count))
        times: dict[str, list[float]] = {"overlapping": [], "after backward": [], "the sum alone": []}
        plans = batches.plan(0)
        for number in range(given.updates + 2):
            batch = batches.assemble(plans[number % len(plans)])
            for name, how in (("overlapping", overlapping), ("after backward", after)):
                updater.sum = how
                processes.gather(None)
                begin = time.perf_counter()
                updater.update([batch], state)
                times[name].append(time.perf_counter() - begin)
            processes.gather(None)
            begin = time.perf_counter()
            processes.sum(updater.flat.gradient)
            times["the sum alone"].append(time.perf_counter() - begin)
        if processes.is_main:
            facts = {f"{name}, ms": round(1e3 * statistics.median(seconds[2:]), 1) for name, seconds in times.items()}
            facts["buckets"] = len(overlapping.buckets)
            facts["weights"] = updater.flat.weights.numel()
            for name, value in (machine() | facts).items():
                print(f"{name:24} {value}")
            write(given.out, f"overlap-{given.size}", facts)


if __name__ == "__main__":
    main()
