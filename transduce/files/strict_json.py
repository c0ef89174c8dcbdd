"""JSON as its standard has it: no NaN, no infinity; what cannot be read is a ValueError, however it is nested."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(text: str | bytes) -> Any:
    """The value of a text; a ValueError says what is wrong with it."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def dumps(value: Any, indent: int | None = None) -> str:
    """One text that every reader of JSON takes."""
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")
