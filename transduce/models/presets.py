"""Named starting points. A preset is settings that a file or a flag may still change."""

from __future__ import annotations

from typing import NamedTuple

from transduce.config import Overrides
from transduce.errors import SettingsError, did_you_mean


class Preset(NamedTuple):
    summary: str
    settings: Overrides


PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        "About 0.8 million weights: learns the bundled corpus in two and a half minutes on two cores.",
        {
            "model": {"layers": 2, "d_model": 128, "d_ff": 256, "heads": 4, "max_positions": 256},
            "text": {"vocabulary": 1000},
            "batch": {"tokens": 1024},
            "optimizer": {"schedule": "cosine", "rate": 3e-3, "warmup": 200, "clip": 1.0},
            "training": {"steps": 900, "validate_every": 300, "log_every": 20},
        },
    ),
    "small": Preset(
        "About 3 million weights: tens of thousands of sentence pairs in half an hour on two cores.",
        {
            "model": {"layers": 2, "d_model": 192, "d_ff": 768, "heads": 4, "norm": "before", "dropout": 0.15},
            "text": {"vocabulary": 4000},
            "batch": {"tokens": 1024},
            "optimizer": {"schedule": "cosine", "rate": 2e-3, "warmup": 800, "clip": 1.0},
            "training": {"steps": 4000, "validate_every": 500},
        },
    ),
    "paper-base": Preset(
        "The paper's base model: 6+6 layers, d_model 512, about 63 million weights with 37,000 tokens.",
        {
            "text": {"vocabulary": 37_000},
            "batch": {"tokens": 25_000},
        },
    ),
    "paper-big": Preset(
        "The paper's big model: d_model 1024, 16 heads, dropout 0.3, about 214 million weights with 37,000 tokens.",
        {
            "model": {"d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.3},
            "text": {"vocabulary": 37_000},
            "batch": {"tokens": 25_000},
            "training": {"steps": 300_000, "average": 20},
        },
    ),
}


def find(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise SettingsError(f"unknown preset {name}{did_you_mean(name, PRESETS)}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]
