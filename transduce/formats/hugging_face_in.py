"""A folder of Hugging Face's as a model of ours: MarianMTModel (all of OPUS-MT), M2M100, NLLB, mBART, BART.

The file names, and what config.json calls things, are Hugging Face's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from transduce.core.special import PAD
from transduce.errors import ModelError, SettingsError
from transduce.files.reading import SMALL
from transduce.formats.converted import Converted
from transduce.formats.hugging_face_text import Text, text_of_bytes, text_of_many, text_of_two
from transduce.formats.hugging_face_weights import read_folder
from transduce.formats.json_files import number, read_json, whole
from transduce.formats.tensors import Tensors
from transduce.formats.vocabulary import NEVER, Vocabulary
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, ModelSettings
from transduce.text.tokenizers import file_names

CONFIG, GENERATION = "config.json", "generation_config.json"
ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}
SHARED = "model.shared.weight"
EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
PARTS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
STACKS = {"encoder": "source", "decoder": "target"}  # and the embedding of each
OFFSET = 2  # rows of a learned table of positions that stand before the first


class Kind(NamedTuple):
    """What all models of a kind have in common."""

    norm: Literal["after", "before"]
    positions: Literal["halves", "fairseq", "learned"]
    embedding_norm: bool
    has_bias: bool  # in the projection onto the vocabulary
    forced_end: bool = True  # by the library of older folders, whose config.json alone says how to search


KINDS = {
    "marian": Kind("after", "halves", embedding_norm=False, has_bias=True),
    "pegasus": Kind("before", "halves", embedding_norm=False, has_bias=True),  # as we send one out
    "m2m_100": Kind("before", "fairseq", embedding_norm=False, has_bias=False, forced_end=False),  # NLLB too
    "mbart": Kind("before", "learned", embedding_norm=True, has_bias=True),
    "bart": Kind("after", "learned", embedding_norm=True, has_bias=True),
}

TEXTS: dict[str, Callable[[Path, Mapping[str, Any]], Text]] = {
    **dict.fromkeys(("marian", "pegasus"), text_of_two),
    **dict.fromkeys(("m2m_100", "mbart"), text_of_many),
    "bart": text_of_bytes,
}


# How `generate` searches, by the names of its settings: those that are taken over, and others that would change a text,
# each with its value where it does nothing.
TAKEN = {"num_beams", "length_penalty", "no_repeat_ngram_size", "early_stopping", "min_length", "repetition_penalty"}
TAKEN |= {"forced_eos_token_id", "forced_bos_token_id", "decoder_start_token_id", "renormalize_logits"}
NOT_TAKEN: dict[str, Any] = {"do_sample": False, "num_beam_groups": 1, "max_new_tokens": None, "min_new_tokens": None}
NOT_TAKEN |= {"suppress_tokens": None, "begin_suppress_tokens": None, "exponential_decay_length_penalty": None}
NOT_TAKEN |= {"encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "sequence_bias": None}


def read(folder: Path) -> Converted:
    """A model of one of the kinds. Where there is a generation_config.json, it alone says how to search."""
    config, path = read_json(folder / CONFIG, SMALL), folder / GENERATION
    if path.exists():
        told, known = read_json(path, SMALL), {*TAKEN, *NOT_TAKEN, "bad_words_ids"}
        kept = {key: value for key, value in config.items() if key not in known or key == "decoder_start_token_id"}
        config = {**kept, "forced_eos_token_id": None, **{key: told[key] for key in known if told.get(key) is not None}}
    kind = _kind(folder, config)
    text = TEXTS[config["model_type"]](folder, config)
    found = converted(folder, config, kind, text, _as_whole(read_folder(folder)))
    return found._replace(notes=tuple(_not_taken_over(config)))


def _not_taken_over(config: Mapping[str, Any]) -> Iterator[str]:
    """What of its `generate` is done otherwise here."""
    lost = [f"{key}={config[key]}" for key, usual in NOT_TAKEN.items() if config.get(key, usual) not in (usual, [])]
    special = {1} if config["model_type"] == "marian" else {0, 1, 3}  # <unk>; <s>, <pad>, <unk>: never written here
    special |= _ids(config.get("pad_token_id")) | _ids(config.get("decoder_start_token_id"))
    words = config.get("bad_words_ids")
    bad = [word for word in words if _ids(word) - special] if isinstance(words, list) else []
    lost += [f"bad_words_ids of {len(bad):,} words (--forbid keeps words from being written)"] if bad else []
    if number(config, "length_penalty", 1.0) < 0:
        lost.append(f"length_penalty={config['length_penalty']}, for which it is 0 here")
    if number(config, "repetition_penalty", 1.0) < 1:
        lost.append(f"repetition_penalty={config['repetition_penalty']}")
    if config["model_type"] == "marian" and config.get("forced_bos_token_id") is not None:
        lost.append(f"forced_bos_token_id={config['forced_bos_token_id']}")
    if lost:
        yield f"of how the model wants to be searched this is not taken over: {', '.join(lost)}"
    if config["model_type"] == "bart" and config.get("forced_bos_token_id") is None:
        yield "every translation begins with <s> here, which the folder does not say (forced_bos_token_id)"


def converted(
    folder: Path, config: Mapping[str, Any], kind: Kind, text: Text, weights: Mapping[str, Tensor]
) -> Converted:
    """From weights by Hugging Face's names, and what its config.json would say."""
    held = Tensors(weights, folder)
    shared = text.settings["joint"] or text.settings["same_ids"]
    m = {**model_settings(config, kind), "tie_source": shared and held.are_equal(*EMBEDDINGS), **text.model}
    sections = {
        "model": m,
        "text": text.settings,
        "search": search_settings(config, kind, text.begins),
        "data": {"max_tokens": min(DataSettings.max_tokens, m["max_positions"])},
    }
    try:
        settings = compose(sections)
    except SettingsError as error:
        raise ModelError(f"{folder}: its {CONFIG} cannot be: {error}") from error
    ours = _weights(held, settings.model, kind, text.vocabularies[0], text.vocabularies[-1])
    if config.get("renormalize_logits"):  # without padding, which Marian has not and would take its share
        ours["projection.bias"][PAD] += NEVER
    return Converted(settings, ours, dict(zip(file_names(settings.text), text.files, strict=True)))


def _as_whole(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """By the names of the whole model, where they are those of all but its projection, as in facebook/bart-base."""
    if any(name.startswith("model.") for name in weights):
        return weights
    return {f"model.{n}" if n.startswith(("shared.", "encoder.", "decoder.")) else n: w for n, w in weights.items()}


def _kind(folder: Path, config: Mapping[str, Any]) -> Kind:
    name = str(config.get("model_type"))
    if name not in KINDS:
        known = ", ".join(KINDS)
        raise ModelError(
            f"{folder} holds a model of the kind {name!r}; what can be converted from this format: {known}"
        )
    if name == "marian" and any(map(config.get, ("normalize_embedding", "normalize_before", "add_final_layer_norm"))):
        raise ModelError(f"{folder}: norms before its layers, or of its embeddings, are no part of MarianMTModel")
    for side in ("attention_heads", "ffn_dim"):
        if config.get(f"encoder_{side}") != config.get(f"decoder_{side}"):
            raise ModelError(f"{folder}: encoder_{side} and decoder_{side} differ; a model here has one for both")
    return KINDS[name]


def model_settings(config: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """config.json in our words."""
    activation = str(config.get("activation_function", "swish"))
    if activation not in ACTIVATIONS:
        raise ModelError(f"its activation_function {activation!r} is none of {', '.join(ACTIVATIONS)}")
    tied = bool(config.get("tie_word_embeddings", True))
    return {
        "layers": whole(config, "encoder_layers"),
        "decoder_layers": whole(config, "decoder_layers"),
        "d_model": whole(config, "d_model"),
        "d_ff": whole(config, "encoder_ffn_dim"),
        "heads": whole(config, "encoder_attention_heads"),
        "norm": kind.norm,
        "embedding_norm": kind.embedding_norm,
        "positions": kind.positions,
        "max_positions": whole(config, "max_position_embeddings"),
        "scale": "embedding" if config.get("scale_embedding") else "none",
        "activation": ACTIVATIONS[activation],
        "output_bias": True,  # if only to keep a copied begin from being written
        "tie_output": tied,
        "dropout": number(config, "dropout", 0.1),
    }


def search_settings(config: Mapping[str, Any], kind: Kind, begins: int) -> dict[str, Any]:
    """As its `generate` would search, but for `max_length`: how long a translation may become, its source decides.
    `begins`: tokens that every translation begins with; `min_length` counts them, and the one that stands before."""
    early, end = config.get("early_stopping"), config.get("eos_token_id")
    forced = config.get("forced_eos_token_id", end if kind.forced_end else None)
    forces_end = bool(_ids(forced) & _ids(end))  # either may be a list
    return {
        "beam": whole(config, "num_beams", 1),
        "penalty": "plain",
        "length_penalty": max(0.0, number(config, "length_penalty", 1.0)),
        "repetition_penalty": max(1.0, number(config, "repetition_penalty", 1.0)),
        "no_repeat": whole(config, "no_repeat_ngram_size", 0),
        "min_length": max(0, whole(config, "min_length", 0) - 1 - begins),
        "stop": "usual" if early is True else "exact" if early == "never" else "likely",
        "forced_end": forces_end,
    }


def _ids(value: Any) -> set[int]:
    """One number, or a list of them."""
    return {i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)}


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
    """The shape of the weight of one of our modules."""
    if name.endswith("norm"):
        return (m.d_model,)
    if name.endswith("inner"):
        return (m.d_ff, m.d_model)
    return (m.d_model, m.d_ff if name.endswith("outer") else m.d_model)


def _weights(held: Tensors, m: ModelSettings, kind: Kind, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    weights = {}
    for ours, theirs in layer_names(m).items():
        shape = _shape(ours, m)
        weights[f"{ours}.weight"] = held.take(f"{theirs}.weight", *shape)
        weights[f"{ours}.bias"] = held.take(f"{theirs}.bias", shape[0])
    rows = [v.size for v in (source, target)]
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
    bias = held.take_or_zeros("final_logits_bias", 1, rows[1]) if kind.has_bias else torch.zeros(1, rows[1])
    weights["projection.bias"] = target.bias(bias)
    for ours, theirs in outer_norms(m).items():
        for part in ("weight", "bias"):
            weights[f"{ours}.{part}"] = held.take(f"{theirs}.{part}", m.d_model)
    for stack, side in STACKS.items():
        positions = f"model.{stack}.embed_positions.weight"
        if m.positions == "learned":
            table = held.take(positions, m.max_positions + OFFSET, m.d_model)
            weights[f"{side}.positions.table.weight"] = table[OFFSET:].contiguous()
        held.drop([positions, f"{positions}s", f"model.{stack}.version"])
    held.finish()
    return weights


def outer_norms(m: ModelSettings) -> dict[str, str]:
    """Our names of the norms outside the layers, and theirs."""
    names = {f"{side}.norm": f"model.{stack}.layernorm_embedding" for stack, side in STACKS.items()}
    names = names if m.embedding_norm else {}
    return names | ({f"{stack}_norm": f"model.{stack}.layer_norm" for stack in STACKS} if m.norm == "before" else {})
