"""The encoder of a recorded search: the layers of core/layers.py, from weights that are laid out once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.core.rows import Rows
from transduce.core.transformer import Embedding
from transduce.engine.incremental import Incremental
from transduce.engine.recorded_parts import embedded, inner, joined
from transduce.engine.weights import EncoderWeights, encoder_weights
from transduce.fast.kernels import WIDEST_HEAD
from transduce.fast.kernels.segment_attention import segment_attention


class RecordedEncoder:
    """Sentences to states, as the model's own encoder has them; by that, where it is of another kind."""

    def __init__(self, model: Incremental) -> None:
        self.model = model
        self.weights = _fitting(model)

    def states(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Tokens (n, S), of which only so many (n) are read, to states (n, S, D)."""
        at = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
        segments = (at < lengths.unsqueeze(1)).long()
        tokens, at, w = tokens.long() * segments, at * segments, self.weights
        if w is None:
            return self.model.encode(Rows(tokens, segments, at)).states
        x = embedded(self.model.source, tokens.view(-1, 1), at.view(-1), self.model.weights.dtype)
        h = w.layers[0].self_norm(x) if w.norm_before else x
        for i in range(len(w.layers)):
            x, h = self._layer(w, i, x, h, segments)
        if not w.norm_before and w.final_norm is not None:
            h = w.final_norm(h)
        return h.view(*tokens.shape, -1)

    def _layer(self, w: EncoderWeights, i: int, x: Tensor, h: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """x (n * S, D) and what the layer reads of it, h, through the layer."""
        layer, before = w.layers[i], w.norm_before
        after = w.layers[i + 1].self_norm if i + 1 < len(w.layers) else w.final_norm
        qkv = F.linear(h, *layer.self_qkv).view(*segments.shape, -1)
        assert qkv.is_inference()  # by which the kernel knows that a sentence is to come out the same beside any other
        read, _ = segment_attention([qkv], w.heads.number, w.heads.d_k, segments, segments, False)
        written = F.linear(read.flatten(0, 1), *layer.self_output)
        x, h = joined(x, written, layer.norm if before else layer.self_norm, before)

        h = inner(h, layer.inner, w.activation)
        return joined(x, F.linear(h, *layer.outer), after if before else layer.norm, before)


def _fitting(model: Incremental) -> EncoderWeights | None:
    """The encoder's weights, if our kernels know its embedding and its attention."""
    w = encoder_weights(model, model.weights.dtype) if type(model.source) is Embedding else None
    if w is None or w.heads.scale != w.heads.d_k**-0.5 or max(w.heads.d_k, w.heads.d_v) > WIDEST_HEAD:
        return None
    return w
