"""Parquet: columns by name, a batch of rows at a time. The only file that imports pyarrow, an extra."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.data.corpus import Pair
from transduce.data.one_file import Two
from transduce.errors import DataError

ROWS = 10_000  # in memory at a time, and the row group that they are of


@dataclass(frozen=True)
class ParquetFile:
    """Two text columns of a .parquet; one inside another is written with a dot, such as translation.de."""

    path: str
    columns: Two | None = None

    @property
    def name(self) -> str:
        return self.path

    def __iter__(self) -> Iterator[Pair]:
        try:
            import pyarrow as arrow  # noqa: PLC0415  (an extra)
            import pyarrow.parquet as parquet  # noqa: PLC0415
        except ImportError as error:
            raise DataError(f"{self.path} needs pyarrow: pip install 'transduce[parquet]'") from error
        if not Path(self.path).is_file():
            raise DataError(f"there is no file {self.path}")
        line = 0
        try:
            with parquet.ParquetFile(self.path) as file:
                chosen = self._choose(file.schema)
                for batch in file.iter_batches(ROWS, columns=list(chosen), use_threads=False):
                    flat = _flatten(arrow.Table.from_batches([batch]))
                    for source, target in zip(*(flat.column(name).to_pylist() for name in chosen), strict=True):
                        line += 1
                        yield Pair(self._text(source, line), self._text(target, line), line)
        except (arrow.ArrowException, OSError) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise DataError(f"{self.path} is not a complete Parquet file: {reason}") from error

    def _text(self, value: Any, line: int) -> str:
        """Some programs do not say of their bytes that they are text."""
        try:
            text = value.decode() if isinstance(value, bytes) else value or ""
        except UnicodeDecodeError as error:
            raise DataError(f"{self.path}, row {line:,}: a chosen column holds bytes that are no UTF-8 text") from error
        if not isinstance(text, str):
            raise DataError(f"{self.path}, row {line:,}: a chosen column holds {type(value).__name__}, and no text")
        return text

    def _choose(self, schema: Any) -> Two:
        """The columns that were named; otherwise source and target, or the only two that hold text."""
        columns = [schema.column(i) for i in range(len(schema))]
        flat = [column for column in columns if not column.max_repetition_level]  # a list holds several texts a row
        texts = [column.path for column in flat if column.physical_type == "BYTE_ARRAY"]
        chosen = self.columns or (("source", "target") if {"source", "target"} <= set(texts) else tuple(texts))
        if len(chosen) != 2 or any(texts.count(name) != 1 for name in chosen):
            named = f"no text in {' and '.join(chosen)}" if self.columns else "not two columns of text"
            raise DataError(
                f"{self.path} has {named}; choose two with --columns from: {', '.join(texts) or 'none that hold text'}"
            )
        return chosen[0], chosen[1]


def _flatten(table: Any) -> Any:
    """Columns inside of others as columns of their own, with the dotted name."""
    while any(str(kind).startswith("struct") for kind in table.schema.types):
        table = table.flatten()
    return table
