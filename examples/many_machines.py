"""Translate a large file with Ray, on all machines of a cluster: streamed from file to file, lines in order.

    python examples/many_machines.py runs/mine big.de big.en --actors 8 --gpus 1

Every actor loads the model from a folder that all machines can read. Lines go out in chunks, two for each actor on
their way at a time, so that memory stays as it is however long the file. An actor that dies is started again and its
chunk repeated. The output appears when all of it is there.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator

import ray

import transduce

ON_THE_WAY = 2  # chunks for each actor


@ray.remote(max_restarts=3, max_task_retries=3)
class Actor:
    """A model, wherever Ray puts it."""

    def __init__(self, model: str) -> None:
        self.model = transduce.load(model)

    def translate(self, lines: list[str]) -> list[str]:
        return [found.text for found in self.model.translate(lines)]


def translations(model: str, lines: Iterable[str], actors: int, chunk: int, cpus: float, gpus: float) -> Iterator[str]:
    """One translation a line, in order."""
    everybody = [Actor.options(num_cpus=cpus, num_gpus=gpus).remote(model) for _ in range(actors)]
    on_the_way: deque = deque()
    remaining, turns = iter(lines), itertools.cycle(everybody)
    while some := list(itertools.islice(remaining, chunk)):
        on_the_way.append(next(turns).translate.remote(some))
        if len(on_the_way) >= ON_THE_WAY * actors:
            yield from ray.get(on_the_way.popleft())
    for chunk_of_texts in on_the_way:
        yield from ray.get(chunk_of_texts)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--chunk", type=int, default=4096, help="lines that an actor is given at once")
    parser.add_argument("--cpus", type=float, default=1, help="of an actor")
    parser.add_argument("--gpus", type=float, default=0, help="of an actor")
    given = parser.parse_args(arguments)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    begin, count, part = time.perf_counter(), 0, f"{given.target}.part"
    with open(given.source, encoding="utf-8", newline="\n") as source, open(part, "w", encoding="utf-8") as target:
        lines = (line.rstrip("\r\n") for line in source)
        for text in translations(given.model, lines, given.actors, given.chunk, given.cpus, given.gpus):
            target.write(f"{text}\n")
            count += 1
    os.replace(part, given.target)
    seconds = time.perf_counter() - begin
    print(f"{count:,} lines, {given.actors} actors: {seconds:.1f} s, {count / seconds:,.0f} lines/s")


if __name__ == "__main__":
    main()
