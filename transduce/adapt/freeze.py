"""Freeze parts of a model: their weights stay what they are while the others learn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from transduce.errors import SettingsError

PARTS = ("encoder", "decoder", "source", "target", "projection")  # stacks, embeddings, the way onto the vocabulary
LAYERS = re.compile(r"(encoder|decoder)\.(\d+)(?:-(\d+))?")


def is_frozen(name: str, parts: str) -> bool:
    """Whether a weight of this name belongs to one of the parts, such as `encoder,decoder.0-2`."""
    return any(_holds(part.strip(), name) for part in parts.split(","))


def check_parts(names: Sequence[str], parts: str) -> None:
    """Refuse parts that a model does not have, and to freeze all of it."""
    for part in map(str.strip, parts.split(",")):
        if not any(_holds(part, name) for name in names):
            raise SettingsError(
                f"training.freeze={parts}: the model has no weights of {part!r}; parts are {', '.join(PARTS)} (a table "
                f"that both sides share is the source's) and layers of a stack, such as encoder.0-3"
            )
        if (
            (match := LAYERS.fullmatch(part))
            and match[3]
            and not any(_holds(f"{match[1]}.{match[3]}", n) for n in names)
        ):
            raise SettingsError(f"training.freeze={parts}: the {match[1]} has no layer {match[3]}; they count from 0")
    if all(is_frozen(name, parts) for name in names):
        raise SettingsError(f"training.freeze={parts} leaves nothing to learn")


def _holds(part: str, name: str) -> bool:
    """A stack has its final norm too; an embedding its positions and norm."""
    if match := LAYERS.fullmatch(part):
        stack, first, last = match.groups()
        layer = re.match(rf"{stack}\.(\d+)\.", name)
        return layer is not None and int(first) <= int(layer[1]) <= int(last or first)
    return part in PARTS and name.startswith((f"{part}.", f"{part}_norm."))


def layers_of(names: Sequence[str], stack: str) -> int:
    """How many layers a stack has, by the names of a model's weights."""
    return len({match[1] for name in names if (match := re.match(rf"{stack}\.(\d+)\.", name))})


def depth(name: str, decoder_layers: int, encoder_layers: int) -> int:
    """How far a weight is from the end of the model: the last layer of the decoder first, embeddings last. A classifier
    has no decoder, and a weight of its own (`end`) beside the projection."""
    if match := re.match(r"(encoder|decoder)\.(\d+)\.", name):
        stack, layer = match[1], int(match[2])
        return decoder_layers - layer if stack == "decoder" else decoder_layers + encoder_layers - layer
    if name.startswith("encoder_norm."):
        return decoder_layers + 1
    return 0 if name.startswith(("projection.", "decoder_norm.", "end")) else decoder_layers + encoder_layers + 1
