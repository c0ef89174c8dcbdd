"""Packages of Argos Translate and LibreTranslate (.argosmodel): a zip archive with a model of CTranslate2, one
SentencePiece model or a list of BPE merges, and metadata.json.

An archive may come from anybody. Nothing is unpacked by the names it gives: the few files that are needed are looked
up, their sizes are looked at first, and they are written under names of ours.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from transduce.errors import ModelError
from transduce.files.reading import DAMAGED, SMALL, VOCABULARY, problem_with
from transduce.formats import ctranslate2_in
from transduce.formats.converted import Converted
from transduce.formats.json_files import read_json

ENDING, METADATA = ".argosmodel", "metadata.json"
BEAM, LENGTH_PENALTY = 4, 0.2  # of Argos Translate's search
LARGEST = 8_000_000_000  # bytes of a model's weights
MOST_DENSE = 50  # times that weights may be larger than in the archive: numbers are hardly packed
MANY = 10_000  # files of an archive; those for finding sentences are many
WANTED = {  # and the most bytes of each
    METADATA: SMALL,
    "model/model.bin": LARGEST,
    "model/config.json": SMALL,
    **{f"model/{side}_vocabulary.json": VOCABULARY for side in ("shared", "source", "target")},
    **{f"model/{side}_vocabulary.txt": VOCABULARY for side in ("shared", "source", "target")},
    "sentencepiece.model": VOCABULARY,
    "bpe.model": VOCABULARY,
}  # fmt: skip


def read(path: Path) -> Converted:
    """A package as a model of ours."""
    if problem := problem_with(path):
        raise ModelError(f"{path} {problem}")
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            members = _members(archive, path)
            pieces = "bpe.model" if "bpe.model" in members else "sentencepiece.model"
            missing = [name for name in ("model/model.bin", pieces) if name not in members]
            if missing:
                raise ModelError(f"{path} is no package of Argos Translate: {', '.join(missing)} is not there")
            for name, member in members.items():
                _copy(archive, member, Path(folder) / Path(name).name)
            return _as_argos_searches(ctranslate2_in.read(Path(folder)), Path(folder))
    except DAMAGED as error:
        raise ModelError(f"{path} is no zip archive, or damaged: {str(error)[:100]}") from error


def is_unpacked(folder: Path) -> bool:
    """Whether this is a package as Argos Translate keeps it once it is installed."""
    return (folder / METADATA).exists() and (folder / "model" / ctranslate2_in.MODEL).exists()


def read_unpacked(folder: Path) -> Converted:
    return _as_argos_searches(ctranslate2_in.read(folder / "model", tokenizer=folder), folder)


def _as_argos_searches(converted: Converted, folder: Path) -> Converted:
    facts = read_json(folder / METADATA, SMALL) if (folder / METADATA).exists() else {}
    if facts.get("target_prefix"):
        raise ModelError(
            f"this package begins every translation with {str(facts['target_prefix'])[:40]}, which cannot be converted"
        )
    search = replace(converted.settings.search, beam=BEAM, length_penalty=LENGTH_PENALTY)
    return converted._replace(settings=replace(converted.settings, search=search))


def _members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The files that are needed, by their place within the package's folder."""
    listed = archive.infolist()
    if len(listed) > MANY:
        raise ModelError(f"{path} has {len(listed):,} files, which no package has")
    found: dict[str, zipfile.ZipInfo] = {}
    for member in listed:
        name = member.filename.partition("/")[2]  # all lie in one folder, whatever its name
        if name not in WANTED:
            continue
        if name in found:
            raise ModelError(f"{path} has {name} twice")
        dense = member.file_size > MOST_DENSE * max(member.compress_size, 1000)
        if member.file_size > WANTED[name] or dense:
            raise ModelError(f"{path}: {name} would have {member.file_size:,} bytes, which cannot be")
        found[name] = member
    return found


def _copy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, to: Path) -> None:
    """At most as many bytes as were promised."""
    left = member.file_size
    with archive.open(member) as source, to.open("wb") as target:
        while piece := source.read(min(1 << 20, left + 1)):
            left -= len(piece)
            if left < 0:
                raise ModelError(f"{member.filename[:80]} is larger than the archive says")
            target.write(piece)


def package(model: Mapping[str, bytes], pieces: bytes, languages: tuple[str, str], readme: str) -> bytes:
    """A package from the files of a CTranslate2 folder and the SentencePiece model of the source."""
    source, target = languages
    facts = {"package_version": "1.0", "argos_version": "1.9", "type": "translate"}
    facts |= {"from_code": source, "from_name": source, "to_code": target, "to_name": target}
    files = {"metadata.json": json.dumps(facts, indent=1).encode(), "README.md": readme.encode()}
    files |= {"sentencepiece.model": pieces, **{f"model/{name}": content for name, content in model.items()}}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"{source}_{target}/{name}"), content, zipfile.ZIP_DEFLATED)
    return written.getvalue()
