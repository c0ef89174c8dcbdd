"""transduce convert: a model of another system as one of ours, or one of ours for another system."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transduce.commands import Hidden
from transduce.errors import ModelError, SettingsError
from transduce.report import SILENT, Report, Table

if TYPE_CHECKING:
    from transduce.formats.converted import Converted
    from transduce.model import Model
    from transduce.text.languages import Languages

SENTENCES = 200  # that both sides translate, to be compared
AGREE = 0.98  # of greedy translations, where nothing was rounded; ties and the last bits decide the rest
AGREE_ROUNDED = 0.8  # with weights in fewer bits
README = "A translation model, trained and packaged with transduce.\n"


def convert(
    source: Path,
    destination: Path,
    *,
    to: Literal["transduce", "huggingface", "ctranslate2", "argos"] = "transduce",
    quantization: Literal["int8", "int8_float32", "int16", "float16", "bfloat16"] | None = None,
    text: str | None = None,
    revision: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    check: bool = False,
    report: Hidden = SILENT,
) -> Table | None:
    """Bring a model of another system in, or send one of ours out; the numbers stay the same.

    Example: transduce convert opus-mt-de-en runs/opus

    Out again: transduce convert runs/mine mine-int8 --to ctranslate2 --quantization int8 --text some.de

    What is brought in works with every command: translate, evaluate, inspect, and train --from. What is sent out is
    compared with the original on some sentences.

    Parameters
    ----------
    source
        To bring in: a folder of Hugging Face's (MarianMTModel, which all of OPUS-MT is, M2M100, NLLB, mBART-50), or its
        name on the hub, such as Helsinki-NLP/opus-mt-de-en (an extra: hub); a folder of CTranslate2's with the model's
        SentencePiece files in it; an .argosmodel of Argos Translate. To send out: a model folder of ours.
    destination
        Folder to make, for argos a file; it must not exist.
    to
        transduce: bring in. huggingface: MarianMTModel, or Pegasus where norms come before; with tokenizer files.
        ctranslate2: for fast CPUs and GPUs, with SentencePiece files. argos: a package for LibreTranslate.
    quantization
        For ctranslate2 and argos: weights in fewer bits.
    text
        Sentences to compare with; those of the bundled corpus if not given.
    revision
        Of a name on the hub: a commit, so that it is the same model every time.
    source_language
        Of a model that knows many languages, such as de or deu_Latn: what it translates from, unless told otherwise.
        For argos: the language's code, such as de.
    target_language
        What it translates into, likewise.
    check
        Fail where too few translations agree.
    """
    if destination.exists():
        raise SettingsError(f"{destination} is there already; name a folder that is not")
    if quantization is not None and to not in ("ctranslate2", "argos"):
        raise SettingsError(f"--quantization {quantization} needs --to ctranslate2 or argos")
    languages = (source_language, target_language)
    with _made(destination) as place:
        if to == "transduce":
            _bring_in(_found(source, revision), place, languages, report)
            report.say(f"{destination} is made; try: transduce translate {destination}")
            return None
        model = _load(source, to, report)
        lines = _sentences(text, model)
        if to == "huggingface":
            table, share = _to_hugging_face(model, place, lines, report)
        elif to == "argos":
            table, share = _to_argos(model, place, quantization, lines, languages)
        else:
            table, share = _to_ctranslate2(model, place, quantization, lines)
        wanted = AGREE if quantization is None else AGREE_ROUNDED
        if check and share is None:
            raise SettingsError("--check compares with Hugging Face's library: pip install transformers")
        if check and share is not None and share < wanted:
            raise ModelError(
                f"only {share:.1%} of the translations by {source} and its copy agree; {wanted:.0%} should"
            )
    return table


def _found(source: Path, revision: str | None) -> Path:
    """A folder, or what the hub has under that name."""
    from transduce.formats import hub

    return source if source.exists() or not hub.is_name(source) else hub.fetch(str(source), revision)


@contextmanager
def _made(destination: Path) -> Iterator[Path]:
    """A folder or a file that gets its name when it is whole; of what fails nothing stays."""
    beside = destination.with_name(f"{destination.name}.part")
    _remove(beside)
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield beside
    except BaseException:
        _remove(beside)
        raise
    os.replace(beside, destination)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _bring_in(source: Path, destination: Path, languages: Languages, report: Report) -> None:
    from transduce.files.manifest import write_folder
    from transduce.files.run_folder import CONFIG, MODEL
    from transduce.models.load import load
    from transduce.models.weights import tensor_bytes
    from transduce.settings import config_file
    from transduce.text.languages import languages_of, with_languages
    from transduce.text.tokenizers import Tokenizers

    converted = _read(source)
    destination.mkdir()
    text = with_languages(converted.settings.text, languages)
    tokenizers = Tokenizers.from_files(converted.tokenizers, text)  # which knows these languages, or complains
    files = {CONFIG: config_file.write(replace(converted.settings, text=text)).encode(), **converted.tokenizers}
    write_folder(destination, {**files, MODEL: tensor_bytes(converted.weights)})
    count = sum(weight.numel() for weight in load(destination).model.parameters())
    many = len(languages_of(tokenizers.source))
    report.say(f"{count:,} weights of {source}{f', {many} languages' if many else ''}")


def _read(source: Path) -> Converted:
    """By the reader that knows the format."""
    from transduce.formats import argos, ctranslate2_in, hugging_face_in

    if source.suffix == argos.ENDING:
        return argos.read(source)
    return (ctranslate2_in if ctranslate2_in.is_folder(source) else hugging_face_in).read(source)


def _to_hugging_face(
    model: Model, destination: Path, lines: list[str], report: Report
) -> tuple[Table | None, float | None]:
    import importlib.util

    from transduce.files.atomic import write_files
    from transduce.formats import hugging_face_out
    from transduce.models.load import Loaded

    files = hugging_face_out.files(Loaded(model.model, model.tokenizers, model.settings))
    destination.mkdir()
    write_files({destination / name: content for name, content in files.items()})
    if importlib.util.find_spec("transformers") is None:
        report.warn("it is not compared with the original, which needs: pip install transformers")
        return None, None
    theirs = hugging_face_out.translations(destination, lines, model.lengths.positions)
    return _compared(model, destination, lines, theirs)


def _to_ctranslate2(model: Model, destination: Path, quantization: str | None, lines: list[str]) -> tuple[Table, float]:
    from transduce.files.atomic import write_files
    from transduce.formats import ctranslate2_out
    from transduce.models.transformer import Transformer

    assert isinstance(model.model, Transformer)
    destination.mkdir()
    names, other = (side.pieces(range(side.size)) for side in (model.tokenizers.source, model.tokenizers.target))
    ctranslate2_out.convert(model.model, destination, (names, other), quantization)
    sides = [*model.tokenizers.files().values()]
    write_files({destination / "source.spm": sides[0], destination / "target.spm": sides[-1]})
    theirs = ctranslate2_out.translations(destination, model.tokenizers, lines, model.lengths.positions)
    return _compared(model, destination, lines, theirs)


def _to_argos(
    model: Model, destination: Path, quantization: str | None, lines: list[str], languages: Languages
) -> tuple[Table, float]:
    """What CTranslate2 gets, in one file."""
    from transduce.files.atomic import write_files
    from transduce.formats import argos

    source, target = languages
    if source is None or target is None:
        raise SettingsError("--to argos needs --source-language and --target-language, such as de and en")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / destination.name
        table, share = _to_ctranslate2(model, folder, quantization, lines)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    pieces = files.pop("source.spm")
    files.pop("target.spm")
    write_files({destination: argos.package(files, pieces, (source, target), README)})
    return table, share


def _load(source: Path, to: str, report: Report) -> Model:
    """The model as the other system will have it: it does nothing to text before that is cut into tokens."""
    from transduce.formats import ctranslate2_out, hugging_face_out
    from transduce.model import Model
    from transduce.models.load import load
    from transduce.text.languages import languages_of
    from transduce.text.tokenizers import Tokenizers

    model, tokenizers, settings = load(source)
    reason = hugging_face_out.why_not(settings) if to == "huggingface" else ctranslate2_out.why_not(model)
    if reason:
        raise ModelError(f"{source} cannot become a model of {to}: {reason}")
    if settings.text.source_language or languages_of(tokenizers.source):
        raise ModelError(f"{source} knows many languages by their marks, which cannot go out to {to}")
    if settings.text.case == "marks":
        raise ModelError(f"{source} marks case (text.case=marks), which {to} cannot do; train with --text.case typed")
    if settings.text.protect is not None:
        report.warn(f"what passes through here (text.protect={settings.text.protect}) is ordinary text for {to}")
    plain = replace(settings.text, protect=None, protect_pattern=None)
    search = replace(settings.search, beam=1, split=False, extra=settings.model.max_positions)
    settings = replace(settings, text=plain, search=search)
    return Model(model, Tokenizers.from_files(tokenizers.files(), plain), settings, "cpu")


def _sentences(text: str | None, model: Model) -> list[str]:
    """Some to compare with, none of them too long for the model."""
    from transduce.bundled.corpus import bundled
    from transduce.data.lines import read_lines
    from transduce.text.normalise import normalise

    lines = read_lines(text) if text else (pair.source for pair in bundled().test)
    found = [line for line in map(normalise, islice(lines, SENTENCES)) if line]
    sizes = map(len, model.tokenizers.source.encode(found))
    fitting = [line for line, size in zip(found, sizes, strict=True) if size <= model.lengths.longest]
    if not fitting:
        raise SettingsError(f"--text {text} has no sentence to compare with that the model can read")
    return fitting


def _compared(model: Model, folder: Path, lines: list[str], theirs: tuple[list[str], float]) -> tuple[Table, float]:
    """Greedy translations by both, one line after the other."""
    begin = time.perf_counter()
    ours = [t.text for t in model.translate(lines)]
    seconds = time.perf_counter() - begin
    texts, their_seconds = theirs
    share = sum(a == b for a, b in zip(ours, texts, strict=True)) / len(lines)
    size = sum(path.stat().st_size for path in folder.iterdir())
    row = [f"{share:.1%}", f"{size / 1e6:.1f} MB", f"{len(lines) / their_seconds:,.0f}", f"{len(lines) / seconds:,.0f}"]
    heads = ["", "equal greedy translations", "size", "sentences/s there", "sentences/s here"]
    return Table(heads, [[folder.name.removesuffix(".part"), *row]], [f"{len(lines):,} sentences"]), share
