"""From the files that a user names to a corpus: what a file holds is told by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from transduce.data.comma import CommaFile
from transduce.data.corpus import Corpus, Joined, TwoFiles, parts_of
from transduce.data.lines import read_lines
from transduce.data.one_file import LABEL, JsonLines, Labelled, TabFile, Two
from transduce.data.packed import bare_name
from transduce.data.parquet import ParquetFile
from transduce.data.tmx import TranslationMemory
from transduce.errors import DataError, SettingsError

BOTH_SIDES = (".tsv", ".csv", ".jsonl", ".tmx", ".parquet")  # ends of files that hold both


def open_files(
    sources: Sequence[str],
    targets: Sequence[str],
    labels: bool = False,
    columns: Two | None = None,
    languages: Two | None = None,
    flags: Two = ("--source", "--target"),
) -> Corpus:
    """One corpus of all that is named; files that hold both sides need no target."""
    parts = [
        open_corpus(source, target, labels, columns, languages)
        for source, target in _matched(sources, targets, labels, flags)
    ]
    if columns and not any(isinstance(part, TabFile | CommaFile | JsonLines | ParquetFile) for part in parts):
        raise SettingsError(f"--columns {' '.join(columns)} has no effect: no .tsv, .csv, .jsonl or .parquet is named")
    if languages and not any(isinstance(part, TranslationMemory) for part in parts):
        raise SettingsError(f"--languages {' '.join(languages)} has no effect: no .tmx is named")
    return parts[0] if len(parts) == 1 else Joined(parts)


def _matched(
    sources: Sequence[str], targets: Sequence[str], labels: bool, flags: Two
) -> Iterator[tuple[str, str | None]]:
    """Each source with its target, in the order they are given."""
    if len(targets) == len(sources):
        return zip(sources, targets, strict=True)
    lack = [not holds_both_sides(source) and not (labels and not targets) for source in sources]
    if len(targets) != sum(lack) and len(sources) + len(targets) > 1:
        raise SettingsError(
            f"{flags[0]} names {len(sources)} files and {flags[1]} {len(targets)}: give as many, in the same order "
            f"(those that hold both sides, {' '.join(BOTH_SIDES)}, need none)"
        )
    rest = iter(targets)
    return iter([(source, next(rest, None) if needs else None) for source, needs in zip(sources, lack, strict=True)])


def holds_both_sides(path: str) -> bool:
    return bare_name(path).endswith(BOTH_SIDES)


def open_corpus(
    source: str,
    target: str | None,
    labels: bool = False,
    columns: Two | None = None,
    languages: Two | None = None,
) -> Corpus:
    """The corpus of one or two files; with `labels`, one file may carry them before its lines."""
    for path in (source, target):
        if path is not None and Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise DataError(f"{path} is a pipe, which can be read only once; write the text to a file first")
    if target is None:
        return _open_one(source, labels, columns, languages)
    for path in (source, target):
        if bare_name(path).endswith((".tmx", ".parquet")):
            raise DataError(f"{path} holds both sides, and needs no other file; leave --target out")
    if labels and next(read_lines(source), "").startswith(LABEL):
        raise DataError(f"{source} has labels before its lines already; give either those or {target}")
    return TwoFiles(source, target)


def _open_one(path: str, labels: bool, columns: Two | None, languages: Two | None) -> Corpus:
    bare = bare_name(path)
    if bare.endswith(".tsv"):
        return TabFile(path, columns)
    if bare.endswith(".csv"):
        return CommaFile(path, columns)
    if bare.endswith(".jsonl"):
        return JsonLines(path, columns)
    if bare.endswith(".tmx"):
        return TranslationMemory(path, languages)
    if bare.endswith(".parquet"):
        return ParquetFile(path, columns)
    if labels:
        return Labelled(path)
    if Path(path).is_file() and next(read_lines(path), "").startswith(LABEL):
        raise DataError(f"{path} has labels before its lines: train on it with --task classify")
    raise DataError(
        f"{path} holds one side only: give the other too (--target, or --reference where a model is scored), "
        f"or use a .tsv, .csv, .jsonl, .tmx or .parquet file"
    )


def remarks(corpus: Corpus) -> Iterator[str]:
    """A sentence for each .tsv and .csv of which nobody chose columns, and for each .tmx whose order nobody said."""
    for part in parts_of(corpus):
        if isinstance(part, TabFile) and part.columns is None:
            columns = next(read_lines(part.path), "").count("\t") + 1
            if columns > 2:
                which = "column 3 is" if columns == 3 else f"columns 3 to {columns} are"
                yield f"{part.path}: {which} ignored, see --columns"
        if isinstance(part, CommaFile) and (remark := part.remark()):
            yield remark
        if isinstance(part, TranslationMemory) and part.languages is None:
            source, target = part.sides()
            if source and target:
                yield f"{part.path}: from {source} to {target}; the other way: --languages {target} {source}"
