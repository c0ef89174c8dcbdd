"""metrics.jsonl: one line of numbers for every few updates and for every validation."""

from __future__ import annotations

import json
import time
from pathlib import Path

from torch import Tensor

from transduce.errors import UserError
from transduce.models.folder import write_file


class Metrics:
    """The file, and the mean loss and speed since its last training line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._total: Tensor | float = 0.0
        self._tokens = 0
        self._clear()

    def add(self, total: Tensor, tokens: int) -> None:
        """One more update: its loss, summed over `tokens`."""
        self._total = self._total + total
        self._tokens += tokens

    @property
    def loss(self) -> float:
        """A token; waits until a GPU has computed it."""
        return float(self._total) / max(self._tokens, 1)

    @property
    def speed(self) -> float:
        """Target tokens a second."""
        return self._tokens / max(time.monotonic() - self._since, 1e-9)

    def write(self, kind: str, step: int, seconds: float, **numbers: float | None) -> None:
        record = {"kind": kind, "step": step, "seconds": round(seconds, 2), **numbers}
        try:
            with open(self.path, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(record) + "\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}; the last checkpoint is whole") from error
        self._clear()  # also after a validation, whose time is not training time

    def forget_after(self, step: int) -> None:
        """A resumed run writes those lines again."""
        if self.path.exists():
            kept = [record for record in read(self.path) if record["step"] <= step]
            write_file(self.path, "".join(json.dumps(record) + "\n" for record in kept).encode())

    def _clear(self) -> None:
        self._total, self._tokens, self._since = 0.0, 0, time.monotonic()


def read(path: Path) -> list[dict]:
    """All records; a line that was cut short by a crash, or is not ours, is left out."""
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and {"kind", "step"} <= record.keys():
            records.append(record)
    return records
