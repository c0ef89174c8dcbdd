"""CTranslate2's model.bin: numbers behind their names, types and shapes. It is read without its library, and nothing
that it says of sizes is believed before it is compared with the size of the file."""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.files.byte_reader import ByteReader
from transduce.files.reading import open_regular, problem_with

DTYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)  # by their numbers there
VERSIONS = (2, 6)  # of the format, first and last that are known; from 3 on with aliases, from 4 on with types
MANY = 100_000  # variables
BY_WIDTH = {4: torch.float32, 2: torch.int16, 1: torch.int8}  # types where there are no numbers for them yet


class Binary(NamedTuple):
    """What a file holds. Aliases are entered under both names."""

    version: int  # of the format
    kind: str
    revision: int  # of that kind
    variables: dict[str, Tensor]


def read_binary(path: Path) -> Binary:
    if problem := problem_with(path):
        raise ModelError(f"{path} {problem}")
    with open_regular(path) as stream:
        try:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _read(_Reader(content))
        except (ValueError, struct.error, UnicodeDecodeError, IndexError, RuntimeError) as error:
            raise ModelError(f"{path} is no model of CTranslate2, or damaged: {str(error)[:100]}") from error


class _Reader(ByteReader):
    """Numbers and texts, one after the other."""

    def number(self, form: str) -> int:
        return self.numbers(form)[0]

    def text(self) -> str:
        return self.bytes(self.number("H")).rstrip(b"\0").decode("utf-8")


def _read(reader: _Reader) -> Binary:
    version = reader.number("I")
    if not VERSIONS[0] <= version <= VERSIONS[1]:
        raise ValueError(f"version {version} of the format is not known")
    kind, revision, count = reader.text(), reader.number("I"), reader.number("I")
    if count > MANY:
        raise ValueError(f"it counts {count:,} variables")
    variables: dict[str, Tensor] = {}
    for _ in range(count):
        name = reader.text()
        if name in variables:
            raise ValueError(f"it has {name[:60]} twice")
        variables[name] = _variable(reader, version)
    for _ in range(reader.number("I") if version >= 3 else 0):
        alias, name = reader.text(), reader.text()
        if name not in variables or alias in variables:
            raise ValueError(f"{alias[:60]} stands for {name[:60]}, which cannot be")
        variables[alias] = variables[name]
        if f"{name}_scale" in variables:
            variables.setdefault(f"{alias}_scale", variables[f"{name}_scale"])
    return Binary(version, kind, revision, variables)


def _variable(reader: _Reader, version: int) -> Tensor:
    shape = tuple(reader.number("I") for _ in range(reader.number("B")))
    if version >= 4:
        number = reader.number("B")
        if number >= len(DTYPES):
            raise ValueError(f"it has numbers of an unknown type, {number}")
        dtype, size = DTYPES[number], reader.number("I")
    else:
        width = reader.number("B")
        if width not in BY_WIDTH:
            raise ValueError(f"it has numbers of {width} bytes")
        dtype, size = BY_WIDTH[width], reader.number("I") * width
    if math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{size:,} bytes cannot be numbers of the shape {shape}")
    held = bytearray(reader.bytes(size))  # a copy that outlives the file
    return torch.frombuffer(held, dtype=dtype).view(shape) if size else torch.zeros(shape, dtype=dtype)
