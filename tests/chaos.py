"""kill -9 at random moments, half of them aimed at the writing of a checkpoint: `make chaos`.

    python tests/chaos.py --kills 50

A small run is trained once undisturbed. Then the same command is started, killed, and started again, until it ends; its
files must then be those of the undisturbed run, byte for byte (metrics but for times). This is repeated until there were
enough kills. Each kill is a line: when it came, what was being written, and where the run stood.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from survival import differences

EVERY = 12  # updates between validations
COMMAND = f"""--source text.de --target text.en --preset tiny --device cpu
  --model.layers 1 --model.d_model 64 --model.d_ff 128 --model.heads 2 --model.dropout 0.1
  --text.vocabulary 400 --text.sampling 0.1 --text.variants 3 --batch.tokens 512 --batch.accumulate 2
  --training.validate_every {EVERY} --training.log_every 5 --training.bleu_lines 4
  --training.ema 0.99 --training.average 3 --training.keep_best 2""".split()


def start(run: Path, steps: int) -> subprocess.Popen[bytes]:
    log = open(run.parent / f"{run.name}.log", "ab")  # noqa: SIM115  (the process keeps it)
    command = [sys.executable, "-m", "transduce", "train", run.name, *COMMAND, "--training.steps", str(steps)]
    return subprocess.Popen(command, cwd=run.parent, stdout=log, stderr=log, start_new_session=True)


def writing(run: Path) -> set[Path]:
    """What belongs to a checkpoint and is being written now: its folder, the best weights, weights for averaging."""
    return {*run.glob("training/*.part"), *run.glob("training/weights/*.part"), *run.glob("weights/*.part")}


def wait_and_kill(process: subprocess.Popen[bytes], run: Path, aim: bool, chance: random.Random) -> str | None:
    """Kill it at some moment; gives what was going on, or None where it ended before that."""
    begin, before = time.monotonic(), time.time()
    if aim:  # at one of the next few things that are written, somewhere in its middle
        left = writing(run)  # by a process that was killed before
        for _ in range(chance.randint(1, 5)):
            while not (now := writing(run) - left):
                if process.poll() is not None:
                    return None
            last = time.monotonic() + chance.uniform(0, 0.004)
            while time.monotonic() < last:
                pass
            left = now
    else:
        try:
            process.wait(chance.uniform(1.5, 9.0))
            return None
        except subprocess.TimeoutExpired:
            pass
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    fresh = [path for path in writing(run) if path.stat().st_mtime >= before]
    names = ", ".join(sorted(str(path.relative_to(run)) for path in fresh)) or "nothing"
    return f"after {time.monotonic() - begin:5.2f} s, {'aimed' if aim else 'blind'}, left half-written: {names}"


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--kills", type=int, default=50)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--steps", type=int, default=240)
    given = words.parse_args()
    chance = random.Random(given.seed)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        from transduce.bundled.corpus import bundled

        pairs = bundled(train=1500, dev=0, test=0).train
        (here / "text.de").write_text("".join(f"{pair.source}\n" for pair in pairs), encoding="utf-8")
        (here / "text.en").write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")
        if start(here / "straight", given.steps).wait() != 0:
            print((here / "straight.log").read_text()[-2000:])
            return 1
        kills = runs = 0
        while kills < given.kills:
            runs += 1
            run = here / f"run-{runs}"
            while True:
                process = start(run, given.steps)
                killed = wait_and_kill(process, run, kills % 2 == 0, chance) if kills < given.kills else None
                if killed is None and process.wait() != 0:
                    print((here / f"{run.name}.log").read_text()[-2000:])
                    return 1
                if killed is None:
                    break
                kills += 1
                print(f"kill {kills:3}: run {runs}, {killed}; checkpoints: {_checkpoints(run)}", flush=True)
            wrong = differences(here / "straight", run)
            print(
                f"run {runs} has ended after {kills} kills so far: {wrong or 'equal to the undisturbed run'}",
                flush=True,
            )
            if wrong:
                return 1
            shutil.rmtree(run)
        print(f"{kills} kills in {runs} runs, every one of which ended byte for byte like the undisturbed one")
    return 0


def _checkpoints(run: Path) -> str:
    found = sorted((run / "training").glob("step-*/state.json"), key=lambda path: path.stat().st_mtime)
    return ", ".join(str(json.loads(path.read_text())["step"]) for path in found) or "none yet"


if __name__ == "__main__":
    sys.exit(main())
