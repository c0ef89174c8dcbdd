"""Tensors from a file of torch.save, without unpickling it.

A pickle is a program, and Python's unpickler runs it. Here its instructions are read (`pickletools` lists them and runs
nothing), and only those that a dictionary of tensors needs are followed, by `_do` below: build a list, a tuple, a
dictionary, name a storage. The names that a pickle may import stand in ALLOWED, and none of them is ever imported: they
describe a tensor. Whatever else a file asks for, it is refused.

Both forms are read: a zip archive, as torch.save writes since 1.6, and the one before, in which most of OPUS-MT lies.
"""

from __future__ import annotations

import functools
import io
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pickletools import genops
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.files.reading import problem_with

DTYPES = {
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
    "ByteStorage": torch.uint8,
}
ALLOWED = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "argparse Namespace",
    *(f"torch {name}" for name in DTYPES),
}
ASIDE = {  # of numpy, whose numbers lie beside a model in a checkpoint: they are not looked at
    *(f"{core}.multiarray {name}" for core in ("numpy.core", "numpy._core") for name in ("_reconstruct", "scalar")),
    *("numpy ndarray", "numpy dtype", "_codecs encode"),
}
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # with which the older form begins
LARGEST_PICKLE = 64_000_000  # bytes of instructions
MANY = 100_000  # tensors
MOST_AXES, HIGHEST = 16, 2**63  # of a tensor; and below it every number of its shape
SHARED, SPARE = 8, 100_000_000  # so many names may one tensor have; bytes that are never too many


class Storage(NamedTuple):
    """Where the numbers of tensors lie, and of which type they are."""

    dtype: torch.dtype
    key: str
    size: int


class Described(NamedTuple):
    """A tensor as a pickle describes it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Name(NamedTuple):
    """Something that a pickle would import."""

    name: str


class Namespace(dict[str, Any]):
    """What a program was told, as argparse keeps it: names with values."""


_MARK = object()
# What a program that makes no sense can lead to.
BROKEN: tuple[type[Exception], ...] = (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError)
BROKEN += (OverflowError, NotImplementedError, MemoryError, RuntimeError, zipfile.BadZipFile)


def read_pickled(path: Path, part: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file by name; `part`: of a checkpoint with much beside them, where they are."""
    found, numbers = _open(path)
    if part is not None and not isinstance(found.get(part), dict):
        raise ModelError(f"{path} holds no {part}")
    try:
        described = _names(found if part is None else found[part])
        odd = [name for name, value in described.items() if not isinstance(value, Described)]
        if odd or not described:
            named = ", ".join(name[:80] for name in odd[:3]) or "nothing at all"
            raise ModelError(f"{path} holds more than tensors by name: {named}")
        claimed = sum(math.prod(one.shape) * one.storage.dtype.itemsize for one in described.values())
        if claimed > SHARED * path.stat().st_size + SPARE:
            raise ValueError(f"its tensors would have {claimed:,} bytes")
        numbers = functools.lru_cache(maxsize=1)(numbers)  # each storage is read once, whoever shares it
        by_storage = sorted(described.items(), key=lambda one: one[1].storage.key)
        tensors = {name: _tensor(value, numbers, path) for name, value in by_storage}
    except BROKEN as error:
        raise _unsafe(path, error) from error
    broken = next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
    if broken is not None:
        raise ModelError(f"{path} holds numbers that are infinite or none (NaN), in {str(broken)[:80]}")
    return {name: tensors[name] for name in described}


def plain_part(path: Path, *names: str) -> Mapping[str, Any]:
    """The first of these parts of a checkpoint that is there: texts and numbers by name, and such lists of them."""
    found = _open(path)[0]
    for name in names:
        if isinstance(part := found.get(name), dict):
            inner = {key: _scalars(value) for key, value in part.items() if isinstance(value, dict)}
            return {**_scalars(part), **inner}
    raise ModelError(f"{path} holds no {' or '.join(names)}")


def _scalars(part: Mapping[Any, Any]) -> dict[str, Any]:
    """What cannot hold anything else."""
    plain = (str, int, float, bool, type(None))
    return {key: value for key, value in part.items() if isinstance(key, str) and isinstance(value, plain)}


def _open(path: Path) -> tuple[Mapping[str, Any], Callable[[Storage], bytes]]:
    """What a file describes, and where its numbers are."""
    if problem := problem_with(path):
        raise ModelError(f"{path} {problem}")
    try:
        return _from_zip(path) if zipfile.is_zipfile(path) else _from_stream(path)
    except BROKEN as error:
        raise _unsafe(path, error) from error


def _unsafe(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path} is no file of tensors that can be read safely: {str(error)[:150]}")


def _from_zip(path: Path) -> tuple[Mapping[str, Any], Callable[[Storage], bytes]]:
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename: info for info in archive.infolist()}
        packed = [name for name, info in entries.items() if info.compress_type != zipfile.ZIP_STORED]
        if packed:
            raise ValueError(f"{packed[0][:60]} is compressed, which torch.save never does")
        name = next((name for name in entries if name.endswith("/data.pkl")), "")
        if not name or entries[name].file_size > LARGEST_PICKLE:
            raise ValueError("it has no data.pkl of a usual size")
        top = _follow(archive.read(name))[0]

    def numbers(storage: Storage) -> bytes:
        with zipfile.ZipFile(path) as archive:
            return archive.read(f"{name.removesuffix('data.pkl')}data/{storage.key}")

    return _names(top), numbers


def _from_stream(path: Path) -> tuple[Mapping[str, Any], Callable[[Storage], bytes]]:
    """Magic number, protocol, system, tensors, keys of storages; then each storage behind the count of its numbers."""
    content = memoryview(path.read_bytes())
    place, parts = 0, []
    for _ in range(5):
        part, length = _follow(content[place : place + LARGEST_PICKLE])
        parts.append(part)
        place += length
    magic, protocol, _, top, keys = parts
    if magic != MAGIC or protocol != PROTOCOL:
        raise ValueError("it does not begin as torch.save does")
    found = _names(top)
    kinds = {storage.key: storage for storage in _storages(found)}
    where: dict[str, memoryview] = {}
    for key in keys:
        _check_key(key)
        size = int.from_bytes(content[place : place + 8], "little") * kinds[key].dtype.itemsize
        where[key] = content[place + 8 : place + 8 + size]
        place += 8 + size
    return found, lambda storage: bytes(where[storage.key])


def _storages(top: Any) -> Iterator[Storage]:
    """The storages of all tensors, however deep in it; what is there twice is looked at once."""
    waiting, seen = [top], set[int]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, Described):
            yield one.storage
        elif isinstance(one, dict | list | tuple) and id(one) not in seen:
            seen.add(id(one))
            waiting += one.values() if isinstance(one, dict) else one


def _names(top: Any) -> Mapping[str, Any]:
    if not isinstance(top, dict) or not all(isinstance(name, str) for name in top) or len(top) > MANY:
        raise ValueError("it is no dictionary of tensors")
    return top


def _tensor(d: Described, numbers: Callable[[Storage], bytes], path: Path) -> Tensor:
    """With its own memory. What a description claims is compared with what is there first."""
    last = d.offset + sum((n - 1) * step for n, step in zip(d.shape, d.stride, strict=True)) if all(d.shape) else 0
    try:
        content = numbers(d.storage)
    except BROKEN as error:
        raise ModelError(f"{path} is damaged: the numbers of {d.storage.key[:40]} are missing") from error
    have = len(content) // d.storage.dtype.itemsize
    if min(d.offset, *d.shape, *d.stride, 0) < 0 or last >= max(have, 1) or math.prod(d.shape) > max(have, 1):
        raise ModelError(f"{path} is damaged: a tensor reaches beyond its {have:,} numbers")
    flat = torch.frombuffer(bytearray(content), dtype=d.storage.dtype) if content else torch.empty(0)
    return flat.as_strided(d.shape, d.stride, d.offset).clone()


def _follow(program: bytes | memoryview) -> tuple[Any, int]:
    """What a pickle describes, and how many bytes it has."""
    stream = io.BytesIO(program)
    stack: list[Any] = []
    memory: dict[int, Any] = {}
    for operation, argument, _ in genops(stream):
        name = operation.name
        if name == "STOP":
            return stack.pop(), stream.tell()
        if name in ("PROTO", "FRAME"):
            continue
        if name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            memory[len(memory) if name == "MEMOIZE" else int(argument or 0)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memory[int(argument or 0)])
        else:
            _do(name, argument, stack)
    raise ValueError("it ends before its end")


CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "LONG", "INT", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"}
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _do(name: str, argument: Any, stack: list[Any]) -> None:
    """One instruction. What is not here is refused."""
    if name in CONSTANTS:
        stack.append(CONSTANTS[name])
    elif name in VALUES:
        stack.append(argument)
    elif name in EMPTY:
        stack.append(EMPTY[name]())
    elif name == "MARK":
        stack.append(_MARK)
    elif name in TUPLES:
        count = TUPLES[name]
        stack[-count:] = [tuple(stack[-count:])]
    elif name in ("TUPLE", "LIST", "DICT"):
        items = _since_mark(stack)
        stack.append(_pairs(items) if name == "DICT" else tuple(items) if name == "TUPLE" else items)
    elif name in ("SETITEMS", "APPENDS"):
        items = _since_mark(stack)
        stack[-1].update(_pairs(items)) if name == "SETITEMS" else stack[-1].extend(items)
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        _check_key(key)
        stack[-1][key] = value
    elif name == "APPEND":
        value = stack.pop()
        stack[-1].append(value)
    elif name == "GLOBAL":
        stack.append(_allowed(argument))
    elif name == "STACK_GLOBAL":
        if not all(isinstance(word, str) for word in stack[-2:]):
            raise ValueError("it imports something without a name")
        stack[-2:] = [_allowed(f"{stack[-2]} {stack[-1]}")]
    elif name == "BINPERSID":
        stack.append(_storage(stack.pop()))
    elif name == "REDUCE":
        given = stack.pop()
        stack.append(_described(stack.pop(), given))
    elif name == "NEWOBJ":
        stack.pop()
        stack.append(_described(stack.pop(), ()))
    elif name == "BUILD":
        notes = stack.pop()  # on a dictionary; they are not needed
        if isinstance(stack[-1], Namespace) and isinstance(notes, dict):
            stack[-1].update(notes)
    else:
        raise ValueError(f"it has the instruction {name}, which tensors do not need")


def _since_mark(stack: list[Any]) -> list[Any]:
    place = len(stack) - 1
    while stack[place] is not _MARK:  # an IndexError, where there is none
        place -= 1
    items = stack[place + 1 :]
    del stack[place:]
    return items


def _pairs(items: list[Any]) -> dict[Any, Any]:
    for key in items[0::2]:
        _check_key(key)
    return dict(zip(items[0::2], items[1::2], strict=True))


def _check_key(key: Any) -> None:
    """A key that holds others could take for ever to be compared."""
    if not isinstance(key, str | int | float):
        raise ValueError("a dictionary has keys that are no names")


def _allowed(name: str) -> Name:
    if name not in ALLOWED | ASIDE:
        raise ValueError(f"it asks for {name[:80].replace(' ', '.')}, which is no part of a tensor")
    return Name(name)


def _storage(given: Any) -> Storage:
    kind, name, key, _, count = given[:5]
    if kind != "storage" or not isinstance(name, Name) or not isinstance(key, str) or not isinstance(count, int):
        raise ValueError("it names a storage in no known way")
    return Storage(DTYPES[name.name.removeprefix("torch ")], key, count)


def _described(called: Name, given: Any) -> Any:
    """What a call would give."""
    if called.name == "collections OrderedDict":
        return {}
    if called.name in ASIDE:
        return called
    if called.name == "argparse Namespace":
        return Namespace()
    if called.name == "torch._utils _rebuild_parameter":
        return given[0]
    storage, offset, shape, stride = given[:4]
    numbers = [offset, *shape, *stride]
    fits = len(shape) == len(stride) <= MOST_AXES and all(isinstance(n, int) and 0 <= n < HIGHEST for n in numbers)
    if not isinstance(storage, Storage) or not fits:
        raise ValueError("it describes a tensor in no known way")
    return Described(storage, offset, tuple(shape), tuple(stride))
