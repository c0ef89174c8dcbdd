"""A model from its folder: only safe, readable files, each compared with the manifest and with the others first.

config.yaml           the resolved settings
tokenizer.model       or source.* and target.* where the vocabularies are apart; .txt for words and characters
model.safetensors     the weights that are used
weights/              best, last and averaged weights of a training run
manifest.json         sha256 of every file above, written last
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from transduce.core.seq2seq import Seq2Seq
from transduce.errors import ModelError, SettingsError
from transduce.files.manifest import WAY_OUT, read_manifest, verify
from transduce.files.run_folder import CONFIG, MODEL, weights_name
from transduce.models.kinds import shapes_of, unfilled_model
from transduce.models.weights import read_shapes, read_weights, refuse_other_shapes, restore
from transduce.settings import config_file
from transduce.settings.sections import ModelSettings, Settings
from transduce.text.languages import Languages, languages_of, needs_languages, with_languages
from transduce.text.tokenizers import Tokenizers, file_names


class Loaded(NamedTuple):
    """A model with all that is needed to use it."""

    model: Seq2Seq
    tokenizers: Tokenizers
    settings: Settings


def load(folder: str | Path, device: str = "cpu", weights: str | None = None) -> Loaded:
    """The model in a folder. `weights`: best, last or averaged instead of the usual."""
    folder = Path(folder)
    name = _weights_file(folder, weights)
    settings, tokenizers = load_text(folder, name)
    sizes = (settings.model, tokenizers.source.size, tokenizers.target.size)
    _refuse_misfit(folder / name, *sizes)
    _verify_while_it_may_be_replaced(folder, name)
    model = unfilled_model(*sizes)
    restore(model, read_weights(folder / name), folder / name)
    return Loaded(model.to(device).eval(), tokenizers, settings)


def speaking(loaded: Loaded, folder: str | Path, languages: Languages) -> Loaded:
    """A model of many languages, for a source and a target of these; None: as its settings say."""
    model, tokenizers, settings = loaded
    text = with_languages(settings.text, languages)
    tokenizers = tokenizers if text == settings.text else Tokenizers.from_files(tokenizers.files(), text)
    if needs_languages(text):
        known = sorted(languages_of(tokenizers.source))
        asked = {"--source-language": text.source_language, "--target-language": text.target_language}
        missing = " and ".join(flag for flag, said in asked.items() if said is None)
        if known:
            raise SettingsError(
                f"{folder} knows {len(known)} languages ({', '.join(known[:4])}, ...): say which ones with "
                f"{missing}, in Python languages=({known[0]!r}, {known[1 % len(known)]!r}); or bring it in with them, "
                f"by transduce convert"
            )
    return Loaded(model, tokenizers, replace(settings, text=text))


def load_text(folder: Path, weights: str = MODEL) -> tuple[Settings, Tokenizers]:
    """The settings and tokenizers of a folder whose files are whole, those of weights aside, which must be there."""
    others = [name for name in read_manifest(folder) if not name.endswith(".safetensors")]
    verify(folder, others, present=[weights])
    _require(folder, [CONFIG])
    settings = config_file.read_whole(folder / CONFIG)
    if settings.model.kind == "fasttext":
        raise ModelError(
            f"{folder} is of the kind fasttext: it works with translate, evaluate, inspect, convert and vectors"
        )
    _require(folder, file_names(settings.text))
    return settings, Tokenizers.load(folder, settings.text)


def _require(folder: Path, names: list[str]) -> None:
    """Refuse a manifest that leaves out files without which there is no model: nobody has compared them."""
    missing = [name for name in names if name not in read_manifest(folder)]
    if missing:
        raise ModelError(f"{folder} is damaged: manifest.json does not know {', '.join(missing)}; {WAY_OUT}")


def _weights_file(folder: Path, weights: str | None) -> str:
    name, known = MODEL if weights is None else weights_name(weights), read_manifest(folder)
    if MODEL not in known:
        raise ModelError(f"{folder} is not a model folder: training has not saved a model yet")
    if name not in known:
        there = ", ".join(Path(other).stem for other in known if other.startswith("weights/"))
        raise ModelError(f"{folder} holds no {weights} weights; there are: {there}")
    return name


def _refuse_misfit(path: Path, m: ModelSettings, source_vocabulary: int, target_vocabulary: int) -> None:
    """Compare the header with the settings before a large model is built: both may say anything."""
    have = read_shapes(path)
    if m.layers + (m.decoder_layers or 0) > len(have):  # every layer has several weights
        raise ModelError(f"{path} does not fit config.yaml: {len(have)} weights cannot be {m.layers} layers")
    there = sum(math.prod(shape) for shape in have.values())
    if _rough_size(m, source_vocabulary + target_vocabulary) > 8 * there + 10_000_000:
        refuse_other_shapes(have, shapes_of(m, source_vocabulary, target_vocabulary), path)
    # else it can be built without harm, and `restore` compares every shape


def _rough_size(m: ModelSettings, vocabulary: int) -> int:
    """About how many numbers a model of these settings has, or more."""
    heads = m.heads * ((m.d_k or m.d_model // m.heads) + (m.d_v or m.d_model // m.heads))
    layer = m.d_model * (16 * m.d_model + 4 * heads + 2 * m.d_ff) + heads**2
    layers = m.layers + (m.decoder_layers or m.layers)
    return layers * layer + 2 * m.d_model * (vocabulary + m.max_positions)


def _verify_while_it_may_be_replaced(folder: Path, name: str) -> None:
    try:
        verify(folder, [name])
    except ModelError:
        time.sleep(0.5)  # a run may just be replacing it: file and manifest are two renames
        verify(folder, [name])
