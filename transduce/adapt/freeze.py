"""Freeze parts of a model: their weights stay what they are while the others learn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from transduce.errors import SettingsError

PARTS = ("encoder", "decoder", "source", "target", "projection")  # stacks, embeddings, the way onto the vocabulary
LAYERS = re.compile(r"(encoder|decoder)\.(\d+)(?:-(\d+))?")


def is_frozen(name: str, parts: str) -> bool:
    """Whether a weight of this name belongs to one of the parts, such as `encoder,decoder.0-2`."""
    return any(_holds(part.strip(), name) for part in parts.split(","))


def check_parts(names: Sequence[str], parts: str) -> None:
    """Refuse parts that a model does not have, and to freeze all of it."""
    for part in parts.split(","):
        if not any(_holds(part.strip(), name) for name in names):
            raise SettingsError(
                f"training.freeze={parts}: the model has no weights of {part.strip()!r}; parts are {', '.join(PARTS)} "
                f"and layers of a stack, such as encoder.0-3"
            )
    if all(is_frozen(name, parts) for name in names):
        raise SettingsError(f"training.freeze={parts} leaves nothing to learn")


def stretches(places: Iterable[tuple[str, int, int]], parts: str) -> list[tuple[int, int]]:
    """Where frozen weights lie, neighbours together. `places`: name, begin and end of each weight, in their order."""
    found: list[tuple[int, int]] = []
    goes_on = False
    for name, begin, end in places:
        frozen = is_frozen(name, parts)
        if frozen and goes_on:
            found[-1] = (found[-1][0], end)
        elif frozen:
            found.append((begin, end))
        goes_on = frozen
    return found


def _holds(part: str, name: str) -> bool:
    """A stack has its final norm too; an embedding its positions and norm."""
    if match := LAYERS.fullmatch(part):
        stack, first, last = match.groups()
        layer = re.match(rf"{stack}\.(\d+)\.", name)
        return layer is not None and int(first) <= int(layer[1]) <= int(last or first)
    return part in PARTS and name.startswith((f"{part}.", f"{part}_norm."))
