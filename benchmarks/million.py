"""A million lines through `transduce translate`: memory, order, and whether a run that is killed ends as if it was not.

    python benchmarks/million.py MODEL [--lines 1000000] [--kills 3] [--beam 1]

Lines are made by the bundled grammar. One run goes through undisturbed; another is killed (SIGKILL) so often, at random
moments, and continued by --resume. Writes JSON to benchmarks/results.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import write

from transduce.bundled.sentences import sentence
from transduce.model import Model


def run(command: list[str], most: float | None) -> tuple[int, float, int]:
    """Exit code, seconds and the most memory (bytes) of a command that is killed after so many seconds."""
    begin, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status")
            found = [line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM")]
            peak = max([peak, *(1024 * int(line.split()[1]) for line in found)])
            if most is not None and time.perf_counter() - begin > most:
                process.kill()
            time.sleep(0.2)
    return process.returncode, time.perf_counter() - begin, peak


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        source, whole, killed = (Path(folder) / name for name in ("source", "whole", "killed"))
        lines = [sentence(rng).source for _ in range(given.lines)]
        source.write_text("".join(f"{line}\n" for line in lines))
        base = [sys.executable, "-m", "transduce", "translate", str(given.model), str(source), "--beam"]
        base += [str(given.beam), "--no-split", "--output"]
        memory, seconds = [], 0.0
        for part in (given.lines // 10, given.lines):  # a tenth first: memory must not grow with the file
            few = Path(folder) / "few"
            few.write_text("".join(f"{line}\n" for line in lines[:part]))
            command = [str(few) if word == str(source) else word for word in base]
            code, seconds, peak = run([*command, str(whole), "--force"], None)
            assert code == 0, code
            memory.append(peak)
            print(f"{part:,} lines: {seconds:.0f} s, {peak / 1e6:.0f} MB", file=sys.stderr, flush=True)
        moments = []
        for _ in range(given.kills):
            code, took, _ = run([*base, str(killed), "--resume"], rng.uniform(0.1, 0.25) * seconds)
            assert code == -9, "it was not killed"
            moments.append(round(took, 1))
            print(f"killed after {took:.0f} s: exit code {code}", file=sys.stderr, flush=True)
        code, _, _ = run([*base, str(killed), "--resume"], None)
        same = sha256(killed) == sha256(whole)
        written = whole.read_text().splitlines()
        model = Model.load(given.model, split=False, beam=given.beam)
        sample = rng.sample(range(given.lines), 500)
        in_order = sum(model.translate(lines[i]).text == written[i] for i in sample)
        facts = {
            "lines": given.lines,
            "seconds": round(seconds),
            "lines_per_second": round(given.lines / seconds),
            "megabytes": dict(zip(["a tenth", "all"], [round(peak / 1e6) for peak in memory], strict=True)),
            "killed_after_seconds": moments,
            "same_bytes": same,
            "lines_written": len(written),
            "same_alone": f"{in_order} of {len(sample)}",
        }
    print(facts, file=sys.stderr)
    write(given.output, "million", facts)


if __name__ == "__main__":
    main()
