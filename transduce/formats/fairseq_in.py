"""A folder of fairseq's as a model of ours: its checkpoint, dict.SOURCE.txt and dict.TARGET.txt, and the SentencePiece
model that cut the text.

The names of its weights are those that Hugging Face took over, so that its reader does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.errors import ModelError
from transduce.files.reading import VOCABULARY, followed
from transduce.formats.converted import Converted
from transduce.formats.ctranslate2_text import sentence_pieces
from transduce.formats.hugging_face_in import Kind, converted
from transduce.formats.hugging_face_text import FAIRSEQ, Text
from transduce.formats.json_files import read_file
from transduce.formats.pickled import plain_part, read_pickled
from transduce.formats.pieces import renumbered
from transduce.formats.vocabulary import Special, Vocabulary, text_settings, token_lines

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint.pt", "model.pt", "checkpoint_last.pt")
MODELS = ("transformer", "bart")  # of which an --arch is a variant
RENAMED = {"decoder.output_projection.weight": "lm_head.weight"}
COMPUTED = "embed_positions._float_tensor"
CONFIG = {  # what config.json calls it, and what fairseq does, with what it is if nobody said
    "encoder_layers": ("encoder_layers", 6),
    "decoder_layers": ("decoder_layers", 6),
    "d_model": ("encoder_embed_dim", 512),
    "encoder_ffn_dim": ("encoder_ffn_embed_dim", 2048),
    "decoder_ffn_dim": ("decoder_ffn_embed_dim", 2048),
    "encoder_attention_heads": ("encoder_attention_heads", 8),
    "decoder_attention_heads": ("decoder_attention_heads", 8),
    "max_position_embeddings": ("max_source_positions", 1024),
    "activation_function": ("activation_fn", "relu"),
    "dropout": ("dropout", 0.1),
}
SEARCH = {  # as fairseq-generate does if not told
    "num_beams": 5,
    "length_penalty": 1.0,
    "early_stopping": True,
    "forced_eos_token_id": None,  # it forces one too, at what it costs: at the limit scores differ
}


def find(folder: Path) -> Path | None:
    """The checkpoint, where there are dictionaries beside it."""
    found = [folder / name for name in CHECKPOINTS if (folder / name).exists()]
    return followed(found[0]) if found and list(folder.glob("dict.*.txt")) else None


def read(folder: Path, checkpoint: Path) -> Converted:
    """A Transformer that translates."""
    said = _arguments(checkpoint)
    held = read_pickled(checkpoint, part="model")
    weights = {RENAMED.get(name, f"model.{name}"): w for name, w in held.items() if not name.endswith(COMPUTED)}
    config = {name: said.get(key, usual) for name, (key, usual) in CONFIG.items()} | SEARCH
    config["scale_embedding"] = not said.get("no_scale_embedding", False)
    config["tie_word_embeddings"] = bool(
        said.get("share_all_embeddings") or said.get("share_decoder_input_output_embed")
    )
    return converted(folder, config, _kind(checkpoint, said), _text(folder, said), weights)


def _arguments(checkpoint: Path) -> Mapping[str, Any]:
    """As typed: `args`, or since 0.10 `cfg`, whose `model` they are."""
    said = plain_part(checkpoint, "args", "cfg")
    inner, task = said.get("model"), said.get("task")
    if isinstance(inner, Mapping):
        said = {**(task if isinstance(task, Mapping) else {}), **inner}
    arch = str(said.get("arch") or said.get("_name"))
    if not any(name in arch for name in MODELS):
        raise ModelError(f"{checkpoint} holds a {arch[:40]}; what can be converted from fairseq is a transformer")
    heads = [said.get(f"{stack}_attention_heads") for stack in ("encoder", "decoder")]
    if None in heads or heads[0] != heads[1]:
        raise ModelError(f"{checkpoint}: a model here has one number of attention heads, and its stacks have {heads}")
    if said.get("no_token_positional_embeddings"):
        raise ModelError(f"{checkpoint} knows no positions; a model here does")
    return said


def _kind(checkpoint: Path, said: Mapping[str, Any]) -> Kind:
    def both(name: str) -> bool:
        values = {bool(said.get(f"{stack}_{name}")) for stack in ("encoder", "decoder")}
        if len(values) > 1:
            raise ModelError(f"{checkpoint}: encoder and decoder differ in {name}; a model here has one for both")
        return values.pop()

    return Kind(
        norm="before" if both("normalize_before") else "after",
        positions="learned" if both("learned_pos") else "fairseq",
        embedding_norm=bool(said.get("layernorm_embedding")),
        has_bias=False,
    )


def _text(folder: Path, said: Mapping[str, Any]) -> Text:
    languages = [str(said.get(f"{side}_lang") or side)[:40] for side in ("source", "target")]
    for language in languages:
        if not (folder / f"dict.{language}.txt").exists():
            raise ModelError(
                f"{folder} has no dict.{language}.txt; where a checkpoint does not say its languages, name the "
                f"dictionaries dict.source.txt and dict.target.txt"
            )
    vocabularies = []
    for language in languages:
        lines = token_lines(read_file(folder / f"dict.{language}.txt", VOCABULARY).decode("utf-8", "replace"))
        tokens = [*FAIRSEQ, *(line.removesuffix(" #fairseq:overwrite").rpartition(" ")[0] for line in lines)]
        vocabularies.append(Vocabulary.of(dict(enumerate(tokens)), len(tokens), Special(1, 3, 2, 2)))
    source, target = vocabularies
    models = sentence_pieces(folder)
    settings = text_settings(source, target, models)
    count = 1 if settings["joint"] else 2
    both = zip((models[0], models[-1]), vocabularies, strict=True)
    files = [renumbered(model, vocabulary.tokens) for model, vocabulary in both]
    return Text(settings, vocabularies[:count], files[:count])
