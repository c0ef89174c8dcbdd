"""metrics.jsonl: one line of numbers for every few updates and for every validation."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.errors import SettingsError, UserError
from transduce.models.folder import write_file

NEEDED = {"train": ("loss", "rate"), "valid": ("loss",)}  # by kind of line
AT_THE_END = ("averaged", "averaged_best", "finished")  # kinds of lines that only a run's end writes


class Metrics:
    """The file, and the mean loss and speed since its last training line."""

    def __init__(self, path: Path, mirror: Mirror | None = None) -> None:
        self.path = path
        self.mirror = mirror
        self._total: Tensor | float = 0.0
        self._counted: Tensor | float = 0
        self.clear()

    def add(self, total: Tensor, tokens: int, bad: Tensor) -> None:
        """One more update: its loss, summed over `tokens`; a skipped one counts for nothing."""
        self._total = self._total + torch.where(bad > 0, 0.0, total)
        self._counted = self._counted + tokens * (1 - bad)
        self._tokens += tokens

    @property
    def sums(self) -> tuple[float, int]:
        """Loss and tokens so far; waits until a GPU has computed them."""
        return float(self._total), int(self._counted)

    @property
    def loss(self) -> float | None:
        """A token; None where every update was skipped."""
        total, tokens = self.sums
        return total / tokens if tokens else None

    @property
    def speed(self) -> float:
        """Target tokens a second."""
        return self._tokens / max(time.monotonic() - self._since, 1e-9)

    def write(self, kind: str, step: int, seconds: float, **facts: Any) -> None:
        record = {"kind": kind, "step": step, "seconds": round(seconds, 2), **facts}
        try:
            with open(self.path, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(record) + "\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}; the last checkpoint is whole") from error
        if self.mirror is not None:
            self.mirror.add(record)

    def clear(self, total: float = 0.0, tokens: int = 0) -> None:
        """Begin the next line; or go on with what was summed for it before."""
        self._total, self._counted = total, tokens
        self._tokens, self._since = 0, time.monotonic()

    def flush(self) -> None:
        """Onto the disk, before a checkpoint counts on it."""
        with contextlib.suppress(OSError), open(self.path, "rb") as stream:
            os.fsync(stream.fileno())

    def forget_after(self, step: int, validated: int) -> None:
        """A resumed run writes those lines again; also a validation that its checkpoint does not know of, and what a
        run says when it ends."""

        def stays(record: dict[str, Any]) -> bool:
            last = validated if record["kind"] == "valid" else step - 1 if record["kind"] in AT_THE_END else step
            return record["step"] <= last

        if self.path.exists():
            kept = [record for record in read(self.path) if stays(record)]
            write_file(self.path, "".join(json.dumps(record) + "\n" for record in kept).encode())


class Mirror:
    """The same numbers for TensorBoard, in RUN/tensorboard."""

    def __init__(self, folder: Path, step: int) -> None:
        """What an earlier session wrote after `step` is hidden."""
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise SettingsError(
                "training.tensorboard=true needs TensorBoard: pip install 'transduce[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def add(self, record: dict[str, Any]) -> None:
        for name, value in record.items():
            if name not in ("kind", "step") and isinstance(value, int | float):
                self._writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])
        self._writer.flush()


def read(path: Path) -> list[dict]:
    """All records; a line that was cut short by a crash, or is not ours, is left out."""
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and _is_ours(record):
            records.append(record)
    return records


def _is_ours(record: dict) -> bool:
    """With the numbers that readers count on; words stand in `kind`, `reason` and `chosen` only."""
    needed = {"step", "seconds", *NEEDED.get(str(record.get("kind")), ())}
    others = {name: value for name, value in record.items() if name not in ("kind", "reason", "chosen", "lines")}
    return (
        isinstance(record.get("kind"), str)
        and all(isinstance(record.get(name), int | float) and -1e18 < record[name] < 1e18 for name in needed)
        and all(value is None or isinstance(value, int | float) for value in others.values())
    )
