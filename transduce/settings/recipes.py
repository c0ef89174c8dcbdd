"""Recipes of `transduce bench`: text, and the settings that were found good on its validation part; the test part
decided nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from transduce.settings.presets import find
from transduce.settings.sections import Overrides


@dataclass(frozen=True)
class Recipe:
    """What is trained on what."""

    summary: str
    source: str = ""  # language: the end of a file's name
    target: str = ""
    parts: tuple[tuple[str, str, str, str], ...] = ()  # folder, and the names of its training, validation, test files
    settings: Overrides = field(default_factory=dict)


MULTI30K = (("multi30k", "train", "val", "test_2016_flickr"),)
TATOEBA = (("tatoeba-de-en", "train", "dev", "test"),)
CHINESE = (("tatoeba-zh-en", "train", "dev", "test"), ("captions-zh-en", "train", "val", "test"))
COMMON: Overrides = {
    "batch": {"tokens": 8192},
    "optimizer": {"schedule": "cosine", "rate": 2e-3, "warmup": 1000, "clip": 1.0},
}
WIDTHS = {"d_model": 256, "d_ff": 1024, "heads": 4, "norm": "before"}
CAPTIONS: Overrides = {
    **COMMON,
    "model": {**WIDTHS, "layers": 3, "dropout": 0.4},
    "text": {"vocabulary": 6000},
    "training": {"steps": 4000, "validate_every": 1000, "average": 3},
}
INTO_GERMAN: Overrides = {  # deep and narrow: of the widths tried, the one that learned least by heart
    "batch": COMMON["batch"],
    "optimizer": {**COMMON["optimizer"], "name": "adamw", "weight_decay": 0.05, "rate": 5e-3},
    "model": {
        **{"layers": 6, "d_model": 128, "d_ff": 512, "heads": 4, "norm": "before"},
        **{"dropout": 0.2, "attention_dropout": 0.1, "token_dropout": 0.05},
    },
    "text": {"vocabulary": 6000, "sampling": 0.05},
    "training": {"steps": 8000, "validate_every": 1000, "average": 4},
}
EVERYDAY: Overrides = {
    **COMMON,
    "model": {**WIDTHS, "layers": 4, "dropout": 0.3},
    "text": {"vocabulary": 8000},
    "training": {"steps": 5000, "validate_every": 1000, "average": 3},
}
FROM_CHINESE: Overrides = {**EVERYDAY, "text": {"vocabulary": 12_000, "coverage": 0.9995}}
RECIPES = {
    "bundled": Recipe(
        "The bundled German-English corpus with the tiny preset: needs no data.", settings=find("tiny").settings
    ),
    "multi30k-en-de": Recipe("Captions, 29,000 pairs, English to German.", "en", "de", MULTI30K, INTO_GERMAN),
    "multi30k-de-en": Recipe("Captions, 29,000 pairs, German to English.", "de", "en", MULTI30K, CAPTIONS),
    "tatoeba-de-en": Recipe("Everyday sentences, 154,000 pairs, German to English.", "de", "en", TATOEBA, EVERYDAY),
    "tatoeba-en-de": Recipe("Everyday sentences, 154,000 pairs, English to German.", "en", "de", TATOEBA, EVERYDAY),
    "tatoeba-zh-en": Recipe("Everyday sentences and captions, Chinese to English.", "zh", "en", CHINESE, FROM_CHINESE),
}
