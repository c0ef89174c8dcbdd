"""JSON files of others, and whole numbers in them: what is not as it should be is told in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.errors import ModelError
from transduce.files import strict_json
from transduce.files.reading import followed, read_bytes


def read_json(path: Path, most: int) -> dict[str, Any]:
    try:
        found = strict_json.loads(read_file(path, most))
    except ValueError as error:
        raise ModelError(f"{path} is no JSON: {str(error)[:100]}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} must be an object")
    return found


def read_file(path: Path, most: int) -> bytes:
    """A file of the folder; caches of models keep links there."""
    try:
        return read_bytes(followed(path), most)
    except OSError as error:
        raise ModelError(f"{path} {error.strerror or error}") from error


def whole(config: Mapping[str, Any], key: str, default: Any = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    value = value[0] if isinstance(value, list) and len(value) == 1 else value  # as some say eos_token_id
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**9:
        raise ModelError(f"its config must have {key}, a whole number, not {value!r}")
    return value


def number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e9:
        raise ModelError(f"its config must have {key}, a number, not {str(value)[:40]!r}")
    return float(value)
