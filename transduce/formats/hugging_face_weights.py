"""The weights of a folder of Hugging Face's: one file, or several with an index that says which tensor lies where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from transduce.errors import ModelError
from transduce.files.reading import VOCABULARY, followed
from transduce.formats.json_files import read_json
from transduce.formats.pickled import read_pickled
from transduce.models.weights import read_weights

WEIGHTS, PICKLE = "model.safetensors", "pytorch_model.bin"
MOST_FILES = 1000
OTHERS = (".h5", ".ot", ".msgpack", ".onnx", ".gguf", ".pt", ".bin", ".safetensors")  # files in which weights may lie
Read = Callable[[Path], dict[str, Tensor]]


def read_folder(folder: Path) -> dict[str, Tensor]:
    """From safetensors; or from files of torch.save, of which nothing is run."""
    kinds: list[tuple[str, Read]] = [(WEIGHTS, read_weights), (PICKLE, read_pickled)]
    for name, read in kinds:
        if (folder / name).exists():
            return read(followed(folder / name))
        if (folder / f"{name}.index.json").exists():
            return _read_all(folder, f"{name}.index.json", read)
    if (folder / "adapter_config.json").exists():
        raise ModelError(
            f"{folder} holds adapters, not a model: merge them into theirs (merge_and_unload of peft) first"
        )
    there = ", ".join(sorted(path.name for path in folder.iterdir() if path.suffix in OTHERS)[:3])
    raise ModelError(
        f"{folder} has no {WEIGHTS} or {PICKLE}, nor an index of several such files"
        + (f"; what is there, {there}, is of another kind" if there else "")
    )


def _read_all(folder: Path, index: str, read: Read) -> dict[str, Tensor]:
    """Every file that an index names; each tensor must lie in the one that it is said to."""
    places = read_json(folder / index, VOCABULARY).get("weight_map")
    if not isinstance(places, Mapping) or not all(isinstance(name, str) for name in places.values()):
        raise ModelError(f"{folder / index} has no weight_map that says which tensor lies in which file")
    names = sorted(set(places.values()))
    odd = next((name for name in names if Path(name).name != name or not name.strip(".") or "\0" in name), None)
    if odd is not None or len(names) > MOST_FILES:
        problem = f"{len(names):,} files" if odd is None else f"a file that is none of the folder's, {odd[:80]!r}"
        raise ModelError(f"{folder / index} names {problem}")
    found: dict[str, Tensor] = {}
    for name in names:
        held = read(followed(folder / name))
        astray = next((tensor for tensor in held if places.get(tensor) != name), None)
        if astray is not None:
            raise ModelError(f"{folder / name} holds {astray[:80]}, which {index} does not say")
        found |= held
    missing = next((tensor for tensor in places if tensor not in found), None)
    if missing is not None:
        raise ModelError(f"{folder / index} promises {str(missing)[:80]}, which no file holds")
    return found
