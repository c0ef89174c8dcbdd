"""Does memory grow with the input? Translates a million short lines and trains on 20 million tokens, watching RSS.

    python benchmarks/memory.py [--lines 1000000] [--tokens 20000000] [--steps 200]

Prints, for each, the resident memory once the work is under way and its highest value after that. Linux only.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TINY = ["--model.layers=1", "--model.d_model=32", "--model.d_ff=32", "--model.heads=2", "--text.vocabulary=500"]


def resident(pid: int) -> float:
    """Megabytes of the process and its children."""
    total = 0.0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            facts = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except (OSError, ValueError):
            continue
        if pid in (int(status.parent.name), int(facts["PPid"])):
            total += float(facts.get("VmRSS", "0 kB").split()[0]) / 1024
    return total


def watch(words: list[str], settled: Path, log: Path) -> dict[str, float]:
    """Run a command; memory counts from when `settled` has content."""
    with open(log, "w", encoding="utf-8") as stream:
        process = subprocess.Popen([sys.executable, "-m", "transduce", *words], stderr=stream, stdout=stream)
        readings, before, started = [], [], time.monotonic()
        while process.poll() is None:
            under_way = settled.exists() and settled.stat().st_size > 0
            (readings if under_way else before).append(resident(process.pid))
            time.sleep(0.25)
    if process.returncode:
        sys.exit(log.read_text(encoding="utf-8"))
    first, peak = readings[0], max(readings)
    preparing = max(before, default=0.0)
    return {
        "preparing_peak_mb": round(preparing),
        "start_mb": round(first),
        "peak_mb": round(peak),
        "growth_mb": round(peak - first),
        "seconds": round(time.monotonic() - started),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="transduce-memory-"))
    result: dict[str, object] = {"python": sys.version.split()[0]}
    try:
        model = str(folder / "model")
        steps = ["--training.steps=300", "--training.validate_every=300"]
        watch(["train", model, *TINY, *steps], folder / "model/metrics.jsonl", folder / "log")
        subprocess.run([sys.executable, "-m", "transduce", "corpus", str(folder / "text")], check=True)
        german = (folder / "text/train.de").read_text().splitlines()
        english = (folder / "text/train.en").read_text().splitlines()
        rng = random.Random(1)

        short = [line for line in german if len(line.split()) <= 6]
        with open(folder / "lines.de", "w", encoding="utf-8") as stream:
            stream.writelines(rng.choice(short) + "\n" for _ in range(arguments.lines))
        words = ["translate", model, str(folder / "lines.de"), "--beam", "1", "-o", str(folder / "lines.en")]
        result["translate"] = {
            "lines": arguments.lines,
            **watch(words, folder / "lines.en", folder / "log"),
            "lines_out": (folder / "lines.en").read_bytes().count(b"\n"),
        }

        with open(folder / "big.tsv", "w", encoding="utf-8") as stream:
            written = 0
            while written < arguments.tokens:
                picked = rng.choices(range(len(german)), k=3)
                line = " ".join(german[i] for i in picked), " ".join(english[i] for i in picked)
                stream.write("\t".join(line) + "\n")
                written += len(line[0].split()) + len(line[1].split())
        run = folder / "big"
        words = ["train", str(run), "--source", str(folder / "big.tsv"), *TINY, f"--training.steps={arguments.steps}"]
        words += ["--training.log_every=10", "--training.validate_every=100"]
        numbers = watch(words, run / "metrics.jsonl", folder / "log")
        kept = [line for line in (folder / "log").read_text().splitlines() if "pairs kept" in line]
        result["train"] = {"store": kept[0].split(": ", 1)[1], **numbers}
    finally:
        shutil.rmtree(folder)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
