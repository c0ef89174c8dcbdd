"""A folder of Hugging Face's with a MarianMTModel (all of OPUS-MT) as a model of ours.

The file names, and what config.json calls things, are Hugging Face's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from transduce.errors import ModelError, SettingsError
from transduce.files import strict_json
from transduce.files.reading import SMALL, VOCABULARY, read_bytes
from transduce.formats.pickled import read_pickled
from transduce.formats.pieces import kind_of, renumbered
from transduce.formats.tensors import Tensors
from transduce.formats.vocabulary import Special, Vocabulary, by_id
from transduce.models.weights import read_weights
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, ModelSettings, Settings
from transduce.text.tokenizers import file_names

CONFIG, GENERATION, WEIGHTS = "config.json", "generation_config.json", "model.safetensors"
PICKLE = "pytorch_model.bin"
ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}
SHARED = "model.shared.weight"
EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
PARTS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


class Converted(NamedTuple):
    """All that a model folder needs."""

    settings: Settings
    weights: dict[str, Tensor]
    tokenizers: dict[str, bytes]


def read(folder: Path) -> Converted:
    """A MarianMTModel."""
    config = {**_json(folder / CONFIG, SMALL), **_generation(folder)}
    _refuse_other_kinds(folder, config)
    held = Tensors(_tensors(folder), folder)
    shared = bool(config.get("share_encoder_decoder_embeddings", True))
    m = {**model_settings(config), "tie_source": shared and held.are_equal(*EMBEDDINGS)}
    names = _names(folder / "vocab.json")
    sizes = [_whole(config, "vocab_size"), _whole(config, "decoder_vocab_size", config.get("vocab_size"))]
    source = Vocabulary.of(names, sizes[0], _special(config, names))
    target = source
    if not shared:
        names = _names(folder / "target_vocab.json")
        target = Vocabulary.of(names, sizes[1], _special(config, names))
    spm = [_read(folder / f"{side}.spm", VOCABULARY) for side in ("source", "target")]
    sections = {
        "model": m,
        "text": _text_settings(spm[0], source, target, shared),
        "search": search_settings(config),
        "data": {"max_tokens": min(DataSettings.max_tokens, m["max_positions"])},
    }
    try:
        settings = compose(sections)
    except SettingsError as error:
        raise ModelError(f"{folder}: its {CONFIG} cannot be: {error}") from error
    weights = _weights(held, settings.model, source, target)
    sides = zip(file_names(settings.text), spm, (source, target), strict=True)
    files = {name: renumbered(model, v.tokens, _languages(v)) for name, model, v in sides}
    return Converted(settings, weights, files)


def _refuse_other_kinds(folder: Path, config: Mapping[str, Any]) -> None:
    kind = config.get("model_type")
    if kind != "marian":
        raise ModelError(
            f"{folder} holds a model of the kind {kind!r}; what can be converted from this format is marian"
        )
    if config.get("normalize_embedding") or config.get("normalize_before") or config.get("add_final_layer_norm"):
        raise ModelError(f"{folder}: norms before its layers, or of its embeddings, are no part of MarianMTModel")
    for side in ("attention_heads", "ffn_dim"):
        if config.get(f"encoder_{side}") != config.get(f"decoder_{side}"):
            raise ModelError(f"{folder}: encoder_{side} and decoder_{side} differ; a model here has one for both")


def model_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json in our words."""
    activation = config.get("activation_function", "swish")
    if activation not in ACTIVATIONS:
        raise ModelError(f"its activation_function {activation!r} is none of {', '.join(ACTIVATIONS)}")
    tied = bool(config.get("tie_word_embeddings", True))
    return {
        "layers": _whole(config, "encoder_layers"),
        "decoder_layers": _whole(config, "decoder_layers"),
        "d_model": _whole(config, "d_model"),
        "d_ff": _whole(config, "encoder_ffn_dim"),
        "heads": _whole(config, "encoder_attention_heads"),
        "norm": "after",
        "positions": "halves",
        "max_positions": _whole(config, "max_position_embeddings"),
        "scale": "embedding" if config.get("scale_embedding") else "none",
        "activation": ACTIVATIONS[activation],
        "output_bias": True,
        "tie_output": tied,
        "dropout": float(config.get("dropout", 0.1)),
    }


def search_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """As its `generate` would search."""
    return {
        "beam": _whole(config, "num_beams", 1),
        "penalty": "plain",
        "length_penalty": float(config.get("length_penalty") or 1.0),
        "no_repeat": _whole(config, "no_repeat_ngram_size", 0),
        "stop": "usual" if config.get("early_stopping") is True else "exact",
    }


def layer_names(m: ModelSettings) -> dict[str, str]:
    """Our names of modules within the layers, and theirs."""
    names: dict[str, str] = {}
    for stack, count in (("encoder", m.layers), ("decoder", m.decoder_layers or m.layers)):
        attentions = {"self": "self_attn"} | ({"cross": "encoder_attn"} if stack == "decoder" else {})
        for i in range(count):
            ours, theirs = f"{stack}.{i}", f"model.{stack}.layers.{i}"
            for part, name in attentions.items():
                names |= {f"{ours}.{part}_attention.{a}": f"{theirs}.{name}.{b}" for a, b in PARTS.items()}
                names[f"{ours}.{part}_residual.norm"] = f"{theirs}.{name}_layer_norm"
            names |= {f"{ours}.feed_forward.inner": f"{theirs}.fc1", f"{ours}.feed_forward.outer": f"{theirs}.fc2"}
            names[f"{ours}.feed_forward_residual.norm"] = f"{theirs}.final_layer_norm"
    return names


def _shape(name: str, m: ModelSettings) -> tuple[int, ...]:
    """Of the weight of one of our modules."""
    if name.endswith("norm"):
        return (m.d_model,)
    if name.endswith("inner"):
        return (m.d_ff, m.d_model)
    return (m.d_model, m.d_ff if name.endswith("outer") else m.d_model)


def _weights(held: Tensors, m: ModelSettings, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    weights = {}
    for ours, theirs in layer_names(m).items():
        shape = _shape(ours, m)
        weights[f"{ours}.weight"] = held.take(f"{theirs}.weight", *shape)
        weights[f"{ours}.bias"] = held.take(f"{theirs}.bias", shape[0])
    rows = [len(v.rows) - v.begin_is_copied for v in (source, target)]
    if m.tie_source:
        name = next((n for n in (SHARED, *EMBEDDINGS, "lm_head.weight") if n in held), SHARED)
        shared = held.take(name, rows[1], m.d_model)
        weights["source.tokens.weight"] = target.table(shared)  # a weight with several names goes by its first
        held.drop(EMBEDDINGS)
    else:
        weights["source.tokens.weight"] = source.table(held.take(EMBEDDINGS[0], rows[0], m.d_model))
        weights["target.tokens.weight"] = target.table(held.take(EMBEDDINGS[1], rows[1], m.d_model))
    held.drop([SHARED])
    if m.tie_output:
        held.drop(["lm_head.weight"])
    else:
        weights["projection.weight"] = target.table(held.take("lm_head.weight", rows[1], m.d_model))
    weights["projection.bias"] = target.bias(held.take("final_logits_bias", 1, rows[1]))
    held.drop([f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")])
    held.finish()
    return weights


def _tensors(folder: Path) -> Mapping[str, Tensor]:
    """From model.safetensors; or from a file of torch.save, of which nothing is run."""
    if (folder / WEIGHTS).exists() or not (folder / PICKLE).exists():
        return read_weights((folder / WEIGHTS).resolve())
    found = read_pickled((folder / PICKLE).resolve())
    broken = next((name for name, tensor in found.items() if not tensor.isfinite().all()), None)
    if broken is not None:
        raise ModelError(f"{folder / PICKLE} holds numbers that are infinite or none (NaN), in {broken[:80]}")
    return found


def _text_settings(spm: bytes, source: Vocabulary, target: Vocabulary, shared: bool) -> dict[str, Any]:
    """Two SentencePiece models, even where there is one vocabulary."""
    sizes = {"vocabulary": len(source.tokens), "target_vocabulary": len(target.tokens)}
    return {"tokenizer": kind_of(spm), "joint": False, "same_ids": shared, **sizes}


def _names(path: Path) -> dict[int, str]:
    """Tokens by id. A mark such as >>fra<<, which a source may begin with, is a word of its own in our text."""
    found = by_id(_json(path, VOCABULARY))
    return {i: f"▁{name}" if name.startswith(">>") and name.endswith("<<") else name for i, name in found.items()}


def _languages(vocabulary: Vocabulary) -> list[str]:
    return [token for token in vocabulary.tokens if token.startswith("▁>>") and token.endswith("<<")]


def _special(config: Mapping[str, Any], names: Mapping[int, str]) -> Special:
    unknown = next((i for i, name in names.items() if name == "<unk>"), -1)
    keys = ("pad_token_id", "decoder_start_token_id", "eos_token_id")
    pad, begin, end = (_whole(config, key) for key in keys)
    return Special(pad, unknown, begin, end)


def _whole(config: Mapping[str, Any], key: str, default: Any = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**9:
        raise ModelError(f"{CONFIG} must have {key}, a whole number, not {value!r}")
    return value


def _generation(folder: Path) -> dict[str, Any]:
    """How the model wants to be searched; older folders have that in config.json."""
    path = folder / GENERATION
    known = ("num_beams", "length_penalty", "no_repeat_ngram_size", "early_stopping", "decoder_start_token_id")
    found = _json(path, SMALL) if path.exists() else {}
    return {key: found[key] for key in known if found.get(key) is not None}


def _json(path: Path, most: int) -> dict[str, Any]:
    try:
        found = strict_json.loads(_read(path, most))
    except ValueError as error:
        raise ModelError(f"{path} is no JSON: {str(error)[:100]}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} must be an object")
    return found


def _read(path: Path, most: int) -> bytes:
    """A file of the folder; caches of models keep links there."""
    try:
        return read_bytes(path.resolve(), most)
    except OSError as error:
        raise ModelError(f"{path} {error.strerror or error}") from error
