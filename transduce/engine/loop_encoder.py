"""The encoder on a CPU, in compiled loops (loops.py)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from transduce.core.rows import Rows
from transduce.core.seq2seq import Memory
from transduce.engine import loop_arrays, loops
from transduce.engine.incremental import Incremental
from transduce.engine.loop_arrays import FeedForwardArrays, NormArrays, Product, as_norm, as_product
from transduce.engine.weights import EncoderWeights, alike, encoder_weights

SLOTS = 512  # of sentences that go through together: what they write stays in the processor's cache
Encoding = tuple[tuple[Product, Product, NormArrays], FeedForwardArrays]  # a layer


class LoopEncoder:
    """Made once, for many batches."""

    def __init__(self, model: Incremental) -> None:
        self.model = model
        self.weights = _fitting(model)
        self.layers = [] if self.weights is None else _as_arrays(self.weights)

    def encode(self, source: Rows) -> Memory:
        """As the model would, of rows with one sentence each."""
        w = self.weights
        if w is None:
            return self.model.encode(source)
        source = self.model.seen(source)
        states = self.model.source(source.tokens, source.positions)
        sentences, width, d_model = states.shape
        lengths = (source.segments != 0).sum(1).numpy()
        some = max(1, SLOTS // width)
        room = loop_arrays.Buffers.make(some * width, d_model, len(w.layers[0].inner.weight), w.norm_before)
        for first in range(0, sentences, some):
            x = states[first : first + some].view(-1, d_model)
            self._through(x, lengths[first : first + some], room.first(len(x)))
        if not w.norm_before and w.final_norm is not None:
            states = w.final_norm(states)
        return Memory(states, source.segments)

    def _through(self, x: Tensor, lengths: np.ndarray, at: loop_arrays.Buffers) -> None:
        """The residual stream of some sentences through all layers, in place."""
        w = self.weights
        assert w is not None
        at.x[:] = x.numpy()
        if w.norm_before:
            at.h[:] = w.layers[0].self_norm(x).numpy()
        for looking, feed_forward in self.layers:
            loops.look_into(at, looking, lengths, w.heads.scale, w.heads.number)
            feed_forward(at)
        x.copy_(torch.from_numpy(at.h))


def _fitting(model: Incremental) -> EncoderWeights | None:
    """The encoder's weights, if the loops know how its heads lie in memory and which norm comes last."""
    w = encoder_weights(model, torch.float32)
    if (
        w is None
        or not alike(w.layers)
        or w.heads.d_k != w.heads.d_v
        or w.heads.number * w.heads.d_k != len(w.layers[0].self_norm.weight)
    ):
        return None
    return w if w.final_norm is not None or not w.norm_before else None


def _as_arrays(w: EncoderWeights) -> list[Encoding]:
    """Norms as in loop_decoder.py: the one behind each sublayer."""
    layers: list[Encoding] = []
    for i, a in enumerate(w.layers):
        last = w.layers[i + 1].self_norm if i + 1 < len(w.layers) else w.final_norm
        first, second = map(as_norm, (a.norm, last) if w.norm_before else (a.self_norm, a.norm))
        feed_forward = FeedForwardArrays(as_product(a.inner), as_product(a.outer), second, w.activation)
        layers.append(((as_product(a.self_qkv), as_product(a.self_output), first), feed_forward))
    return layers
