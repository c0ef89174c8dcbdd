"""Corpora larger than memory: millions of generated lines of 16 bytes to 2 kB are prepared, shuffled and trained on.

    python benchmarks/corpora.py --lines 5000000 --steps 200

Prints the highest memory of all processes together (shared pages counted once, as Linux tells it in `Pss`), how many
pairs a second are tokenized, and beside it what `spm_encode`, SentencePiece's own program, takes for the same text with
the same model, where it is installed (Debian: sentencepiece). Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from common import machine, write

from transduce.bundled.corpus import bundled

SHORTEST, LONGEST = 16, 2000  # bytes
SMALL = """--preset tiny --device cpu --model.layers 1 --model.d_model 32 --model.d_ff 32 --model.heads 2
  --text.vocabulary 4000 --data.max_tokens 1024 --model.max_positions 1024 --batch.tokens 4096
  --training.log_every 10 --training.validate_every 1000 --training.bleu_lines 10"""


def generate(path: Path, lines: int, text: str, seed: int) -> int:
    """Stretches of a text, their lengths even on a logarithmic scale; gives the bytes."""
    chance, written = random.Random(seed), 0
    span = LONGEST / SHORTEST
    with open(path, "w", encoding="utf-8") as stream:
        for _ in range(lines):
            length = int(SHORTEST * span ** chance.random())
            begin = chance.randrange(len(text) - LONGEST)
            stream.write(text[begin : begin + length].replace("\n", " ") + "\n")
            written += length + 1
    return written


def memory(parent: int) -> float:
    """Megabytes of a process and all below it, shared pages once."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    total, waiting = 0.0, [parent]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        try:
            total += (
                int(re.search(r"Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8"))[1]) / 1024
            )  # type: ignore[index]
        except (OSError, TypeError):
            continue
    return total


def train(here: Path, steps: int) -> dict[str, float]:
    """Memory at its highest, and seconds, of each stage: told apart by what the command says."""
    words = [sys.executable, "-m", "transduce", "train", str(here / "run"), *SMALL.split()]
    words += ["--source", str(here / "text.de"), "--target", str(here / "text.en"), "--training.steps", str(steps)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    stage, began, found = "counting", time.monotonic(), dict[str, float]()
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(process.stderr or []), daemon=True).start()
    seen = 0
    while process.poll() is None:
        time.sleep(0.2)
        found[f"{stage}, peak MB"] = max(found.get(f"{stage}, peak MB", 0.0), round(memory(process.pid)))
        for line in said[seen:]:
            seen += 1
            new = {"learning the vocabulary": "vocabulary", "tokenize": "tokenizing", "training stops": "training"}
            name = next((name for begin, name in new.items() if line.startswith(begin)), stage)
            if name != stage:
                found[f"{stage}, seconds"] = round(time.monotonic() - began, 1)
                stage, began = name, time.monotonic()
    found[f"{stage}, seconds"] = round(time.monotonic() - began, 1)
    if process.returncode:
        sys.exit("".join(said))
    print("".join(said[-6:]), file=sys.stderr)
    return found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--lines", type=int, default=5_000_000)
    words.add_argument("--steps", type=int, default=200)
    words.add_argument("--head", type=int, default=200_000, help="lines by which speed is compared with spm_encode")
    words.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = words.parse_args()
    here = Path(tempfile.mkdtemp(prefix="transduce-corpora-"))
    try:
        made = bundled().train
        size = sum(
            generate(here / f"text.{end}", given.lines, " ".join(texts), seed)
            for seed, (end, texts) in enumerate((("de", [p.source for p in made]), ("en", [p.target for p in made])))
        )
        facts: dict[str, object] = {"lines": given.lines, "text, MB": round(size / 1e6), **train(here, given.steps)}
        for end in ("de", "en"):
            with open(here / f"text.{end}", "rb") as text, open(here / f"head.{end}", "wb") as head:
                head.writelines(itertools.islice(text, given.head))
        facts["tokenized by ours, pairs a second"] = _store_speed(here)
        facts["tokenized by spm_encode, pairs a second"] = _spm_encode(here, given.head)
    finally:
        shutil.rmtree(here)
    for name, value in (machine() | facts).items():
        print(f"{name:42} {value}")
    write(given.out, "corpora", facts)


def _store_speed(here: Path) -> int:
    """Of the store alone, which is what spm_encode does and more: filters, lengths, an index."""
    from transduce.data.build import Part, build_stores
    from transduce.data.open import open_corpus
    from transduce.data.tokenize import Job
    from transduce.settings import config_file
    from transduce.text.tokenizers import Tokenizers

    settings = config_file.read_whole(here / "run/config.yaml")
    tokenizers = Tokenizers.load(here / "run", settings.text)
    corpus = open_corpus(str(here / "head.de"), str(here / "head.en"))
    begin = time.monotonic()
    (store,) = build_stores(corpus, "", [Part(Job(tokenizers, settings.data))], here / "store")
    return round(store.counts.read / (time.monotonic() - begin))


def _spm_encode(here: Path, lines: int) -> int | None:
    if not shutil.which("spm_encode"):
        return None
    begin = time.monotonic()
    for end in ("de", "en"):
        output = ["--output_format=id", f"--output={here / 'ids'}", str(here / f"head.{end}")]
        subprocess.run(["spm_encode", f"--model={here / 'run/tokenizer.model'}", *output], check=True)
    return round(lines / (time.monotonic() - begin))


if __name__ == "__main__":
    main()
