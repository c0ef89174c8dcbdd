"""A folder of CTranslate2's as a model of ours, whatever its weights are stored in: they become float32 again.

CTranslate2 keeps no tokenizer. Beside model.bin there must be source.spm and target.spm, or one SentencePiece model for
both languages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.errors import ModelError, SettingsError
from transduce.files import strict_json
from transduce.files.reading import SMALL, VOCABULARY
from transduce.formats.binary import read_binary
from transduce.formats.converted import Converted
from transduce.formats.json_files import number, read_file, read_json
from transduce.formats.pieces import kind_of, read_pieces, renumbered
from transduce.formats.tensors import Tensors
from transduce.formats.vocabulary import Special, Vocabulary, by_id
from transduce.nn.positions import TABLES, fairseq_table
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, ModelSettings
from transduce.text.languages import mark_of
from transduce.text.moses import MosesTokenizer
from transduce.text.special import BEGIN
from transduce.text.tokenizers import file_names

MODEL, CONFIG = "model.bin", "config.json"
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # by their numbers there
PADS = ("<pad>", "<blank>")  # what padding is called, where there is a token for it
BPE = "bpe.model"  # merges of words, as subword-nmt writes them
ONE_MODEL = ("sentencepiece.model", "sentencepiece.bpe.model", "spm.model", "tokenizer.model")
LANGUAGE = re.compile(r"__(\w{2,3})__|([a-z]{3}_[A-Z][a-z]{3})|([a-z]{2}_[A-Z]{2})")  # marks of M2M100, NLLB, mBART
STACKS = {"encoder": "source", "decoder": "target"}  # and the embedding of each
UNSAID_POSITIONS = 500  # where a file has no table
USUAL_EPSILON = 1e-5  # of norms
SAID: tuple[str, ...] = (
    "activation",
    r"alibi\w*",
    r"alignment_\w+",
    "embeddings_merge",
    "multi_query_attention",
    r"num_heads\w*",
)
SAID += ("pre_norm", r"scale_\w+", "start_from_zero_embedding", "position_encodings/encodings", "sliding_window")
KNOWN = rf"(encoder|decoder)/({'|'.join(SAID)})|num_heads"  # what a stack says of itself, beside its weights
SEARCH = {"beam": 2, "penalty": "plain", "length_penalty": 1.0, "stop": "usual"}  # as CTranslate2 does if not told
SAME = 2e-3  # how far a table of positions may be from the formula: the last bits of float16


class Facts(NamedTuple):
    """What config.json says; older folders have none."""

    begin: str
    end: str
    unknown: str
    adds_end: bool
    epsilon: float


def is_folder(folder: Path) -> bool:
    return (folder / MODEL).exists()


def read(folder: Path) -> Converted:
    """An encoder-decoder Transformer."""
    kind, _, variables = read_binary(folder / MODEL)
    if not kind.startswith("Transformer") or "decoder/projection/weight" not in variables:
        raise ModelError(f"{folder} holds a {kind[:40] or 'model without a name'}, not a Transformer that translates")
    held = Tensors(_dequantised(variables, folder), folder)
    facts = _facts(folder)
    names = _names(folder)
    sizes = [held.rows(name) for name in _embeddings(held)]
    source, target = (Vocabulary.of(n, size, _special(n, facts)) for n, size in zip(names, sizes, strict=True))
    shared = source.tokens == target.tokens
    m = _model_settings(held, folder)
    m["eps"] = facts.epsilon
    m["tie_source"] = shared and held.are_equal(*_embeddings(held))
    m["tie_output"] = held.are_equal("decoder/embeddings/weight", "decoder/projection/weight")
    m["source_end"] = facts.adds_end or facts.begin != "<s>"  # OpenNMT begins with <s> and reads no end; Marian does
    text, files = _text(folder, source, target)
    data = {"max_tokens": min(DataSettings.max_tokens, m["max_positions"])}
    try:
        settings = compose({"model": m, "text": text, "data": data, "search": SEARCH})
    except SettingsError as error:
        raise ModelError(f"{folder}: what {MODEL} says of itself cannot be: {error}") from error
    weights = _weights(held, settings.model, source, target)
    return Converted(settings, weights, dict(zip(file_names(settings.text), files, strict=False)))


# ---- numbers


def _dequantised(variables: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Every variable in float32: whole numbers are divided by the scale beside them, one a row or one for all."""
    found = {}
    for name, value in variables.items():
        if name.endswith("_scale"):
            continue
        if value.dtype in (torch.int8, torch.int16) and value.dim() > 1:
            scale = variables.get(f"{name}_scale")
            if scale is None or scale.numel() not in (1, len(value)):
                raise ModelError(f"{folder / MODEL}: {name[:80]} is in whole numbers, and their scale is not there")
            value = value.float() / scale.float().view(-1, *[1] * (value.dim() - 1))
        if not value.float().isfinite().all():
            raise ModelError(f"{folder / MODEL} holds numbers that are infinite or none (NaN), in {name[:80]}")
        found[name] = value
    return found


def _embeddings(held: Tensors) -> tuple[str, str]:
    of_source = "encoder/embeddings_0/weight" if "encoder/embeddings_0/weight" in held else "encoder/embeddings/weight"
    return of_source, "decoder/embeddings/weight"


def _model_settings(held: Tensors, folder: Path) -> dict[str, Any]:
    """What the file says of itself, in our words. What it does not say has been usual for CTranslate2 ever since."""
    width = held.columns("decoder/embeddings/weight")
    layers, decoder_layers = (held.count(rf"{stack}/layer_(\d+)/") for stack in ("encoder", "decoder"))
    for strange in ("alibi", "multi_query_attention"):
        if any(held.scalar(f"{stack}/{strange}", 0) for stack in ("encoder", "decoder")):
            raise ModelError(f"{folder} has {strange}, which a model here has not")
    activation = held.scalar("encoder/activation", 0)
    if activation not in ACTIVATIONS:
        raise ModelError(f"{folder}: its activation, number {activation}, is none of {', '.join(ACTIVATIONS.values())}")
    before = bool(held.scalar("encoder/pre_norm", 1))
    heads = int(held.scalar("encoder/num_heads", held.scalar("num_heads", 8)))
    tables = [_table(held, stack, width) for stack in STACKS]
    formulas = {_formula(table, width) for table in tables}
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
        "scale": "embedding" if held.scalar("encoder/scale_embeddings", 1) else "none",
        "activation": ACTIVATIONS[int(activation)],
        "output_bias": True,
    }


def _table(held: Tensors, stack: str, width: int) -> Tensor:
    """Of positions; where the file has none, CTranslate2 computes fairseq's, counted from 1."""
    table = held.peek(f"{stack}/position_encodings/encodings")
    return fairseq_table(UNSAID_POSITIONS, width, first=1) if table is None else table.float()


def _formula(table: Tensor, width: int) -> str:
    """The formula that made a table, or `learned`: it is then carried over as it is."""
    if table.shape[1:] != (width,) or width % 2:
        return "learned"
    made = (kind for kind, make in TABLES.items() if (make(len(table), width) - table).abs().max() < SAME)
    return next(made, "learned")


def _weights(held: Tensors, m: ModelSettings, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    tables = [_table(held, stack, m.d_model) for stack in STACKS]
    for (stack, side), table in zip(STACKS.items(), tables, strict=True):
        if m.positions == "learned":
            weights[f"{side}.positions.table.weight"] = table
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


def _vocabulary_weights(held: Tensors, m: ModelSettings, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    """Embeddings and projection. Marian begins with no embedding at all: BEGIN's is then zero."""
    of_source, of_target = _embeddings(held)
    zero_begin = bool(held.scalar("decoder/start_from_zero_embedding", 0))
    weights = {"projection.bias": target.bias(held.take_or_zeros("decoder/projection/bias", target.size))}
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


# ---- text


def _facts(folder: Path) -> Facts:
    config = read_json(folder / CONFIG, SMALL) if (folder / CONFIG).exists() else {}
    keys = {"decoder_start_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    begin, end, unknown = (str(config.get(key) or usual) for key, usual in keys.items())
    if config.get("add_source_bos"):
        raise ModelError(f"{folder} puts {config.get('bos_token')} before every source, which cannot be converted yet")
    epsilon = number(config, "layer_norm_epsilon", USUAL_EPSILON)
    return Facts(begin, end, unknown, bool(config.get("add_source_eos")), epsilon)


def _names(folder: Path) -> list[dict[int, str]]:
    """The tokens of source and target by id, marks of languages by our names."""
    for names in (["shared_vocabulary"] * 2, ["source_vocabulary", "target_vocabulary"]):
        paths = [next((p for p in (folder / f"{n}.json", folder / f"{n}.txt") if p.exists()), None) for n in names]
        if None not in paths:
            return [_listed(path) for path in paths if path is not None]
    raise ModelError(f"{folder} has no vocabulary: shared_vocabulary.json, or source_ and target_vocabulary.json")


def _listed(path: Path) -> dict[int, str]:
    try:
        text = read_file(path, VOCABULARY).decode("utf-8")
        tokens = strict_json.loads(text) if path.suffix == ".json" else text.removesuffix("\n").split("\n")
    except ValueError as error:
        raise ModelError(f"{path} is no list of tokens: {str(error)[:100]}") from error
    if not isinstance(tokens, list):
        raise ModelError(f"{path} must be a list of tokens")
    return {i: _our_name(name) for i, name in by_id(tokens).items()}


def _our_name(token: str) -> str:
    match = LANGUAGE.fullmatch(token)
    return token if match is None else mark_of(next(filter(None, match.groups())))


def _special(names: dict[int, str], facts: Facts) -> Special:
    ids = {name: i for i, name in names.items()}
    if facts.end not in ids or (facts.begin not in ids):
        raise ModelError(f"its vocabulary lacks {facts.end} or {facts.begin}, which its translations end or begin with")
    pad = next((ids[name] for name in PADS if name in ids), None)
    return Special(pad, ids.get(facts.unknown), ids[facts.begin], ids[facts.end])


def _text(folder: Path, source: Vocabulary, target: Vocabulary) -> tuple[dict[str, Any], list[bytes]]:
    """Settings of the section `text`, and the files of both tokenizers."""
    shared = source.tokens == target.tokens
    sizes = {"vocabulary": len(source.tokens), "target_vocabulary": len(target.tokens)}
    if (folder / BPE).exists() and not any((folder / name).exists() for name in (*ONE_MODEL, "source.spm")):
        settings = {"tokenizer": "moses", "joint": False, "same_ids": shared, **sizes}
        return settings, _moses(folder, source, target)
    models = _sentence_pieces(folder)
    joint = shared and len(models) == 1
    settings = {"tokenizer": kind_of(models[0]), "joint": joint, "same_ids": shared and not joint, **sizes}
    if joint:
        del settings["target_vocabulary"]
    files = [
        renumbered(model, v.tokens, controls=[t for t in v.tokens if t.startswith("<language ")])
        for model, v in zip([models[0], models[-1]], (source, target), strict=True)
    ]
    return settings, files


def _moses(folder: Path, source: Vocabulary, target: Vocabulary) -> list[bytes]:
    """Words by Moses and BPE; which rules, the languages in an Argos package's metadata.json say."""
    facts = read_json(folder / "metadata.json", SMALL) if (folder / "metadata.json").exists() else {}
    codes = [facts.get("from_code"), facts.get("to_code")]
    if not all(isinstance(code, str) for code in codes):
        raise ModelError(f"{folder} has a {BPE}, and no metadata.json that names its languages: from_code and to_code")
    try:
        merges = read_file(folder / BPE, VOCABULARY).decode("utf-8")
        both = zip(map(str, codes), (source, target), strict=True)
        return [MosesTokenizer.of(code, v.tokens, merges).to_bytes() for code, v in both]
    except ValueError as error:
        raise ModelError(f"{folder / BPE} is no list of merges: {str(error)[:100]}") from error


def _sentence_pieces(folder: Path) -> list[bytes]:
    """Of source and target, or one for both."""
    two = [folder / "source.spm", folder / "target.spm"]
    one = [folder / name for name in ONE_MODEL if (folder / name).exists()]
    paths = two if all(path.exists() for path in two) else one[:1]
    if not paths:
        raise ModelError(
            f"{folder} has no tokenizer, which CTranslate2 leaves to others: copy the model's source.spm and "
            f"target.spm there, or its sentencepiece.model"
        )
    models = [read_file(path, VOCABULARY) for path in paths]
    for path, model in zip(paths, models, strict=True):
        if not read_pieces(model):
            raise ModelError(f"{path} is no SentencePiece model")
    return models[:1] if models[0] == models[-1] else models
