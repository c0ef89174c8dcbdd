"""Whether two runs are the same run; shared by test_survival.py and chaos.py."""

from __future__ import annotations

import json
from pathlib import Path

from transduce.files import metrics

OF_THE_MOMENT = ("seconds", "tokens_per_second", "memory")  # in metrics.jsonl: times, and what the machine was like


def contents(run: Path) -> dict[str, bytes]:
    """Everything that training left, but for times and pictures, in a form that can be compared."""
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.suffix == ".safetensors":
            found[name] = path.read_bytes()
        elif path.name == "state.json":
            found[name] = json.dumps({**json.loads(path.read_text()), "seconds": 0, "validation_seconds": 0}).encode()
    records = metrics.read(run / "metrics.jsonl")
    for record in records:
        for key in OF_THE_MOMENT:
            record.pop(key, None)
    found["metrics.jsonl"] = "\n".join(map(json.dumps, records)).encode()
    return found


def differences(one: Path, two: Path) -> list[str]:
    """Names of files that only one has, or that differ."""
    a, b = contents(one), contents(two)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
