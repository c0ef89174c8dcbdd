"""What convert does with fastText's files and others' vectors."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.errors import ModelError, SettingsError
from transduce.report import Report, Table
from transduce.settings.config_file import is_fasttext

if TYPE_CHECKING:
    from transduce.fasttext.network import Network


def is_vectors_file(path: Path) -> bool:
    """Whether a file is a model of fastText, or a list of vectors."""
    from transduce.fasttext.bin_file import is_fasttext_file

    endings = (".vec", ".txt", ".gz", ".w2v", ".bin", ".ftz")
    return path.is_file() and (path.suffix in endings or is_fasttext_file(path))


def bring_in_vectors(source: Path, destination: Path, report: Report) -> None:
    """A folder of the kind fasttext from a file of another system."""
    from transduce.fasttext.bin_file import is_fasttext_file, read_fasttext
    from transduce.fasttext.folder import save
    from transduce.fasttext.network import of_table
    from transduce.fasttext.text_files import read_table
    from transduce.settings.compose import compose
    from transduce.settings.presets import find

    network = read_fasttext(source) if is_fasttext_file(source) else of_table(*read_table(source))
    labels = network.settings.objective == "labels"
    kind = find("fasttext").settings if labels else {"model": {"kind": "fasttext"}}
    settings = compose(kind, {"vectors": dataclasses.asdict(network.settings)})
    destination.mkdir()
    save(network, settings, destination)
    d = network.dictionary
    what = f"{len(d.labels):,} labels, " if labels else ""
    report.say(f"{what}{len(d.words):,} words and {len(network.buckets):,} rows of n-grams of {source}")


def send_fasttext(
    source: Path, destination: Path, rows: int | None, retrain: str | None, text: str | None, report: Report
) -> Table | None:
    """fastText's .bin, or a quantised .ftz with only so many rows; on text with labels, what that costs."""
    from transduce.fasttext import folder
    from transduce.fasttext.bin_file import pruned, write_fasttext

    ending = destination.suffix
    if ending not in (".bin", ".ftz"):
        raise SettingsError(f"{destination.name} must end in .bin, or in .ftz to be quantised")
    small = ending == ".ftz"
    if (rows or retrain) and not small:
        raise SettingsError("--rows and --retrain are for a quantised .ftz; a .bin has all rows")
    if not is_fasttext(source):
        raise ModelError(f"{source} is no model of the kind fasttext; --to fasttext sends only those out")
    network, settings = folder.load(source)
    if network.settings.tokens != "words":
        report.warn(
            "fastText cuts text at spaces only: put one around each character or subword before you give it text"
        )
    sent = network
    if rows is not None:
        sent = pruned(network, rows)
        report.say(f"{len(sent.E):,} of {len(network.E):,} rows kept")
    if retrain is not None:
        sent = _retrained(sent, retrain, report)
    write_fasttext(sent, destination, small)
    return _table(source, destination, text) if text and settings.vectors.objective == "labels" else None


def _retrained(network: Network, path: str, report: Report) -> Network:
    """What is left learns to do without the rest."""
    from transduce.fasttext.encode import encode
    from transduce.fasttext.labelled import labelled_lines
    from transduce.fasttext.training import train

    place = tempfile.mkdtemp()
    try:
        s = network.settings
        lines = labelled_lines([path])
        text = encode(lines(), network.dictionary, Path(place), s.word_ngrams > 1)
        copy = dataclasses.replace(network, E=network.E.copy(), U=network.U.copy())
        train(copy, text, report)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return copy


def _table(source: Path, destination: Path, text: str) -> Table:
    from transduce.fasttext import folder
    from transduce.fasttext.bin_file import read_fasttext
    from transduce.fasttext.labelled import labelled_lines
    from transduce.fasttext.measure import measured

    lines = list(labelled_lines([text])())
    rows = []
    for name, network in ((str(source), folder.load(source)[0]), (destination.name, read_fasttext(destination))):
        place = source / folder.MODEL if name == str(source) else destination
        size = f"{place.stat().st_size / 1e6:.2f} MB"
        rows.append([name, size, f"{measured(network, lines).precision:.4f}"])
    return Table(["", "size", "P@1"], rows, [f"{len(lines):,} lines of {text}"])
