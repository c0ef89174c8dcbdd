"""A translator made of torch.nn.Transformer as a model of ours: a folder with its state dict in model.safetensors, its
SentencePiece models, and config.json.

torch.nn.Transformer has neither embeddings nor a projection. The module around it has them, by names of its own, which
config.json may say; those of PyTorch's translation tutorial are known. What weights cannot show must be said there:

    {"model_type": "torch.nn.Transformer", "nhead": 8, "activation": "relu", "norm_first": false,
     "scale_embedding": true, "source_begin": true, "source_end": true}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.core.positions import kind_of_table
from transduce.errors import ModelError, SettingsError
from transduce.files.reading import SMALL
from transduce.formats.converted import Converted
from transduce.formats.ctranslate2_text import sentence_pieces
from transduce.formats.hugging_face_weights import read_folder
from transduce.formats.json_files import number, read_json, whole
from transduce.formats.pieces import kind_of, read_pieces, renumbered
from transduce.formats.tensors import Tensors
from transduce.formats.vocabulary import Special, Vocabulary
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, ModelSettings
from transduce.text.languages import EVERY_TEXT, mark_of
from transduce.text.tokenizers import file_names

CONFIG, MODEL_TYPE = "config.json", "torch.nn.Transformer"
FLAGS = ("norm_first", "scale_embedding", "source_begin", "source_end")
MUST_SAY = ("nhead", "activation", *FLAGS)
NAMES = {  # of tensors, as the tutorial has them
    "source_embedding": "src_tok_emb.embedding.weight",
    "target_embedding": "tgt_tok_emb.embedding.weight",
    "projection": "generator.weight",
    "projection_bias": "generator.bias",
    "positions": "positional_encoding.pos_embedding",
}
ACTIVATIONS = ("relu", "gelu")
FIRST = "encoder.layers.0.self_attn.in_proj_weight"  # by which the module is found, whatever stands before it
POSITIONS = 1024  # where no table says how many
NORMS = {"encoder": ("self", "feed_forward"), "decoder": ("self", "cross", "feed_forward")}  # norm1, norm2, norm3


def is_folder(folder: Path) -> bool:
    path = folder / CONFIG
    return path.exists() and read_json(path, SMALL).get("model_type") == MODEL_TYPE


def read(folder: Path) -> Converted:
    """A whole translator."""
    config = read_json(folder / CONFIG, SMALL)
    names = _names(folder, config)
    held = Tensors(read_folder(folder), folder)
    source, target, text, files = _text(folder, config)
    try:
        settings = compose(
            {
                "model": (m := _model_settings(folder, config, names, held)),
                "text": text,
                "data": {"max_tokens": min(DataSettings.max_tokens, m["max_positions"])},
            }
        )
    except SettingsError as error:
        raise ModelError(f"{folder}: its {CONFIG} cannot be: {error}") from error
    weights = _layers(held, settings.model, _prefix(held))
    weights |= _vocabulary_weights(held, settings.model, names, source, target)
    held.finish()
    return Converted(settings, weights, dict(zip(file_names(settings.text), files, strict=True)))


def _names(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """What the tensors outside the Transformer are called; and config.json says all that it must."""
    unsaid = [key for key in MUST_SAY if config.get(key) is None]
    if unsaid:
        raise ModelError(f"{folder / CONFIG} must say {', '.join(unsaid)}: the weights do not show it")
    odd = next((key for key in FLAGS if not isinstance(config[key], bool)), None)
    if odd is not None:
        raise ModelError(f"{folder / CONFIG}: {odd} is true or false, not {str(config[odd])[:40]}")
    if config["activation"] not in ACTIVATIONS:
        raise ModelError(f"{folder / CONFIG}: its activation is none of {', '.join(ACTIVATIONS)}")
    return {key: str(config.get(key, usual)) for key, usual in NAMES.items()}


def _prefix(held: Tensors) -> str:
    """What stands before the names of torch.nn.Transformer."""
    found = [name.removesuffix(FIRST) for name in held.names() if name.endswith(FIRST)]
    if len(found) != 1:
        raise ModelError(f"{held.origin} holds {len(found)} tensors {FIRST}, by which torch.nn.Transformer is known")
    return found[0]


def _text(folder: Path, config: Mapping[str, Any]) -> tuple[Vocabulary, Vocabulary, dict[str, Any], list[bytes]]:
    """Vocabularies, settings, and files. Two vocabularies even where the tokenizer is one: a source that begins with
    <s> has a mark where the target has its BEGIN."""
    models = sentence_pieces(folder)
    sides = [dict(enumerate(piece.text for piece in read_pieces(model))) for model in (models[0], models[-1])]
    vocabularies = []
    for names, marked in zip(sides, (config["source_begin"], False), strict=True):
        ids = {name: i for i, name in names.items()}
        if missing := [name for name in ("<s>", "</s>") if name not in ids]:
            raise ModelError(f"{folder}: its SentencePiece model lacks {', '.join(missing)}")
        begin = ids["</s>" if marked else "<s>"]
        own = {**names, ids["<s>"]: mark_of(EVERY_TEXT)} if marked else names
        special = Special(ids.get("<pad>"), ids.get("<unk>"), begin, ids["</s>"])
        vocabularies.append(Vocabulary.of(own, len(names), special))
    source, target = vocabularies
    settings = {"tokenizer": kind_of(models[0]), "joint": False, "vocabulary": len(source.tokens)}
    settings |= {"target_vocabulary": len(target.tokens)}
    settings |= {"source_language": EVERY_TEXT} if config["source_begin"] else {}
    controls = [mark_of(EVERY_TEXT)] if config["source_begin"] else []
    files = [renumbered(models[0], source.tokens, controls=controls), renumbered(models[-1], target.tokens)]
    return source, target, settings, files


def _model_settings(folder: Path, config: Mapping[str, Any], names: Mapping[str, str], held: Tensors) -> dict[str, Any]:
    prefix, width = _prefix(held), held.columns(names["target_embedding"])
    table = _table(held, names["positions"])
    if table is not None and (table.shape[1:] != (width,) or not table.numel()):
        raise ModelError(f"{folder}: its table of positions is of the shape {tuple(table.shape)}, its width {width}")
    rows = POSITIONS if table is None else len(table)
    positions = whole(config, "max_positions", rows)
    if table is not None and positions > rows:
        raise ModelError(f"{folder / CONFIG}: max_positions is {positions:,}, and its table has {rows:,} rows")
    return {
        "layers": held.count(rf"{re.escape(prefix)}encoder\.layers\.(\d{{1,6}})\."),
        "decoder_layers": held.count(rf"{re.escape(prefix)}decoder\.layers\.(\d{{1,6}})\."),
        "d_model": width,
        "d_ff": held.rows(f"{prefix}encoder.layers.0.linear1.weight"),
        "heads": whole(config, "nhead"),
        "norm": "before" if config["norm_first"] else "after",
        "final_norm": f"{prefix}encoder.norm.weight" in held,
        "eps": number(config, "layer_norm_eps", 1e-5),
        "positions": "sinusoid" if table is None else kind_of_table(table),
        "max_positions": positions,
        "scale": "embedding" if config["scale_embedding"] else "none",
        "activation": config["activation"],
        "dropout": number(config, "dropout", 0.1),
        "source_end": config["source_end"],
        "output_bias": True,  # if only to keep what is added from being written
        "tie_source": False,
        "tie_output": held.are_equal(names["target_embedding"], names["projection"]),
    }


def _table(held: Tensors, name: str) -> Tensor | None:
    """The table of positions, a row each; the tutorial has a batch of one between."""
    found = held.peek(name)
    return found if found is None else found.float().squeeze()


def _layers(held: Tensors, m: ModelSettings, prefix: str) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for stack, count in (("encoder", m.layers), ("decoder", m.decoder_layers or m.layers)):
        for i in range(count):
            ours, theirs = f"{stack}.{i}", f"{prefix}{stack}.layers.{i}"
            weights |= _attention(held, f"{ours}.self_attention", f"{theirs}.self_attn", m)
            if stack == "decoder":
                weights |= _attention(held, f"{ours}.cross_attention", f"{theirs}.multihead_attn", m)
            for name, other, shape in (
                ("inner", "linear1", (m.d_ff, m.d_model)),
                ("outer", "linear2", (m.d_model, m.d_ff)),
            ):
                weights |= held.linear(f"{ours}.feed_forward.{name}", f"{theirs}.{other}", *shape)
            for place, name in enumerate(NORMS[stack], 1):
                weights |= held.linear(f"{ours}.{name}_residual.norm", f"{theirs}.norm{place}", m.d_model)
        if m.final_norm:
            weights |= held.linear(f"{stack}_norm", f"{prefix}{stack}.norm", m.d_model)
    return weights


def _attention(held: Tensors, ours: str, theirs: str, m: ModelSettings) -> dict[str, Tensor]:
    """Queries, keys and values lie in one matrix there."""
    weights = held.linear(f"{ours}.output", f"{theirs}.out_proj", m.d_model, m.d_model)
    for part, shape in (("weight", (3 * m.d_model, m.d_model)), ("bias", (3 * m.d_model,))):
        thirds = held.take(f"{theirs}.in_proj_{part}", *shape).split(m.d_model)
        for name, third in zip(("query", "key", "value"), thirds, strict=True):
            weights[f"{ours}.{name}.{part}"] = third.clone()
    return weights


def _vocabulary_weights(
    held: Tensors, m: ModelSettings, names: Mapping[str, str], source: Vocabulary, target: Vocabulary
) -> dict[str, Tensor]:
    """Embeddings, projection, and positions that no formula gives."""
    weights: dict[str, Tensor] = {}
    table = _table(held, names["positions"])
    if m.positions == "learned" and table is not None:
        weights |= {f"{side}.positions.table.weight": table[: m.max_positions].clone() for side in ("source", "target")}
    held.drop([names["positions"]])
    same = names["source_embedding"] == names["target_embedding"]
    if same and source.size != target.size:
        sizes = f"{source.size:,} and {target.size:,} tokens"
        raise ModelError(f"{held.origin} has one embedding for two vocabularies, of {sizes}")
    of_target = held.take(names["target_embedding"], target.size, m.d_model)
    of_source = of_target if same else held.take(names["source_embedding"], source.size, m.d_model)
    weights["source.tokens.weight"] = source.table(of_source)
    weights["target.tokens.weight"] = target.table(of_target)
    if m.tie_output:
        held.drop([names["projection"]])
    else:
        weights["projection.weight"] = target.table(held.take(names["projection"], target.size, m.d_model))
    weights["projection.bias"] = target.bias(held.take_or_zeros(names["projection_bias"], target.size))
    return weights
