"""A folder of JoeyNMT's as a model of ours: config.yaml, best.ckpt, src_vocab.txt and trg_vocab.txt, as its training
leaves them, and the SentencePiece model that config.yaml names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError, SettingsError
from transduce.files.reading import SMALL, VOCABULARY, followed
from transduce.formats.converted import Converted
from transduce.formats.json_files import read_file
from transduce.formats.pickled import read_pickled
from transduce.formats.pieces import renumbered
from transduce.formats.tensors import Tensors
from transduce.formats.vocabulary import Special, Vocabulary, text_settings, token_lines
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, ModelSettings
from transduce.text.tokenizers import file_names

CONFIG, WEIGHTS = "config.yaml", "best.ckpt"
SIDES = {"src": "encoder", "trg": "decoder"}
EMBEDDINGS, OUTPUT = ("src_embed.lut.weight", "trg_embed.lut.weight"), "decoder.output_layer.weight"
ACTIVATIONS = ("relu", "gelu", "swish")
EPSILON = 1e-6
POSITIONS = 1024  # of its 5,000, which are computed
PARTS = {"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"}
ATTENTIONS = {"encoder": {"self": "src_src_att"}, "decoder": {"self": "trg_trg_att", "cross": "src_trg_att"}}
NORMS = {
    "encoder": {"self": "layer_norm", "feed_forward": "feed_forward.layer_norm"},
    "decoder": {"self": "x_layer_norm", "cross": "dec_layer_norm", "feed_forward": "feed_forward.layer_norm"},
}


def is_folder(folder: Path) -> bool:
    return (folder / CONFIG).exists() and (folder / WEIGHTS).exists()


def read(folder: Path) -> Converted:
    """A Transformer. Its recurrent models are of another make than ours."""
    config = _config(folder)
    held = Tensors(read_pickled(followed(folder / WEIGHTS), part="model_state"), folder)
    source, target, text, files = _text(folder, config, held)
    m = _model_settings(folder, config, held)
    joint = text["joint"] or text["same_ids"]
    m |= {"tie_source": joint and held.are_equal(*EMBEDDINGS), "tie_output": held.are_equal(EMBEDDINGS[1], OUTPUT)}
    data = {"max_tokens": min(DataSettings.max_tokens, POSITIONS)}
    try:
        settings = compose({"model": m, "text": text, "data": data, "search": _search(config)})
    except SettingsError as error:
        raise ModelError(f"{folder}: its {CONFIG} cannot be: {error}") from error
    weights = _layers(held, settings.model) | _vocabulary_weights(held, settings.model, source, target)
    held.drop([f"{stack}.pe.pe" for stack in SIDES.values()])
    held.finish()
    return Converted(settings, weights, dict(zip(file_names(settings.text), files, strict=False)))


def _search(config: Mapping[str, Any]) -> dict[str, Any]:
    """As its `test` does; without a length penalty where alpha is negative, as it is if not told."""
    testing = config.get("testing")
    said = testing if isinstance(testing, dict) else {}
    alpha = str(said.get("beam_alpha", said.get("alpha", "-1")))
    found = {"beam": said.get("beam_size", 1), "length_penalty": 0.0 if alpha.startswith("-") else alpha}
    blocked = str(said.get("no_repeat_ngram_size", "-1"))
    return found | ({} if blocked.startswith("-") else {"no_repeat": blocked})


def _config(folder: Path) -> dict[str, Any]:
    """Sections that a model needs; all values are text."""
    try:
        found = config_file.plain_yaml(read_file(folder / CONFIG, SMALL).decode("utf-8"))
    except ValueError as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {error}") from error
    for path in ("data.src", "data.trg", "model.encoder", "model.decoder"):
        place = found
        for key in path.split("."):
            place = place.get(key) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise ModelError(f"{folder / CONFIG} is none of JoeyNMT's: it has no section {path}")
    return dict(found)


def _text(
    folder: Path, config: Mapping[str, Any], held: Tensors
) -> tuple[Vocabulary, Vocabulary, dict[str, Any], list[bytes]]:
    """Vocabularies, settings of the section `text`, and the tokenizers' files."""
    sides = [config["data"][side] for side in SIDES]
    lowercase = {str(side.get("lowercase", "false")).lower() == "true" for side in sides}
    if len(lowercase) > 1:
        raise ModelError(f"{folder} reads one side in small letters; a model here reads both so, or neither")
    models = [read_file(_sentence_pieces(folder, side), VOCABULARY) for side in sides]
    vocabularies = []
    for side, embedding in zip(SIDES, EMBEDDINGS, strict=True):
        path = folder / f"{side}_vocab.txt"
        names = dict(enumerate(token_lines(read_file(path, VOCABULARY).decode("utf-8", "replace"))))
        ids = {name: i for i, name in names.items()}
        if missing := [name for name in ("<unk>", "<pad>", "<s>", "</s>") if name not in ids]:
            raise ModelError(f"{path} lacks {', '.join(missing)}")
        special = Special(ids["<pad>"], ids["<unk>"], ids["<s>"], ids["</s>"])
        rows = held.rows(embedding if embedding in held else EMBEDDINGS[0])
        if not len(names) == len(ids) == rows:
            raise ModelError(
                f"{path} lists {len(ids):,} different tokens in {len(names):,} lines; the model has {rows:,}"
            )
        vocabularies.append(Vocabulary.of(names, rows, special))
    source, target = vocabularies
    settings = text_settings(source, target, list(dict.fromkeys(models))) | {"lowercase": lowercase.pop()}
    files = [renumbered(model, v.tokens) for model, v in zip(models, vocabularies, strict=True)]
    return source, target, settings, files


def _sentence_pieces(folder: Path, side: Mapping[str, Any]) -> Path:
    """Where the SentencePiece model of a side is; paths are those of the machine that trained it, names are kept."""
    told = str(side.get("tokenizer_type", "sentencepiece" if side.get("level") == "bpe" else side.get("level")))[:40]
    if told != "sentencepiece":
        raise ModelError(f"{folder} cuts text with {told}; what can be converted cuts it with sentencepiece")
    tokenizer = side.get("tokenizer_cfg")
    tokenizer = tokenizer if isinstance(tokenizer, dict) else {}
    for key, value in (("pretokenizer", tokenizer.get("pretokenizer")), ("normalize", side.get("normalize"))):
        if str(value).lower() not in ("none", "false"):
            raise ModelError(f"{folder} has {key}: {str(value)[:40]}, which changes text in a way of its own")
    named = str(tokenizer.get("model_file", ""))
    path = folder / Path(named).name
    if not named or not path.is_file():
        raise ModelError(f"{folder} needs its SentencePiece model beside {CONFIG}: {Path(named).name or 'model_file'}")
    return path


def _model_settings(folder: Path, config: Mapping[str, Any], held: Tensors) -> dict[str, Any]:
    stacks = [config["model"][stack] for stack in SIDES.values()]
    if any(str(stack.get("type")) != "transformer" for stack in stacks):
        raise ModelError(f"{folder} is no Transformer; JoeyNMT's recurrent models cannot be converted")
    if str(config["model"].get("initializer")) == "xavier_normal":
        raise ModelError(f"{folder} weighs its residuals as DeepNet does (initializer: xavier_normal)")
    has_final = "encoder.layer_norm.weight" in held
    norms = {str(stack.get("layer_norm", "pre" if has_final else "post")) for stack in stacks}
    said = {key: {str(stack.get(key)) for stack in stacks} for key in ("num_heads", "activation")}
    embeddings = [found if isinstance(found := stack.get("embeddings"), dict) else {} for stack in stacks]
    scales = {str(found.get("scale", "false")).lower() for found in embeddings}
    activation = next(iter(said["activation"])).replace("None", "relu")
    if any(len(values) > 1 for values in (norms, *said.values(), scales)) or activation not in ACTIVATIONS:
        raise ModelError(
            f"{folder}: encoder and decoder differ in layer_norm, num_heads, activation or scale, or the activation is "
            f"none of {', '.join(ACTIVATIONS)}"
        )
    return {
        "layers": held.count(r"encoder\.layers\.(\d{1,6})\."),
        "decoder_layers": held.count(r"decoder\.layers\.(\d{1,6})\."),
        "d_model": held.columns(EMBEDDINGS[0]),
        "d_ff": held.rows("encoder.layers.0.feed_forward.pwff_layer.0.weight"),
        "heads": said["num_heads"].pop(),
        "norm": "before" if norms == {"pre"} else "after",
        "final_norm": has_final,
        "eps": EPSILON,
        "positions": "sinusoid",
        "max_positions": POSITIONS,
        "scale": "embedding" if scales == {"true"} else "none",
        "activation": activation,
        "output_bias": True,  # if only to keep what is added from being written
    }


def _layers(held: Tensors, m: ModelSettings) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for stack, count in (("encoder", m.layers), ("decoder", m.decoder_layers or m.layers)):
        for i in range(count):
            ours, theirs = f"{stack}.{i}", f"{stack}.layers.{i}"
            for kind, name in ATTENTIONS[stack].items():
                for part, other in PARTS.items():
                    place = f"{ours}.{kind}_attention.{part}"
                    weights |= held.linear(place, f"{theirs}.{name}.{other}", m.d_model, m.d_model)
            inner, outer = (f"{theirs}.feed_forward.pwff_layer.{number}" for number in (0, 3))
            weights |= held.linear(f"{ours}.feed_forward.inner", inner, m.d_ff, m.d_model)
            weights |= held.linear(f"{ours}.feed_forward.outer", outer, m.d_model, m.d_ff)
            for kind, name in NORMS[stack].items():
                weights |= held.linear(f"{ours}.{kind}_residual.norm", f"{theirs}.{name}", m.d_model)
        if m.final_norm:
            weights |= held.linear(f"{stack}_norm", f"{stack}.layer_norm", m.d_model)
    return weights


def _vocabulary_weights(held: Tensors, m: ModelSettings, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    if m.tie_source:
        held.drop([EMBEDDINGS[1]])
        weights["source.tokens.weight"] = source.table(held.take(EMBEDDINGS[0], source.size, m.d_model))
    else:
        for name, side, vocabulary in zip(EMBEDDINGS, ("source", "target"), (source, target), strict=True):
            weights[f"{side}.tokens.weight"] = vocabulary.table(held.take(name, vocabulary.size, m.d_model))
    if m.tie_output:
        held.drop([OUTPUT])
    else:
        weights["projection.weight"] = target.table(held.take(OUTPUT, target.size, m.d_model))
    weights["projection.bias"] = target.bias(torch.zeros(target.size))
    return weights
