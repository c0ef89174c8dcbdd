"""The numbers of metrics.jsonl for TensorBoard too, in RUN/tensorboard. An extra."""

from __future__ import annotations

from pathlib import Path

from transduce.errors import SettingsError
from transduce.files.metrics import Record


class TensorBoard:
    """Writes what metrics.jsonl gets; what an earlier session wrote after `step` is hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise SettingsError(
                "training.tensorboard=true needs TensorBoard: pip install 'transduce[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def add(self, record: Record) -> None:
        for name, value in record.items():
            if name not in ("kind", "step") and isinstance(value, int | float):
                self._writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])
        self._writer.flush()
