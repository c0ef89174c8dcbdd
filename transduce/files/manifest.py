"""manifest.json: the sha256 of every file of a folder, written last. A folder without a valid one is not whole.

Names in it are plain and lead nowhere else: `config.yaml`, `weights/best.safetensors`.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from transduce.errors import ModelError
from transduce.files import strict_json
from transduce.files.atomic import write_files
from transduce.files.reading import SMALL, VOCABULARY, problem_with, read_bytes, sha256

MANIFEST = "manifest.json"
PLAIN_NAME = re.compile(r"(?:[\w-][\w.-]{0,99}/)?[\w-][\w.-]{0,99}", re.ASCII)
CHECKSUM = re.compile(r"[0-9a-f]{64}")
WAY_OUT = "copy the folder again or train anew"


def read_manifest(folder: Path) -> dict[str, str]:
    """The sha256 of each file of a folder, by name."""
    path = folder / MANIFEST
    if folder.is_file():
        raise ModelError(f"{folder} is a file, not a model folder")
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}")
    problem = problem_with(path, SMALL)
    if problem == "is missing":
        raise ModelError(_without_manifest(folder))
    if problem:
        raise ModelError(f"{folder} is damaged: {MANIFEST} {problem}; {WAY_OUT}")
    try:
        checksums = strict_json.loads(read_bytes(path, SMALL))["sha256"]
        if not all(CHECKSUM.fullmatch(checksum) for checksum in checksums.values()):
            raise ValueError("a checksum is none")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read; {WAY_OUT}") from error
    for name in checksums:
        if not PLAIN_NAME.fullmatch(name):
            raise ModelError(f"{path} names a file {name[:80]!r}, which is no plain name in this folder; {WAY_OUT}")
    return checksums


def _without_manifest(folder: Path) -> str:
    """What a folder is that has none: a model of another program, a damaged one, or none at all."""
    if any((folder / name).exists() for name in ("config.json", "model.bin", "metadata.json")):
        bring = f"transduce convert {shlex.quote(str(folder))} NEW"
        return f"{folder} is a model of another program; bring it in first: {bring}"
    if any((folder / name).exists() for name in ("config.yaml", "model.safetensors")):
        return f"{folder} is damaged: {MANIFEST} is missing; {WAY_OUT}"
    return f"{folder} is not a model folder: it has no {MANIFEST}"


def verify(folder: Path, names: Iterable[str], present: Iterable[str] = ()) -> None:
    """Raise a ModelError that tells which of these files are missing or not as they were written; `present`: those that
    only have to be there, since others must be known before they are read."""
    checksums = read_manifest(folder)
    wrong = [f"{name} {problem}" for name in present if (problem := problem_with(folder / name))]
    for name in names:
        if problem := problem_with(folder / name, _largest(name)):
            wrong.append(f"{name} {problem}")
        elif name not in checksums or sha256(folder / name) != checksums[name]:
            wrong.append(f"{name} was cut short or altered")
    if wrong:
        raise ModelError(f"{folder} is damaged: {', '.join(wrong)}; {WAY_OUT}")


def _largest(name: str) -> int | None:
    """Bytes that a file of this name may have; weights have as many as their header says (models/weights.py)."""
    if name.endswith(".safetensors"):
        return None
    return SMALL if name.endswith((".yaml", ".json")) else VOCABULARY


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Add or replace files of a folder, and its manifest last."""
    checksums = read_manifest(folder) if (folder / MANIFEST).exists() else {}
    checksums.update({name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    manifest = strict_json.dumps({"sha256": checksums}, indent=1).encode()
    write_files({**{folder / name: content for name, content in files.items()}, folder / MANIFEST: manifest})


def remove_from_folder(folder: Path, names: Iterable[str]) -> None:
    """Take files out of a folder and of its manifest; the manifest first, so that it never names what is gone."""
    names = set(names)
    if not names:
        return
    if (folder / MANIFEST).exists():
        kept = {name: checksum for name, checksum in read_manifest(folder).items() if name not in names}
        write_files({folder / MANIFEST: strict_json.dumps({"sha256": kept}, indent=1).encode()})
    for name in names:
        (folder / name).unlink(missing_ok=True)


def is_copy_of(folder: Path, name: str, origin: Path) -> bool:
    """Whether this file of a folder holds what another does, by the manifest and in truth."""
    content = sha256(origin)
    return problem_with(folder / name) is None and read_manifest(folder).get(name) == content == sha256(folder / name)
