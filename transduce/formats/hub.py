"""A model by its name on the hub, such as Helsinki-NLP/opus-mt-de-en: the files that are read, and no others."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from transduce.errors import ModelError, SettingsError
from transduce.formats.ctranslate2_text import ONE_MODEL

NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
FILES = ["config.json", "generation_config.json", "model.safetensors", "*.spm", "vocab.json", "target_vocab.json"]
FILES += ["special_tokens_map.json", "tokenizer_config.json"]  # of many languages
FILES += ["merges.txt", "model.safetensors.index.json", "model-*-of-*.safetensors"]  # of BART; of large models
FILES += ["model.bin", "*_vocabulary.json", "*_vocabulary.txt", *ONE_MODEL]  # of CTranslate2
FILES += ["tokenizer.json"]  # of newer programs
PICKLES = ["pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"]  # of which nothing is run


def is_name(source: Path) -> bool:
    return NAME.fullmatch(str(source)) is not None


def fetch(name: str, revision: str | None) -> Path:
    """The folder with its files, in the cache of huggingface_hub, which works without network once they are there."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise SettingsError(f"there is no folder {name}; to fetch it from the hub: pip install 'transduce[hub]'")
    from huggingface_hub import snapshot_download  # noqa: PLC0415  (an extra)

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=FILES))
        if not any(folder.glob("model*.safetensors")) and not (folder / "model.bin").exists():
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*FILES, *PICKLES]))
    except Exception as error:  # of many kinds: no network, no such name, a cache without it
        reason = str(error).split("\n", maxsplit=1)[0][:150]
        raise ModelError(
            f"there is no folder {name}, and from the hub it cannot be fetched ({type(error).__name__}: {reason}); "
            f"fetch it where there is a network, and name its folder"
        ) from error
    return folder
