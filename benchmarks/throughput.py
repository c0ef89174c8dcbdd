"""Who trains fastest? Ours, HF MarianMTModel and torch.nn.Transformer side by side, in turns.

    python benchmarks/throughput.py --sizes base big --scaling --profile    on a GPU
    python benchmarks/throughput.py --sizes tiny --device cpu               on a CPU

Each system is a process of its own; all are built at once and then timed one after the other, in several rounds that
begin with another one each. Prints target tokens a second (median of the rounds), the ratio of ours to each (with the
lowest and highest of the rounds), the share of the measured matrix rate, and peak memory. With --scaling also ours from
2 to 200 million weights, from 8 to 128 tokens a sentence, and by size of batch. Writes JSON and pictures to --out.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pictures
import torch
from common import Worker, machine, matrix_rate, race, write
from systems import SIZES, SYSTEMS, Size, make

STRONGEST = ("transduce", "torch.nn.Transformer, compiled")  # raced in sizes after the first
LENGTHS = (8, 16, 32, 64)
BATCHES = (3_200, 6_400, 12_800, 51_200)
KINDS = {  # of kernels, by a part of their names, the first that fits
    "matrix products": ("nvjet", "gemm", "cutlass", "splitKreduce", "cublas"),
    "our kernels": ("_forward", "_backward", "_relu_gradient", "_sum_of_"),
    "softmax of the loss": ("logsumexp", "exp_", "softmax"),
    "optimizer, gradient sums": ("multi_tensor", "FusedOptim", "NormTwoOps", "fused_adam"),
    "casts of weights": ("_to_copy",),
    "other element by element": ("triton_", "elementwise", "reduce", "index"),
}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--sizes", nargs="*", default=["base"], choices=SIZES)
    words.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    words.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--seconds", type=float, default=2.0, help="of each system in each round")
    words.add_argument("--scaling", action="store_true", help="also ours over sizes and lengths")
    words.add_argument("--profile", action="store_true", help="also where the time of ours goes")
    words.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = words.parse_args()

    entered = {}
    for number, size in enumerate(given.sizes):
        systems = given.systems if number == 0 else [name for name in given.systems if name in STRONGEST]
        entered[size] = [Worker(name, make, name, SIZES[size], given.device) for name in systems]
    others = _start_others(given.device) if given.scaling else {}
    ready = {size: [worker for worker in workers if worker.ready()] for size, workers in entered.items()}
    ready = {size: workers for size, workers in ready.items() if workers and workers[0].name == given.systems[0]}
    scaling: dict[Any, Worker] = {size: workers[0] for size, workers in ready.items()} if given.scaling else {}
    scaling |= {place: worker for place, worker in others.items() if worker.ready()}
    limit = matrix_rate() if given.device == "cuda" else None
    print(" · ".join(f"{key} {value}" for key, value in machine().items()))
    if limit:
        print(f"measured matrix rate: {limit / 1e12:.0f} TFLOP/s")
    for name, workers in ready.items():
        race(workers, given.rounds, given.seconds)
        _report(name, workers, limit, given)
        if given.profile and given.device == "cuda":
            _profile(name, workers[0], given.out)
    if scaling:
        _scale(scaling, limit, given.out)


def _report(name: str, workers: list[Worker], limit: float | None, given: argparse.Namespace) -> None:
    size = SIZES[name]
    print(f"\n{name}: {size.weights / 1e6:.0f} million weights, {asdict(size)}")
    print(f"{'system':32} {'tokens/s':>10} {'ours over it':>22} {'of the limit':>13} {'peak memory':>12}")
    for worker in workers:
        middle, low, high = workers[0].ratio(worker)
        share = f"{worker.speed * size.flops() / limit:.1%}" if limit else "-"
        memory = f"{worker.memory / 2**30:.2f} GB" if worker.memory else "-"
        ratio = f"{middle:.2f} ({low:.2f} - {high:.2f})"
        print(f"{worker.name:32} {worker.speed:10,.0f} {ratio:>22} {share:>13} {memory:>12}", flush=True)
    facts = {"size": asdict(size), "limit": limit, "systems": [worker.facts() for worker in workers]}
    write(given.out, f"throughput-{name}-{given.device}", facts)
    pictures.throughput(given.out / f"throughput-{name}-{given.device}.json")


def _profile(name: str, worker: Worker, out: Path) -> None:
    """Where the time of an update goes."""
    kernels: dict[str, tuple[float, float]] = worker.ask("profile", 3)
    kinds: dict[str, list[float]] = {}
    for kernel, (milliseconds, launches) in kernels.items():
        kind = next((kind for kind, parts in KINDS.items() if any(part in kernel for part in parts)), "other")
        entry = kinds.setdefault(kind, [0.0, 0.0])
        entry[0] += milliseconds
        entry[1] += launches
    total = sum(milliseconds for milliseconds, _ in kinds.values())
    print(f"\nwhere the {total:.1f} ms of an update go ({name})")
    for kind, (milliseconds, launches) in sorted(kinds.items(), key=lambda item: -item[1][0]):
        print(f"{kind:44} {milliseconds:7.2f} ms {milliseconds / total:6.1%} {launches:6.0f} launches")
    top = sorted(kernels.items(), key=lambda item: -item[1][0])[:60]
    write(out, f"profile-{name}", {"kinds": kinds, "kernels": dict(top)})


def _start_others(device: str) -> dict[Any, Worker]:
    """Ours in smaller sizes; in the base size for long sentences, whose rows are longer; and in other batches."""
    base = SIZES["base"]
    sizes: dict[Any, Size] = {name: SIZES[name] for name in ("2M", "10M")}
    sizes["128 tokens"] = replace(base, length=128, longest=255)
    sizes |= {f"batch {tokens}": replace(base, tokens=tokens) for tokens in BATCHES}
    return {name: Worker(f"transduce, {name}", make, "transduce", size, device) for name, size in sizes.items()}


def _scale(workers: dict[Any, Worker], limit: float | None, out: Path) -> None:
    """Speed by size; of the base size by length and by batch."""
    facts: dict[str, list] = {"sizes": [], "lengths": [], "batches": []}

    def measure(kind: str, worker: Worker, size: Size) -> None:
        speed = max(worker.run(1.0) for _ in range(3))
        entry = {"weights": size.weights, "length": size.length, "batch": size.tokens, "flops": size.flops()}
        facts[kind].append({**entry, "speed": speed, "memory": worker.memory})
        what = f"{size.weights / 1e6:.0f} million weights, {size.length:g} tokens, batches of {size.tokens:,}"
        print(f"{what:56} {speed:12,.0f} {speed * size.flops() / 1e12:9.0f}", flush=True)

    print(f"\n{'':56} {'tokens/s':>12} {'TFLOP/s':>9}")
    base = SIZES["base"]
    for name, worker in workers.items():
        if name in SIZES:
            measure("sizes", worker, SIZES[name])
        elif name == "128 tokens":
            measure("lengths", worker, replace(base, length=128))
        else:
            measure("batches", worker, replace(base, tokens=int(name.split()[1])))
    if "base" in workers:
        measure("batches", workers["base"], base)
    for length in LENGTHS if "base" in workers else ():
        workers["base"].ask("length", length)
        measure("lengths", workers["base"], replace(base, length=length))
    facts["sizes"].sort(key=lambda entry: entry["weights"])
    facts["lengths"].sort(key=lambda entry: entry["length"])
    facts["batches"].sort(key=lambda entry: entry["batch"])
    write(out, "scaling", {"limit": limit, **facts})
    pictures.scaling(out / "scaling.json")


if __name__ == "__main__":
    main()
    os._exit(0)  # the workers wait for more; they end with us
