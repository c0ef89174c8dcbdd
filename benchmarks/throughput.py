"""Who trains fastest? Ours, HF MarianMTModel and torch.nn.Transformer side by side, in turns.

    python benchmarks/throughput.py [--size base] [--device cuda] [--rounds 5] [--out benchmarks/results]

Prints target tokens a second (median of the rounds), the ratio of ours to each (with the lowest and highest of the
rounds), the share of the measured matrix rate, and peak memory; writes the same as JSON.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path

import torch
from common import as_facts, build, machine, matrix_rate, race, write
from systems import SIZES, SYSTEMS


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--size", default="base", choices=SIZES)
    words.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    words.add_argument("--tokens", type=int, help="slots of a batch on each side")
    words.add_argument("--length", type=float, help="mean tokens of a sentence")
    words.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--seconds", type=float, default=2.0, help="of each system in each round")
    words.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = words.parse_args()
    size = SIZES[given.size]
    changes = {key: getattr(given, key) for key in ("tokens", "length") if getattr(given, key) is not None}
    size = replace(size, **changes)
    systems = [build(name, lambda name=name: SYSTEMS[name](size, given.device)) for name in given.systems]
    race(systems, given.rounds, given.seconds)
    limit = matrix_rate() if given.device == "cuda" else None
    first = systems[0]
    print(" · ".join(f"{key} {value}" for key, value in machine().items()))
    print(f"{given.size}: {asdict(size)}")
    print(f"{'system':32} {'tokens/s':>10} {'ours over it':>22} {'of the limit':>13} {'peak memory':>12}")
    for system in systems:
        middle, low, high = first.ratio(system)
        share = f"{system.speed * size.flops() / limit:.1%}" if limit else "-"
        memory = f"{system.memory / 2**30:.2f} GB" if system.memory else "-"
        print(f"{system.name:32} {system.speed:10,.0f} {middle:8.2f} ({low:.2f} - {high:.2f}) {share:>13} {memory:>12}")
    if limit:
        print(f"measured matrix rate: {limit / 1e12:.0f} TFLOP/s")
    facts = {"size": asdict(size), "limit": limit, "systems": [as_facts(system) for system in systems]}
    write(given.out, f"throughput-{given.size}-{given.device}", facts)


if __name__ == "__main__":
    main()
