"""A Transformer as two ONNX graphs, written node by node in the order of figure 1: the encoder, and one step of the
decoder over what it has written so far. The only file that imports onnx.

encoder.onnx    tokens (R, S), seen (R, S)  ->  keys and values of the source for each layer of the decoder
decoder.onnx    tokens (R, 1), position, seen, keys and values of the source and of the past  ->  logits (R, V), and
                keys and values with this step
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.attention import MultiHeadAttention
from transduce.core.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from transduce.core.positions import LearnedPositions
from transduce.core.precision import LayerNorm, Linear
from transduce.core.scores import Dot, ScaledDot
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import BEGIN, END
from transduce.core.transformer import Embedding, Transformer
from transduce.errors import ModelError, SettingsError

if TYPE_CHECKING:
    from transduce.formats.onnx_runner import Translator as OnnxTranslator

OPSET, IR = 17, 8  # old enough for every runtime of the last years
FAR = -1e9  # on the score of what is not looked at
LARGEST = 2_000_000_000  # bytes of a file, which its format cannot exceed


def library() -> Any:
    """onnx and onnxruntime, an extra."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxruntime")):
        raise SettingsError("--to onnx needs ONNX and its runtime: pip install 'transduce[onnx]'")
    import onnx  # noqa: PLC0415  (an extra)

    return onnx


def why_not(model: Seq2Seq) -> str | None:
    """What keeps a model from being written, as words that follow "onnx"; None: nothing."""
    if type(model) is not Transformer:
        return "takes Transformers only, no recurrent models and no classifiers"
    if any(type(m.score) not in (ScaledDot, Dot) for m in model.modules() if isinstance(m, MultiHeadAttention)):
        return "takes the dot scores only"
    size = sum(weight.nbytes for weight in model.parameters())
    return None if size < LARGEST else f"has files of two billion bytes at most, and these weights have {size:,}"


class Graph:
    """Nodes one after the other; a value is known by its name."""

    def __init__(self) -> None:
        self.helper = library().helper
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def op(self, kind: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        """The name of what a node gives."""
        name = to or f"{kind}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.array(value, dtype)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array
        return name

    def model(self, inputs: dict[str, tuple[Any, list]], outputs: dict[str, list]) -> bytes:
        """All of it as a file. Sizes: a number, or the name of one that may differ."""
        onnx = library()
        kinds = {np.float32: onnx.TensorProto.FLOAT, np.int64: onnx.TensorProto.INT64, np.bool_: onnx.TensorProto.BOOL}
        value = self.helper.make_tensor_value_info
        given = [value(name, kinds[dtype], shape) for name, (dtype, shape) in inputs.items()]
        found = [value(name, onnx.TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        held = [
            onnx.numpy_helper.from_array(np.asarray(array, order="C"), name) for name, array in self.constants.items()
        ]
        graph = self.helper.make_graph(self.nodes, "transduce", given, found, held)
        opset = [self.helper.make_opsetid("", OPSET)]
        made = self.helper.make_model(graph, opset_imports=opset, ir_version=IR, producer_name="transduce")
        onnx.checker.check_model(made)
        return cast(bytes, made.SerializeToString())

    # ---- the paper's pieces

    def linear(self, x: str, linear: Linear) -> str:
        weight, bias = linear.read(torch.float32)
        x = self.op("MatMul", x, self.constant(weight.t().contiguous()))
        return x if bias is None else self.op("Add", x, self.constant(bias))

    def norm(self, x: str, norm: nn.Module) -> str:
        if not isinstance(norm, LayerNorm):
            return x
        gamma, beta = self.constant(norm.weight), self.constant(norm.bias)
        return self.op("LayerNormalization", x, gamma, beta, epsilon=norm.eps)

    def embedding(self, tokens: str, positions: str, embedding: Embedding) -> str:
        x = self.op("Gather", self.constant(embedding.tokens.weight), tokens)
        if embedding.scale != 1:
            x = self.op("Mul", x, self.constant(embedding.scale))
        held = embedding.positions
        table = held.table.weight if isinstance(held, LearnedPositions) else cast(Tensor, held.table)
        return self.norm(self.op("Add", x, self.op("Gather", self.constant(table), positions)), embedding.norm)

    def by_head(self, x: str, heads: int, to: str | None = None) -> str:
        """(R, T, H * K) -> (R, H, T, K)"""
        x = self.op("Reshape", x, self.constant([0, 0, heads, -1], np.int64))
        return self.op("Transpose", x, perm=[0, 2, 1, 3], to=to)

    def attend(self, q: str, k: str, v: str, hidden: str | None, attention: MultiHeadAttention) -> str:
        """softmax(q kᵀ · scale + hidden) v, then W_O."""
        scale = attention.d_k**-0.5 if type(attention.score) is ScaledDot else 1.0
        scores = self.op("MatMul", self.op("Mul", q, self.constant(scale)), self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = scores if hidden is None else self.op("Add", scores, hidden)
        read = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        read = self.op("Transpose", read, perm=[0, 2, 1, 3])
        shape = self.constant([0, 0, attention.heads * attention.d_v], np.int64)
        return self.linear(self.op("Reshape", read, shape), attention.output)

    def feed_forward(self, x: str, ff: FeedForward) -> str:
        x = self.linear(x, ff.inner)
        if ff.activation is F.relu:
            x = self.op("Relu", x)
        elif ff.activation is F.silu:
            x = self.op("Mul", x, self.op("Sigmoid", x))
        else:  # gelu: x Φ(x)
            erf = self.op("Erf", self.op("Mul", x, self.constant(2**-0.5)))
            half = self.op("Mul", x, self.constant(0.5))
            x = self.op("Mul", half, self.op("Add", erf, self.constant(1.0)))
        return self.linear(x, ff.outer)

    def enter(self, x: str, residual: Residual) -> str:
        return self.norm(x, residual.norm) if residual.norm_before else x

    def leave(self, x: str, written: str, residual: Residual) -> str:
        x = self.op("Add", x, written)
        return x if residual.norm_before else self.norm(x, residual.norm)

    def hidden(self, seen: str) -> str:
        """What is added to scores: (R, S) -> (R, 1, 1, S)"""
        cost = self.op("Where", seen, self.constant(0.0), self.constant(FAR))
        return self.op("Unsqueeze", cost, self.constant([1, 2], np.int64))


def files(model: Transformer) -> dict[str, bytes]:
    """The two graphs, by the names of their files."""
    model.eval()
    return {"encoder.onnx": _encoder(model), "decoder.onnx": _decoder(model)}


def _encoder(model: Transformer) -> bytes:
    graph = Graph()
    length = graph.op("Gather", graph.op("Shape", "tokens"), graph.constant(1, np.int64), axis=0)
    positions = graph.op("Range", graph.constant(0, np.int64), length, graph.constant(1, np.int64))
    x, hidden = graph.embedding("tokens", positions, model.source), graph.hidden("seen")
    for module in model.encoder:
        layer = cast(EncoderLayer, module)
        h, attention = graph.enter(x, layer.self_residual), layer.self_attention
        q, k, v = (graph.by_head(graph.linear(h, part), attention.heads) for part in _projections(attention))
        x = graph.leave(x, graph.attend(q, k, v, hidden, attention), layer.self_residual)
        h = graph.enter(x, layer.feed_forward_residual)
        x = graph.leave(x, graph.feed_forward(h, layer.feed_forward), layer.feed_forward_residual)
    x = graph.norm(x, model.encoder_norm)
    outputs: dict[str, list] = {}
    for i, module in enumerate(model.decoder):
        cross = cast(DecoderLayer, module).cross_attention
        for name, part in (("key", cross.key), ("value", cross.value)):
            graph.by_head(graph.linear(x, part), cross.heads, to=f"source_{name}_{i}")
            outputs[f"source_{name}_{i}"] = _shape(cross, name, "S")
    return graph.model({"tokens": (np.int64, ["R", "S"]), "seen": (np.bool_, ["R", "S"])}, outputs)


def _decoder(model: Transformer) -> bytes:
    graph = Graph()
    inputs: dict[str, tuple[Any, list]] = {"tokens": (np.int64, ["R", 1]), "position": (np.int64, [1])}
    inputs["seen"] = (np.bool_, ["R", "S"])
    outputs: dict[str, list] = {}
    x, hidden = graph.embedding("tokens", "position", model.target), graph.hidden("seen")
    for i, module in enumerate(model.decoder):
        layer = cast(DecoderLayer, module)
        h, attention, cross = graph.enter(x, layer.self_residual), layer.self_attention, layer.cross_attention
        q = graph.by_head(graph.linear(h, attention.query), attention.heads)
        both = []
        for name, part in (("key", attention.key), ("value", attention.value)):
            inputs[f"past_{name}_{i}"] = (np.float32, _shape(attention, name, "T"))
            new = graph.by_head(graph.linear(h, part), attention.heads)
            both.append(graph.op("Concat", f"past_{name}_{i}", new, axis=2, to=f"{name}_{i}"))
            outputs[f"{name}_{i}"] = _shape(attention, name, "T + 1")
            inputs[f"source_{name}_{i}"] = (np.float32, _shape(cross, name, "S"))
        x = graph.leave(x, graph.attend(q, both[0], both[1], None, attention), layer.self_residual)
        q = graph.by_head(graph.linear(graph.enter(x, layer.cross_residual), cross.query), cross.heads)
        read = graph.attend(q, f"source_key_{i}", f"source_value_{i}", hidden, cross)
        x = graph.leave(x, read, layer.cross_residual)
        h = graph.enter(x, layer.feed_forward_residual)
        x = graph.leave(x, graph.feed_forward(h, layer.feed_forward), layer.feed_forward_residual)
    x = graph.norm(x, model.decoder_norm)
    if model.projection_scale != 1:
        x = graph.op("Mul", x, graph.constant(model.projection_scale))
    graph.op("Squeeze", graph.linear(x, model.projection), graph.constant([1], np.int64), to="logits")
    return graph.model(inputs, {"logits": ["R", model.projection.out_features], **outputs})


def _projections(attention: MultiHeadAttention) -> Sequence[Linear]:
    return attention.query, attention.key, attention.value


def _shape(attention: MultiHeadAttention, name: str, length: str) -> list:
    return ["R", attention.heads, length, attention.d_k if name == "key" else attention.d_v]


def in_whole_numbers(graphs: dict[str, bytes]) -> dict[str, bytes]:
    """Weights as int8, one scale a matrix column; what is computed stays float32 in between."""
    library()
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415  (an extra)

    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, content in graphs.items():
            before, after = Path(temporary) / name, Path(temporary) / f"int8-{name}"
            before.write_bytes(content)
            logging.disable(logging.WARNING)  # it recommends what was done here by hand
            try:
                quantize_dynamic(before, after, per_channel=True, weight_type=QuantType.QInt8)
            except Exception as error:  # of many kinds
                raise ModelError(f"onnxruntime cannot put {name} into whole numbers: {str(error)[:150]}") from error
            finally:
                logging.disable(logging.NOTSET)
            found[name] = after.read_bytes()
    return found


class Copy:
    """The program that goes out with the graphs, as it is."""

    def __init__(self, runner: OnnxTranslator) -> None:
        self.runner = runner

    def translate(self, line: str, beam: int, most: int) -> str:
        """Its limit is its own, and the same."""
        return self.runner.translate(line, beam)

    def log_probabilities(self, source: list[int], target: list[int]) -> np.ndarray:
        """Those of each token of a target, and of its END."""
        memory, past = self.runner.read([*source, END] if self.runner.facts["source_end"] else source)
        found = []
        for position, (before, token) in enumerate(zip([BEGIN, *target], [*target, END], strict=True)):
            log_p, past = self.runner.step(np.array([[before]]), position, memory, past)
            found.append(log_p[0, token])
        return np.array(found)
