"""transduce convert: a model of another system as one of ours."""

from __future__ import annotations

from pathlib import Path

from transduce.commands import Hidden
from transduce.errors import SettingsError
from transduce.report import SILENT


def convert(source: Path, destination: Path, *, report: Hidden = SILENT) -> None:
    """Make a model folder of a model of another system, with the same numbers.

    Example: transduce convert opus-mt-de-en runs/opus

    Afterwards every command works on it: translate, evaluate, inspect, score.

    Parameters
    ----------
    source
        Folder of Hugging Face's with a MarianMTModel: config.json, model.safetensors, source.spm, target.spm,
        vocab.json. All of OPUS-MT are such.
    destination
        Folder to make; it must not exist.
    """
    from transduce.convert import hugging_face_in
    from transduce.files.manifest import write_folder
    from transduce.files.run_folder import CONFIG, MODEL
    from transduce.models.load import load
    from transduce.models.weights import tensor_bytes
    from transduce.settings import config_file

    if destination.exists():
        raise SettingsError(f"{destination} is there already; name a folder that is not")
    converted = hugging_face_in.read(source)
    files = {CONFIG: config_file.write(converted.settings).encode(), **converted.tokenizers}
    destination.mkdir(parents=True)
    write_folder(destination, {**files, MODEL: tensor_bytes(converted.weights)})
    model = load(destination).model
    count = sum(weight.numel() for weight in model.parameters())
    report.say(f"{destination}: {count:,} weights of {source}; try: transduce translate {destination}")
