"""A folder of CTranslate2's as a model of ours, whatever its weights are stored in: they become float32 again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.core.positions import fairseq_table, kind_of_table
from transduce.core.special import BEGIN, PAD, UNKNOWN
from transduce.errors import ModelError, SettingsError
from transduce.formats.binary import Binary, read_binary
from transduce.formats.converted import Converted
from transduce.formats.ctranslate2_text import facts_of, names_of, special_of, text_of
from transduce.formats.tensors import Tensors
from transduce.formats.vocabulary import NEVER, Vocabulary
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, ModelSettings
from transduce.text.tokenizers import file_names

MODEL = "model.bin"
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # by their numbers there
STACKS = {"encoder": "source", "decoder": "target"}  # and the embedding of each
UNSAID_POSITIONS = 500  # where a file has no table
SAID: tuple[str, ...] = (
    "activation",
    r"alibi\w*",
    r"alignment_\w+",
    "embeddings_merge",
    "multi_query_attention",
    r"num_heads\w*",
)
SAID += ("pre_norm", r"scale_\w+", "start_from_zero_embedding", "position_encodings/encodings", "sliding_window")
OLD = r"with_\w+|user_decoder_start_tokens|(unk|bos|eos)_token|layernorm_embedding"  # said at the top, once
KNOWN = rf"(encoder|decoder)/({'|'.join(SAID)})|{OLD}"  # what a stack says of itself, beside its weights
ONCE_SHARED = {"num_heads", "pre_norm", "activation", "embeddings_merge", "alignment_layer", "alignment_heads"}
WIDEST = 65536  # numbers of an embedding
SAYS_HEADS = 3  # the first revision that does
SEARCH = {"beam": 2, "penalty": "plain", "length_penalty": 1.0, "stop": "usual"}  # as CTranslate2 does if not told
SAME = 2e-3  # how far a number may be from what it should be: the last bits of float16


def is_folder(folder: Path) -> bool:
    return (folder / MODEL).exists()


def read(folder: Path, tokenizer: Path | None = None) -> Converted:
    """An encoder-decoder Transformer. `tokenizer`: the folder of its tokenizer, if that is another."""
    found = read_binary(folder / MODEL)
    if not found.kind.startswith("Transformer") or "decoder/projection/weight" not in found.variables:
        name = found.kind[:40] or "model without a name"
        raise ModelError(f"{folder} holds a {name}, not a Transformer that translates")
    held = Tensors(_dequantised(_as_now(found), folder), folder)
    facts = facts_of(folder, found)
    names = names_of(folder)
    sizes = [held.rows(name) for name in _embeddings(held)]
    zero_begin = bool(held.scalar("decoder/start_from_zero_embedding", 0))
    special = [special_of(each, facts, zero_begin) for each in names]
    source, target = map(Vocabulary.of, names, sizes, special)
    shared = source.tokens == target.tokens
    m = _model_settings(held, folder)
    m["eps"] = facts.epsilon
    m["tie_source"] = shared and held.are_equal(*_embeddings(held))
    m["tie_output"] = held.are_equal("decoder/embeddings/weight", "decoder/projection/weight")
    m["source_end"] = facts.adds_end or facts.begin != "<s>"  # OpenNMT begins with <s> and reads no end; Marian does
    text, files = text_of(tokenizer or folder, source, target)
    data = {"max_tokens": min(DataSettings.max_tokens, m["max_positions"])}
    try:
        settings = compose({"model": m, "text": text, "data": data, "search": SEARCH})
    except SettingsError as error:
        raise ModelError(f"{folder}: what {MODEL} says of itself cannot be: {error}") from error
    weights = _weights(held, settings.model, source, target)
    return Converted(settings, weights, dict(zip(file_names(settings.text), files, strict=False)))


# ---- numbers


def _as_now(found: Binary) -> dict[str, Tensor]:
    """Variables by today's names: once both stacks shared what is said of them, and at first nobody said how many heads
    there are."""
    variables = dict(found.variables)
    if found.revision < SAYS_HEADS:
        variables.setdefault("num_heads", torch.tensor(16 if found.kind == "TransformerBig" else 8, dtype=torch.int8))
    for name in ONCE_SHARED & variables.keys():
        value = variables.pop(name)
        for stack in STACKS:
            variables.setdefault(f"{stack}/{name}", value)
    for stack in STACKS:
        if (name := f"{stack}/embeddings/multiply_by_sqrt_depth") in variables:
            variables.setdefault(f"{stack}/scale_embeddings", variables.pop(name))
    return variables


def _dequantised(variables: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Every variable in float32: whole numbers are divided by the scale beside them, one a row or one for all. A
    variable with many names is made once."""
    found, made = {}, dict[tuple[int, ...], Tensor]()
    for name, value in variables.items():
        if name.endswith("_scale"):
            continue
        scale = variables.get(f"{name}_scale")
        key = (value.data_ptr(), 0 if scale is None else scale.data_ptr(), *value.shape)
        if key not in made:
            made[key] = _as_float(value, scale, folder / MODEL, name)
        found[name] = made[key]
    return found


def _as_float(value: Tensor, scale: Tensor | None, path: Path, name: str) -> Tensor:
    if value.dtype in (torch.int8, torch.int16) and value.dim() > 1:
        if scale is None or scale.numel() not in (1, len(value)):
            raise ModelError(f"{path}: {name[:80]} is in whole numbers, and their scale is not there")
        value = value.float() / scale.float().view(-1, *[1] * (value.dim() - 1))
    if not value.float().isfinite().all():
        raise ModelError(f"{path} holds numbers that are infinite or none (NaN), in {name[:80]}")
    return value


def _embeddings(held: Tensors) -> tuple[str, str]:
    of_source = "encoder/embeddings_0/weight" if "encoder/embeddings_0/weight" in held else "encoder/embeddings/weight"
    return of_source, "decoder/embeddings/weight"


def _model_settings(held: Tensors, folder: Path) -> dict[str, Any]:
    """What the file says of itself, in our words. What it does not say has been usual for CTranslate2 ever since."""
    width = held.columns("decoder/embeddings/weight")
    if width > WIDEST:
        raise ModelError(f"{folder} has embeddings of {width:,} numbers, which no model has")
    layers, decoder_layers = (held.count(rf"{stack}/layer_(\d{{1,6}})/") for stack in ("encoder", "decoder"))
    for strange in ("alibi", "multi_query_attention", "sliding_window"):
        if any(held.scalar(f"{stack}/{strange}", 0) for stack in ("encoder", "decoder")):
            raise ModelError(f"{folder} has {strange}, which a model here has not")
    if any("/relative_" in name for name in held.names()):
        raise ModelError(f"{folder} has relative positions, which a model here has not")
    activation, before, heads = (
        _said(held, folder, *said) for said in (("activation", 0), ("pre_norm", 1), ("num_heads", 8))
    )
    if activation not in ACTIVATIONS:
        raise ModelError(f"{folder}: its activation, number {activation}, is none of {', '.join(ACTIVATIONS.values())}")
    tables = [_table(held, stack, width) for stack in STACKS]
    formulas = {kind_of_table(table) for table in tables}
    return {
        "layers": layers,
        "decoder_layers": decoder_layers,
        "d_model": width,
        "d_ff": held.rows("encoder/layer_0/ffn/linear_0/weight"),
        "heads": heads,
        "norm": "before" if before else "after",
        "final_norm": "encoder/layer_norm/gamma" in held,
        "embedding_norm": "encoder/layernorm_embedding/gamma" in held,
        "positions": formulas.pop() if len(formulas) == 1 else "learned",
        "max_positions": min(map(len, tables)),
        "scale": _scale(held, folder, width),
        "activation": ACTIVATIONS[activation],
        "output_bias": True,
    }


def _said(held: Tensors, folder: Path, name: str, usual: int) -> int:
    """A whole number that both stacks say of themselves."""
    said = [held.scalar(f"{stack}/{name}", usual) for stack in STACKS]
    if said[0] != said[1] or said[0] != int(said[0]):
        raise ModelError(
            f"{folder} has {name} {said[0]:g} and {said[1]:g} in encoder and decoder; a model here has one"
        )
    return int(said[0])


def _scale(held: Tensors, folder: Path, width: int) -> str:
    """What embeddings are multiplied by: a flag says √width or nothing, a number itself."""
    usual, said = width**0.5, []
    for stack in STACKS:
        value = held.peek(f"{stack}/scale_embeddings")
        is_flag = value is None or value.dtype == torch.int8
        factor = held.scalar(f"{stack}/scale_embeddings", 1)
        said.append((usual if factor else 1.0) if is_flag else factor)
    if said[0] != said[1] or min(abs(said[0] - usual), abs(said[0] - 1)) > SAME * usual:
        raise ModelError(
            f"{folder} multiplies its embeddings by {said[0]:g} and {said[1]:g}; a model here by √width, or not at all"
        )
    return "embedding" if abs(said[0] - usual) <= SAME * usual else "none"


def _table(held: Tensors, stack: str, width: int) -> Tensor:
    """The table of positions; where the file has none, CTranslate2 computes fairseq's, counted from 1."""
    table = held.peek(f"{stack}/position_encodings/encodings")
    if table is not None and (table.dim() != 2 or not table.numel() or table.size(1) != width):
        raise ModelError(f"{held.origin}: its table of positions is of the shape {tuple(table.shape)}")
    return fairseq_table(UNSAID_POSITIONS, width, first=1) if table is None else table.float()


def _weights(held: Tensors, m: ModelSettings, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    tables = [_table(held, stack, m.d_model) for stack in STACKS]
    for (stack, side), table in zip(STACKS.items(), tables, strict=True):
        if m.positions == "learned":
            weights[f"{side}.positions.table.weight"] = table.clone()  # both stacks may have one and the same
        if m.embedding_norm:
            weights |= _norm(held, f"{side}.norm", f"{stack}/layernorm_embedding", m)
        if m.final_norm:
            weights |= _norm(held, f"{stack}_norm", f"{stack}/layer_norm", m)
    for stack, count in (("encoder", m.layers), ("decoder", m.decoder_layers or m.layers)):
        for i in range(count):
            weights |= _layer(held, f"{stack}.{i}", f"{stack}/layer_{i}", m, stack == "decoder")
    weights |= _vocabulary_weights(held, m, source, target)
    held.finish(ignored=KNOWN)
    return weights


def _bias(held: Tensors, target: Vocabulary) -> Tensor:
    """The bias of the projection, without what our exports forbid in it: all three tokens that no search here writes.
    Training elsewhere may have made one of them or two as improbable."""
    bias, never = target.bias(held.take_or_zeros("decoder/projection/bias", target.size)), [PAD, UNKNOWN, BEGIN]
    if not {*never} & {*target.added} and (bias[never] < NEVER / 2).all():
        bias[never] -= NEVER
    return bias


def _vocabulary_weights(held: Tensors, m: ModelSettings, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    """Embeddings and projection. Marian begins with no embedding at all: BEGIN's is then zero."""
    of_source, of_target = _embeddings(held)
    zero_begin = bool(held.scalar("decoder/start_from_zero_embedding", 0))
    weights = {"projection.bias": _bias(held, target)}
    table = target.table(held.take(of_target, target.size, m.d_model))
    if zero_begin:
        table[BEGIN] = 0
    if m.tie_source:
        held.drop([of_source])
        weights["source.tokens.weight"] = table  # a weight with several names goes by its first
    else:
        weights["source.tokens.weight"] = source.table(held.take(of_source, source.size, m.d_model))
        weights["target.tokens.weight"] = table
    if m.tie_output:
        held.drop(["decoder/projection/weight"])
    else:
        weights["projection.weight"] = target.table(held.take("decoder/projection/weight", target.size, m.d_model))
    return weights


def _layer(held: Tensors, ours: str, theirs: str, m: ModelSettings, decoder: bool) -> dict[str, Tensor]:
    """q, k and v lie in one matrix there, k and v of the memory in another."""
    weights: dict[str, Tensor] = {}
    groups = [("self", "self_attention", ["query,key,value", "output"])]
    groups += [("cross", "attention", ["query", "key,value", "output"])] if decoder else []
    for name, other, linears in groups:
        for i, parts in enumerate(linears):
            names = [f"{ours}.{name}_attention.{part}" for part in parts.split(",")]
            weights |= _linear(held, names, f"{theirs}/{other}/linear_{i}", m.d_model, m.d_model)
        weights |= _norm(held, f"{ours}.{name}_residual.norm", f"{theirs}/{other}/layer_norm", m)
    weights |= _linear(held, [f"{ours}.feed_forward.inner"], f"{theirs}/ffn/linear_0", m.d_ff, m.d_model)
    weights |= _linear(held, [f"{ours}.feed_forward.outer"], f"{theirs}/ffn/linear_1", m.d_model, m.d_ff)
    return weights | _norm(held, f"{ours}.feed_forward_residual.norm", f"{theirs}/ffn/layer_norm", m)


def _linear(held: Tensors, ours: Sequence[str], theirs: str, rows: int, columns: int) -> dict[str, Tensor]:
    weight = held.take(f"{theirs}/weight", rows * len(ours), columns).split(rows)
    bias = held.take_or_zeros(f"{theirs}/bias", rows * len(ours)).split(rows)
    parts = {"weight": weight, "bias": bias}
    return {f"{name}.{part}": values[i].clone() for part, values in parts.items() for i, name in enumerate(ours)}


def _norm(held: Tensors, ours: str, theirs: str, m: ModelSettings) -> dict[str, Tensor]:
    parts = {"weight": "gamma", "bias": "beta"}
    return {f"{ours}.{part}": held.take(f"{theirs}/{other}", m.d_model) for part, other in parts.items()}
