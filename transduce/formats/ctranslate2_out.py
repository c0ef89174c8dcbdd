"""A Transformer as CTranslate2 keeps it: the same numbers under its names. The only file that imports ctranslate2.

For our own engine tokens are named by their numbers, so that nothing depends on how a tokenizer prints them; for others
they have their names, and the end of a source is added there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.attention import MultiHeadAttention
from transduce.core.layers import DecoderLayer, EncoderLayer, FeedForward
from transduce.core.positions import LearnedPositions
from transduce.core.precision import LayerNorm, Linear
from transduce.core.scores import ScaledDot
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import SPECIAL
from transduce.core.transformer import Embedding, Transformer
from transduce.errors import SettingsError
from transduce.formats.ctranslate2_text import token_there
from transduce.text.tokenizers import Tokenizer, Tokenizers


def library() -> Any:
    """CTranslate2, an extra."""
    if importlib.util.find_spec("ctranslate2") is None:
        raise SettingsError("this needs CTranslate2: pip install 'transduce[ctranslate2]'")
    import ctranslate2  # noqa: PLC0415  (an extra)

    return ctranslate2


def token_name(token: int) -> str:
    return SPECIAL[token] if token < len(SPECIAL) else str(token)


def why_not(model: Seq2Seq) -> str | None:
    """What CTranslate2 does that keeps a model from it, as words that follow its name; None: nothing."""
    if type(model) is not Transformer:
        return "has no recurrent models and no classifiers"
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    if any(type(a.score) is not ScaledDot for a in attentions):
        return "has the scaled dot score only"
    width = model.projection.in_features
    if any(a.heads * a.d_k != width or a.heads * a.d_v != width for a in attentions):
        return "shares the model's width among heads"
    first = cast(EncoderLayer, model.encoder[0])
    before = first.self_residual.norm_before
    if isinstance(model.encoder_norm, LayerNorm) != before or isinstance(model.decoder_norm, LayerNorm) != before:
        return "has a final norm where the norm comes before, and none where it comes after"
    if any(module.eps != 1e-5 for module in model.modules() if isinstance(module, LayerNorm)):
        return "has norms with an epsilon of 1e-5"
    if model.source.scale != model.target.scale:
        return "scales both embeddings or none"
    return None


def convert(
    model: Transformer, folder: Path, names: tuple[list[str], list[str]] | None = None, quantization: str | None = None
) -> None:
    """Write the model into an empty folder. `names`: of the tokens of both sides."""
    ctranslate2 = library()
    first = cast(EncoderLayer, model.encoder[0])
    activation = {F.relu: "RELU", F.gelu: "GELU", F.silu: "SWISH"}[first.feed_forward.activation]
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (len(model.encoder), len(model.decoder)),
        first.self_attention.heads,
        pre_norm=first.self_residual.norm_before,
        activation=ctranslate2.specs.Activation[activation],
        alignment_heads=first.self_attention.heads,
        layernorm_embedding=isinstance(model.source.norm, LayerNorm),
    )
    for side, embedding in ((spec.encoder, model.source), (spec.decoder, model.target)):
        _embedding(side, embedding)
    for to, encoder_layer in zip(spec.encoder.layer, model.encoder, strict=True):
        _attention(
            to.self_attention,
            cast(EncoderLayer, encoder_layer).self_attention,
            cast(EncoderLayer, encoder_layer).self_residual.norm,
        )
        _feed_forward(
            to.ffn,
            cast(EncoderLayer, encoder_layer).feed_forward,
            cast(EncoderLayer, encoder_layer).feed_forward_residual.norm,
        )
    for to, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        decoder_layer = cast(DecoderLayer, layer)
        _attention(to.self_attention, decoder_layer.self_attention, decoder_layer.self_residual.norm)
        _attention(to.attention, decoder_layer.cross_attention, decoder_layer.cross_residual.norm, apart=True)
        _feed_forward(to.ffn, decoder_layer.feed_forward, decoder_layer.feed_forward_residual.norm)
    for side, norm in ((spec.encoder, model.encoder_norm), (spec.decoder, model.decoder_norm)):
        if isinstance(norm, LayerNorm):
            _norm(side.layer_norm, norm)
    _linear(spec.decoder.projection, model.projection)
    if model.projection_scale != 1:
        spec.decoder.projection.weight = spec.decoder.projection.weight * np.float32(model.projection_scale)
    sizes = (model.source.tokens.num_embeddings, model.target.tokens.num_embeddings)
    source, target = names or tuple([token_name(i) for i in range(size)] for size in sizes)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.add_source_eos = names is not None and model.source_end
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().float().cpu().numpy().copy()


def _embedding(side: Any, embedding: Embedding) -> None:
    to = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
    to.weight = _numpy(embedding.tokens.weight)
    side.scale_embeddings = embedding.scale != 1
    positions = embedding.positions
    table = positions.table.weight if isinstance(positions, LearnedPositions) else cast(Tensor, positions.table)
    side.position_encodings.encodings = _numpy(table)
    if isinstance(embedding.norm, LayerNorm):
        _norm(side.layernorm_embedding, embedding.norm)


def _linear(to: Any, *parts: Linear) -> None:
    weights, biases = zip(*((_numpy(p.weight), p.bias) for p in parts), strict=True)
    to.weight = np.concatenate(weights)
    if biases[0] is not None:
        to.bias = np.concatenate([_numpy(bias) for bias in biases])


def _attention(to: Any, attention: MultiHeadAttention, norm: nn.LayerNorm, apart: bool = False) -> None:
    query, key, value, output = attention.query, attention.key, attention.value, attention.output
    groups = [(query,), (key, value)] if apart else [(query, key, value)]
    for linear, parts in zip(to.linear, [*groups, (output,)], strict=True):
        _linear(linear, *parts)
    _norm(to.layer_norm, norm)


def _feed_forward(to: Any, feed_forward: FeedForward, norm: nn.LayerNorm) -> None:
    _linear(to.linear_0, feed_forward.inner)
    _linear(to.linear_1, feed_forward.outer)
    _norm(to.layer_norm, norm)


def _norm(to: Any, norm: nn.LayerNorm) -> None:
    to.gamma, to.beta = _numpy(norm.weight), _numpy(norm.bias)


class Copy:
    """CTranslate2 with what was written."""

    def __init__(self, folder: Path, tokenizers: Tokenizers, length_penalty: float) -> None:
        threads = torch.get_num_threads()
        self.translator = library().Translator(str(folder), compute_type="default", intra_threads=threads)
        self.source, self.target = tokenizers.source, tokenizers.target
        self.ids = {piece: i for i, piece in enumerate(self._there(self.target, range(self.target.size)))}
        self.how: dict[str, Any] = {
            "min_decoding_length": 0,
            "length_penalty": length_penalty,
            "max_input_length": 0,
        }

    def translate(self, line: str, beam: int, most: int) -> str:
        pieces = self._there(self.source, self.source.encode([line])[0])
        begin = self._there(self.target, self.target.begin)
        how = {**self.how, "target_prefix": [begin] if begin else None, "max_decoding_length": most + len(begin)}
        found = self.translator.translate_batch([pieces], beam_size=beam, **how)[0]
        return self.target.decode([self.ids[token] for token in found.hypotheses[0]])

    def log_probabilities(self, source: list[int], target: list[int]) -> np.ndarray:
        """Those of each token of a target, and of its END."""
        both = [self._there(self.source, source)], [self._there(self.target, target)]
        return np.array(self.translator.score_batch(*both, max_input_length=0)[0].log_probs)

    @staticmethod
    def _there(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
        return [token_there(piece) for piece in tokenizer.pieces(ids)]
