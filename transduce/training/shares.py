"""Which share of an update each weight takes: none while it is frozen, less in the first layers if settings say so."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from transduce.adapt.freeze import check_parts, depth, is_frozen, layers_of
from transduce.core.flat import FlatWeights
from transduce.settings.sections import Settings


class Stretch(NamedTuple):
    """Neighbours that learn alike."""

    begin: int
    end: int
    share: float  # of an update
    until: int  # updates for which it is frozen before


class Shares:
    """How much of an update each weight of a model takes; its weights lie end to end."""

    def __init__(self, flat: FlatWeights, settings: Settings, resting: Collection[str | None] = ()) -> None:
        """`resting`: names of weights that stay as they are for the first training.vectors_rest updates."""
        self.flat = flat
        parts, every = settings.training.freeze, settings.training.unfreeze_every
        names = [place.name for place in flat.places]
        if parts is not None:
            check_parts(names, parts)
        decoder_layers, encoder_layers = layers_of(names, "decoder"), layers_of(names, "encoder")
        self.stretches: list[Stretch] = []
        for place in flat.places:
            far = depth(place.name, decoder_layers, encoder_layers)
            frozen = parts is not None and is_frozen(place.name, parts)
            share = 0.0 if frozen else settings.optimizer.layer_decay**far
            until = max(0, far - 1) * every if every else 0  # the last layer learns from the beginning
            if place.name in resting:
                until = max(until, settings.training.vectors_rest)
            self._add(Stretch(place.begin, place.end, share, until))

    def _add(self, new: Stretch) -> None:
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last[2:] == new[2:]:
            self.stretches[-1] = last._replace(end=new.end)
        else:
            self.stretches.append(new)

    def freeze(self, step: int) -> None:
        """After so many updates: what does not learn yet, or never does, has no gradient."""
        for stretch in self.stretches:
            if not stretch.share or step < stretch.until:
                self.flat.gradient[stretch.begin : stretch.end].zero_()

    @contextmanager
    def slowed(self) -> Iterator[None]:
        """Within, an update is made; of some weights only a share of it stays."""
        weights = self.flat.weights.detach()
        slow = [(s.share, weights[s.begin : s.end]) for s in self.stretches if 0 < s.share < 1]
        before = [part.clone() for _, part in slow]
        yield
        for (share, part), held in zip(slow, before, strict=True):
            torch.lerp(held, part, share, out=part)
