"""Compressed files: .gz, .xz and .zst, unpacked as they are read. One that is damaged or cut short says so in the same
sentence, whichever it is. The only file that imports a zstd (Python has one from 3.14 on; before, an extra)."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from transduce.errors import DataError

KINDS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}


def bare_name(path: str | Path) -> str:
    """A file's name without the end that tells how it is packed: a.tsv of a.tsv.gz."""
    return str(path).removesuffix(ending) if (ending := Path(path).suffix) in KINDS else str(path)


def open_unpacked(path: Path) -> BinaryIO:
    """The bytes of a file as they were before it was packed; as they are, if it is not."""
    if path.suffix not in KINDS:
        return path.open("rb")
    errors: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
    if path.suffix == ".gz":
        stream: Any = gzip.open(path)  # noqa: SIM115
    elif path.suffix == ".xz":
        stream = lzma.open(path)  # noqa: SIM115
    else:
        try:
            from compression import zstd  # noqa: PLC0415
        except ImportError:
            try:
                from backports import zstd  # noqa: PLC0415  (an extra)
            except ImportError as error:
                raise DataError(
                    f"{path} needs zstd: pip install 'transduce[zstd]', or unpack it with: unzstd {path}"
                ) from error
        stream, errors = zstd.open(path), (*errors, zstd.ZstdError)
    return io.BufferedReader(_Unpacked(stream, path, errors), 1 << 16)


class _Unpacked(io.RawIOBase):
    """A stream that unpacks, whose complaints are ours."""

    def __init__(self, stream: Any, path: Path, errors: tuple[type[Exception], ...]) -> None:
        self._stream, self._path, self._errors = stream, path, errors

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._stream.read(len(buffer))
        except self._errors as error:
            raise DataError(f"{self._path} is not a complete {KINDS[self._path.suffix]} file: {error}") from error
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._stream.close()
        super().close()
