"""Marian's own files as a model of ours: an .npz of weights, with its settings as YAML inside, and the vocabulary
beside it. OPUS-MT was first published so: model.npz, vocab.yml, source.spm, target.spm.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.core.special import BEGIN
from transduce.errors import ModelError, SettingsError
from transduce.files.reading import DAMAGED, SMALL, VOCABULARY, open_regular, problem_with
from transduce.formats.converted import Converted
from transduce.formats.json_files import read_file
from transduce.formats.pieces import read_pieces, renumbered
from transduce.formats.tensors import Tensors
from transduce.formats.vocabulary import Special, Vocabulary, mark_in_text, marks_in_text, text_settings, token_lines
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, ModelSettings
from transduce.text.tokenizers import file_names

ENDING = ".npz"
BINARY = (1).to_bytes(8, "little")  # the version, with which the other form begins
SETTINGS = "special:model.yml"
POSITIONS = 512  # Marian computes them for any length; this many are usual in what was made of its models
LARGEST = 16_000_000_000  # bytes of all arrays together
EPSILON = 1e-6  # of Marian's norms
ACTIVATIONS = {"swish": "swish", "relu": "relu"}
PARTS = {"query": "q", "key": "k", "value": "v", "output": "o"}
USUAL = {  # what a model here has, and a file may say otherwise; the first if it says nothing
    "type": ("transformer",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-train-position-embeddings": ("false",),
    "transformer-disable-position-embeddings": ("false",),
    "transformer-no-projection": ("false",),
    "transformer-ffn-depth": ("2",),
    "transformer-tied-layers": ("[]", ""),
    "right-left": ("false",),
}
DEPTHS = {"layers": "enc-depth", "decoder_layers": "dec-depth"}


def find(source: Path) -> Path | None:
    """The weights: the file itself, or the one in a folder."""
    if source.suffix == ENDING:
        return source
    found = sorted(source.glob(f"*{ENDING}")) if source.is_dir() else []
    found = [path for path in found if not path.name.endswith(f".optimizer{ENDING}")]
    if not found:
        return None
    listed = _decoder(source).get("models")
    named = {Path(str(name)).name for name in listed} if isinstance(listed, list) else set()
    meant = [path for path in found if path.name in named]
    if len(meant) > 1:
        raise ModelError(
            f"{source} holds an ensemble of {len(meant)} models: convert each by its name, such as {meant[0]}, and let "
            f"them translate together: transduce translate ONE --with OTHER"
        )
    if len(found) > 1 and not meant:
        raise ModelError(f"{source} holds {len(found)} {ENDING} files; name the one that is meant: {found[0]}")
    return (meant or found)[0]


def binary_in(source: Path) -> Path | None:
    """A file in Marian's other form, in which Firefox and Bergamot have their models, mostly in whole numbers."""
    if any(source.glob(f"*{ENDING}")):  # which can be read
        return None
    for path in [source] if source.is_file() else sorted(source.glob("*.bin")):
        if path.suffix == ".bin" and path.is_file():
            with path.open("rb") as stream:
                if stream.read(len(BINARY)) == BINARY:
                    return path
    return None


def read(path: Path) -> Converted:
    """A Transformer whose norms come after its layers, as Marian trains them if not told otherwise."""
    arrays = _arrays(path)
    config = _settings(arrays, path)
    held = Tensors(_tensors(arrays, path), path)
    tied_all = "Wemb" in held
    of_source, of_target = ("Wemb", "Wemb") if tied_all else ("encoder_Wemb", "decoder_Wemb")
    names, models = _vocabulary(path.parent)
    sizes = [held.rows(of_source), held.rows(of_target)]
    source, target = (Vocabulary.of(n, size, _special(n, path)) for n, size in zip(names, sizes, strict=True))
    m = _model_settings(config, held, path)
    for ours, theirs in DEPTHS.items():
        if str(config.get(theirs, m[ours])) != str(m[ours]):
            raise ModelError(f"{path} says {theirs}={str(config[theirs])[:40]}, and holds {m[ours]} such layers")
    m |= {"tie_source": tied_all, "tie_output": not any(n in held for n in ("decoder_ff_logit_out_W", OUT))}
    text = text_settings(source, target, models)
    search = {"beam": 6, "penalty": "plain", "length_penalty": 1.0, **_search(_decoder(path.parent))}
    data = {"max_tokens": min(DataSettings.max_tokens, POSITIONS)}
    try:
        settings = compose({"model": m, "text": text, "data": data, "search": search})
    except SettingsError as error:
        raise ModelError(f"{path}: its settings cannot be: {error}") from error
    weights = _weights(held, settings.model, source, target)
    both = zip([models[0], models[-1]], (source, target), strict=True)
    files = [renumbered(model, v.tokens, marks_in_text(v.tokens)) for model, v in both]
    return Converted(settings, weights, dict(zip(file_names(settings.text), files, strict=False)))


OUT = "decoder_ff_logit_out_Wt"


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    """The archive's arrays, whose sizes are looked at first; objects, which would have to be unpickled, are refused."""
    if problem := problem_with(path):
        raise ModelError(f"{path} {problem}")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > LARGEST or size > 50 * path.stat().st_size + 1_000_000:
                raise ModelError(f"{path} would have {size:,} bytes, which cannot be")
        with open_regular(path) as stream, np.lib.npyio.NpzFile(stream) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except DAMAGED as error:
        raise ModelError(f"{path} is no file of arrays, or damaged: {str(error)[:100]}") from error
    odd = next((name for name, array in arrays.items() if not isinstance(array, np.ndarray)), None)
    if odd is not None:
        raise ModelError(f"{path} is no file of arrays: {odd[:80]} in it is none")
    return arrays


def _settings(arrays: Mapping[str, np.ndarray], path: Path) -> dict[str, Any]:
    if SETTINGS not in arrays:
        raise ModelError(f"{path} does not say what it is: there is no {SETTINGS} in it, as Marian writes")
    try:
        content = config_file.plain_yaml(arrays[SETTINGS].tobytes()[:SMALL].rstrip(b"\0").decode("utf-8"))
    except ValueError as error:
        raise ModelError(f"{path}: its settings are {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: its settings are no list of names and values")
    for name, usual in USUAL.items():
        if str(content.get(name, usual[0])) not in usual:
            said = f"{name}={str(content[name])[:40]}"
            raise ModelError(f"{path} has {said}; a model here has {name}={usual[0] or 'none'}")
    return content


def _tensors(arrays: Mapping[str, np.ndarray], path: Path) -> dict[str, Tensor]:
    floats = {name: array for name, array in arrays.items() if name != SETTINGS and array.dtype.kind == "f"}
    found = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in floats.items()}
    broken = next((name for name, tensor in found.items() if not tensor.isfinite().all()), None)
    if broken is not None:
        raise ModelError(f"{path} holds infinite or NaN values, in {broken[:80]}")
    return found


def _model_settings(config: Mapping[str, Any], held: Tensors, path: Path) -> dict[str, Any]:
    activation = str(config.get("transformer-ffn-activation", "swish"))
    if activation not in ACTIVATIONS:
        raise ModelError(f"{path}: its activation {activation[:40]!r} is none of {', '.join(ACTIVATIONS)}")
    heads = str(config.get("transformer-heads", "8"))
    if not heads.isdecimal() or len(heads) > 4:
        raise ModelError(f"{path}: transformer-heads={heads[:40]} is no number of heads")
    width = held.columns("Wemb" if "Wemb" in held else "decoder_Wemb")
    return {
        "layers": held.count(r"encoder_l(\d{1,6})_", first=1),
        "decoder_layers": held.count(r"decoder_l(\d{1,6})_", first=1),
        "d_model": width,
        "d_ff": held.columns("encoder_l1_ffn_W1"),
        "heads": int(heads),
        "positions": "marian",
        "max_positions": POSITIONS,
        "eps": EPSILON,
        "activation": ACTIVATIONS[activation],
        "output_bias": True,
    }


def _weights(held: Tensors, m: ModelSettings, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    """Matrices lie there as x W, here as W x."""
    weights: dict[str, Tensor] = {}
    for stack, count in (("encoder", m.layers), ("decoder", m.decoder_layers or m.layers)):
        parts = {"self": "self"} | ({"cross": "context"} if stack == "decoder" else {})
        for i in range(count):
            ours, theirs = f"{stack}.{i}", f"{stack}_l{i + 1}"
            for name, other in parts.items():
                for part, letter in PARTS.items():
                    weights |= _linear(
                        held, f"{ours}.{name}_attention.{part}", f"{theirs}_{other}", letter, m.d_model, m.d_model
                    )
                weights |= _norm(held, f"{ours}.{name}_residual.norm", f"{theirs}_{other}_Wo", m)
            weights |= _linear(held, f"{ours}.feed_forward.inner", f"{theirs}_ffn", "1", m.d_ff, m.d_model)
            weights |= _linear(held, f"{ours}.feed_forward.outer", f"{theirs}_ffn", "2", m.d_model, m.d_ff)
            weights |= _norm(held, f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn", m)
    table = target.table(held.take("Wemb" if m.tie_source else "decoder_Wemb", target.size, m.d_model))
    table[BEGIN] = 0  # Marian begins with no embedding at all
    if m.tie_source:
        weights["source.tokens.weight"] = table  # a weight with several names goes by its first
    else:
        weights["source.tokens.weight"] = source.table(held.take("encoder_Wemb", source.size, m.d_model))
        weights["target.tokens.weight"] = table
    if not m.tie_output:
        out = held.take(OUT, target.size, m.d_model) if OUT in held else None
        out = held.take("decoder_ff_logit_out_W", m.d_model, target.size).t() if out is None else out
        weights["projection.weight"] = target.table(out)
    weights["projection.bias"] = target.bias(held.take("decoder_ff_logit_out_b", 1, target.size))
    held.finish()
    return weights


def _linear(held: Tensors, ours: str, theirs: str, letter: str, rows: int, columns: int) -> dict[str, Tensor]:
    weight = held.take(f"{theirs}_W{letter}", columns, rows).t().contiguous()
    return {f"{ours}.weight": weight, f"{ours}.bias": held.take(f"{theirs}_b{letter}", 1, rows)[0].clone()}


def _norm(held: Tensors, ours: str, theirs: str, m: ModelSettings) -> dict[str, Tensor]:
    parts = {"weight": "scale", "bias": "bias"}
    return {
        f"{ours}.{part}": held.take(f"{theirs}_ln_{other}", 1, m.d_model)[0].clone() for part, other in parts.items()
    }


def _vocabulary(folder: Path) -> tuple[list[dict[int, str]], list[bytes]]:
    """Tokens of source and target by id, and the SentencePiece models: two, or one for both."""
    said = _said(folder)
    two = [folder / "source.spm", folder / "target.spm"]
    cutters = said if said and all(path.suffix == ".spm" for path in said) else sorted(folder.glob("*.spm"))
    cutters = two if all(path.exists() for path in two) else list(dict.fromkeys(cutters))
    if not 1 <= len(cutters) <= 2 or (len(cutters) == 2 and cutters not in (two, said)):
        raise ModelError(
            f"{folder} must hold source.spm and target.spm, or one .spm for both languages; rename what is there so"
        )
    if len(cutters) == 1 and cutters[0] in two and len(said) != 1:
        raise ModelError(
            f"{folder} has no {two[1 - two.index(cutters[0])].name}; a single .spm would be for both languages"
        )
    models = [read_file(path, VOCABULARY) for path in cutters]
    lists = said if said and not any(path.suffix == ".spm" for path in said) else _lists(folder)
    if lists:
        names = [_listed(path) for path in lists]
    else:  # the SentencePiece models are the vocabulary
        names = [dict(enumerate(piece.text for piece in read_pieces(model))) for model in models]
    return [{i: mark_in_text(name) for i, name in each.items()} for each in (names[0], names[-1])], models


def _said(folder: Path) -> list[Path]:
    """The vocabularies of source and target that a *decoder.yml names, if both are in the folder."""
    listed = _decoder(folder).get("vocabs")
    if not isinstance(listed, list):
        return []
    there = {path.name: path for path in folder.iterdir()}
    found = [there.get(Path(str(name)).name) for name in listed]
    return [place for place in found if place is not None] if len(found) == 2 and None not in found else []


def _decoder(folder: Path) -> dict[str, Any]:
    """What a *decoder.yml says of how to translate."""
    for path in sorted(folder.glob("*decoder.yml")):
        try:
            content = config_file.plain_yaml(read_file(path, SMALL).decode("utf-8"))
        except ValueError as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        if isinstance(content, dict):
            return content
    return {}


def _search(decoder: Mapping[str, Any]) -> dict[str, Any]:
    """Its beam, and the power of the length that scores are divided by, where it says them."""
    names = {"beam-size": "beam", "normalize": "length_penalty"}
    return {ours: str(decoder[theirs]) for theirs, ours in names.items() if theirs in decoder}


def _lists(folder: Path) -> list[Path]:
    """Lists of tokens by their names: one for both languages, or one each, the source's first."""
    found = sorted(folder.glob("*vocab*.yml")) + sorted(folder.glob("*vocab*.yaml"))
    found = (
        found
        or sorted(folder.glob("*.src.vocab")) + sorted(folder.glob("*.trg.vocab"))
        or sorted(folder.glob("*.vocab"))
    )
    if len(found) > 2 or (len(found) == 2 and not ("src" in found[0].name and "trg" in found[1].name)):
        raise ModelError(f"{folder} holds {len(found)} lists of tokens; leave one there, or one named src and one trg")
    return found


def _listed(path: Path) -> dict[int, str]:
    """Tokens with their numbers, as YAML; or one a line."""
    try:
        text = read_file(path, VOCABULARY).decode("utf-8")
        if path.suffix not in (".yml", ".yaml"):
            return dict(enumerate(line.partition("\t")[0] for line in token_lines(text)))
        content = config_file.plain_yaml(text)
        found = {int(number): str(token) for token, number in content.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"{path} is no list of tokens with their numbers") from error
    if len(found) < len(content) or min(found, default=0) < 0:
        raise ModelError(f"{path} gives one number to two tokens")
    return found


def _special(names: dict[int, str], path: Path) -> Special:
    ids = {name: i for i, name in names.items()}
    if "</s>" not in ids:
        raise ModelError(f"the vocabulary of {path} has no </s>, which translations end with")
    return Special(ids.get("<pad>"), ids.get("<unk>"), ids["</s>"], ids["</s>"])
