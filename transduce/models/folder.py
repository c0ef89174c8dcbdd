"""A model on disk: only safe, readable files, and a manifest that tells whether they are whole.

config.yaml           the resolved settings
tokenizer.model       or source.* and target.* where the vocabularies are apart; .txt for words and characters
model.safetensors     the weights that are used
weights/              best, last and averaged weights of a training run
manifest.json         sha256 of every file above, written last
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from transduce import config
from transduce.config import Settings
from transduce.errors import ModelError, UserError
from transduce.models import classifier, recurrent, transformer
from transduce.models.seq2seq import Seq2Seq
from transduce.text.tokenizer import Tokenizers

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"
MODEL = "model.safetensors"


class Loaded(NamedTuple):
    """A model with all that is needed to use it."""

    model: Seq2Seq
    tokenizers: Tokenizers
    settings: Settings


KINDS = {"transformer": transformer.build, "rnn": recurrent.build, "classifier": classifier.build}


def new_model(settings: Settings, tokenizers: Tokenizers) -> Seq2Seq:
    """A new model for these vocabularies, random weights."""
    return KINDS[settings.model.kind](settings.model, tokenizers.source.size, tokenizers.target.size)


def load(folder: str | Path, device: str = "cpu", weights: str | None = None) -> Loaded:
    """The model in a folder, checked against its manifest. `weights`: best, last or averaged instead of the usual."""
    folder = Path(folder)
    name = MODEL if weights is None else f"weights/{weights}.safetensors"
    known = manifest(folder)
    if MODEL not in known:
        raise ModelError(f"{folder} is not a model folder: training has not saved a model yet")
    if name not in known:
        there = ", ".join(Path(known_name).stem for known_name in known if known_name.startswith("weights/"))
        raise ModelError(f"{folder} holds no {weights} weights; there are: {there}")
    needed = [name, *(other for other in known if other != MODEL and not other.startswith("weights/"))]
    try:
        verify(folder, needed)
    except ModelError:
        time.sleep(0.5)  # a run may just be replacing it: file and manifest are two renames
        verify(folder, needed)
    settings = config.compose(config.read(folder / "config.yaml"))
    tokenizers = Tokenizers.load(folder, settings.text)
    model = new_model(settings, tokenizers)
    restore(model, read_tensors(folder / name), folder / name)
    return Loaded(model.to(device).eval(), tokenizers, settings)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters by name; a shared one once."""
    return {name: weight.detach().to("cpu", copy=True) for name, weight in model.named_parameters()}


def restore(model: nn.Module, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Put weights into a model of the same shape."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        odd = sorted(parameters.keys() ^ weights.keys())[0]
        raise ModelError(f"{origin} does not fit config.yaml: {odd} is on one side only")
    for name, parameter in parameters.items():
        if parameter.shape != weights[name].shape:
            have, want = tuple(weights[name].shape), tuple(parameter.shape)
            raise ModelError(f"{origin} does not fit config.yaml: {name} has shape {have}, not {want}")
        with torch.no_grad():
            parameter.copy_(weights[name])


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is damaged or cut short: {error}") from error


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(dict(tensors))


def write_file(path: Path, content: bytes) -> None:
    """All of it or nothing: written beside, flushed to the disk, renamed. A link is followed."""
    if not path.name or path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder; name a file")
    if path.exists() and not path.is_file():
        raise UserError(f"cannot write {path}: it is not an ordinary file")
    path = path.resolve()
    _write_beside(path, content, len(content))
    os.replace(_beside(path), path)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Add or replace files of a folder and its manifest: all are written beside, then renamed, the manifest last."""
    known = manifest(folder) if (folder / MANIFEST).exists() else {}
    known.update({name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    everything = {**files, MANIFEST: json.dumps({"sha256": known}, indent=1).encode()}
    needed = sum(map(len, everything.values()))
    try:
        for name, content in everything.items():
            _write_beside(folder / name, content, needed)
    except UserError:
        for name in everything:
            _beside(folder / name).unlink(missing_ok=True)
        raise
    for name in everything:
        os.replace(_beside(folder / name), folder / name)
    flush(folder)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within, no other process may hold this folder; the system lets go of it when we die."""
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another process is training in {folder}; wait until it ends, or choose another run folder"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def flush(folder: Path) -> None:
    """New names in a folder onto the disk too, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _write_beside(path: Path, content: bytes, needed: int) -> None:
    """`needed`: bytes of all that is being written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(_beside(path), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            _beside(path).unlink(missing_ok=True)
        need = f"{needed / 1e6:.1f} MB are needed; what was saved before is untouched"
        raise UserError(f"cannot write {path}: {error.strerror} ({need})") from error


def manifest(folder: Path) -> dict[str, str]:
    """The sha256 of each file of a folder, by name."""
    if folder.is_file():
        raise ModelError(f"{folder} is a file, not a model folder")
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}")
    if not (folder / MANIFEST).exists():
        raise ModelError(f"{folder} is not a model folder: it has no {MANIFEST}")
    try:
        return dict(json.loads((folder / MANIFEST).read_text())["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder / MANIFEST} cannot be read; copy the folder again or train anew") from error


def verify(folder: Path, names: Iterable[str]) -> None:
    """Raise a ModelError that tells which of these files are missing or not as they were written."""
    known = manifest(folder)
    wrong = []
    for name in names:
        if not (folder / name).exists():
            wrong.append(f"{name} is missing")
        elif not os.access(folder / name, os.R_OK) or not (folder / name).is_file():
            wrong.append(f"{name} cannot be read")
        elif name not in known or _sha256(folder / name) != known[name]:
            wrong.append(f"{name} was cut short or altered")
    if wrong:
        raise ModelError(f"{folder} is damaged: {', '.join(wrong)}; copy the folder again or train anew")


def is_up_to_date(folder: Path, name: str, origin: Path) -> bool:
    """Whether this file of a folder is a copy of another, by the manifest and in truth."""
    content = _sha256(origin)
    return (folder / name).exists() and manifest(folder).get(name) == content == _sha256(folder / name)


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
