"""transduce convert: a model of another system as one of ours, or one of ours for another system."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from transduce.commands import Hidden
from transduce.commands.fasttext_files import bring_in_vectors, is_vectors_file, send_fasttext
from transduce.commands.send import load_as, send, sentences_for, sentences_of_run, to_argos, what_lacks
from transduce.errors import ModelError, SettingsError
from transduce.files.atomic import beside
from transduce.files.reading import SMALL, read_bytes
from transduce.report import SILENT, Report, Table

if TYPE_CHECKING:
    from transduce.formats.converted import Converted
    from transduce.text.languages import Languages

Format = Literal["transduce", "huggingface", "ctranslate2", "argos", "onnx", "fasttext"]
Quantization = Literal["int8", "int8_float32", "int16", "float16", "bfloat16"]
FORMATS: tuple[Format, ...] = get_args(Format)
SHOWN_MARKS, SHOWN_FOLDERS, DEPTH = 8, 3, 3
CODE = re.compile(r"[a-z]{2,3}([_-][A-Za-z]+)?")  # of a language
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)


def convert(
    source: Path,
    destination: Path,
    *,
    to: Format = "transduce",
    quantization: Quantization | None = None,
    text: str | None = None,
    revision: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    rows: int | None = None,
    retrain: str | None = None,
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
        To bring in: a folder of Hugging Face's (MarianMTModel, as all of OPUS-MT is, M2M100, NLLB, mBART, BART), or its
        name on the hub, such as Helsinki-NLP/opus-mt-de-en (an extra: hub); a folder of CTranslate2's with the model's
        SentencePiece files in it; an .argosmodel of Argos Translate; Marian's own .npz with its vocabulary beside it; a
        folder of JoeyNMT's or fairseq's; a translator of torch.nn.Transformer (docs/pretrained.md says how);
        fastText's .bin and .ftz; vectors as .vec, by word2vec or GloVe.
        To send out: a model folder of ours.
    destination
        Folder to make, for argos a file; it must not exist.
    to
        transduce: bring in. huggingface: MarianMTModel, or Pegasus where norms come before, or what it came from there
        as; with tokenizer files.
        ctranslate2: for fast CPUs and GPUs, with SentencePiece files. argos: a package for LibreTranslate. onnx: two
        graphs with a program that runs them without PyTorch. fasttext: a .bin, or a quantised .ftz, by its ending.
    quantization
        For ctranslate2 and argos: weights in fewer bits. For onnx: int8.
    text
        Sentences to compare with; those of the run's validation text, or of the bundled corpus, if not given. For
        fasttext: lines with labels.
    revision
        Of a name on the hub: a commit, so that it is the same model every time.
    source_language
        Of a model that knows many languages, such as de or deu_Latn: what it translates from, unless told otherwise.
        For argos: the language's code, such as de.
    target_language
        What it translates into, likewise.
    rows
        For an .ftz: so many rows, those with the longest vectors; all if not given.
    retrain
        For an .ftz: the training text, on which what is left of the rows learns once more.
    check
        Fail where log-probabilities differ, or too few translations agree, greedy or with a beam.
    """
    if destination.exists():
        raise SettingsError(f"{destination} is there already; name a folder that is not")
    known = {"ctranslate2": None, "argos": None, "onnx": "int8"}
    if quantization is not None and (to not in known or known[to] not in (None, quantization)):
        raise SettingsError(f"--quantization {quantization} needs --to ctranslate2 or argos; onnx has int8")
    languages = (source_language, target_language)
    if to == "argos" and None in languages:
        raise SettingsError("--to argos needs --source-language and --target-language, such as de and en")
    for code in languages if to == "argos" else ():
        if not CODE.fullmatch(code or ""):
            report.warn(
                f"{code} is no code of a language, by which Argos Translate and LibreTranslate choose: such as de"
            )
    if to == "transduce":
        _refuse_binary(source)
    with _made(destination) as place:
        if to == "fasttext":
            return send_fasttext(source, place, rows, retrain, text, report)
        if to == "transduce" and is_vectors_file(source):
            bring_in_vectors(source, place, report)
            return None
        if to == "transduce":
            asks = _bring_in(_found(source, revision), place, languages, report)
            spoken = " --source-language ... --target-language ..." if asks else ""
            report.say(f"{destination} is made; try: transduce translate {shlex.quote(str(destination))}{spoken}")
            return None
        model = load_as(source, to, (None, None) if to == "argos" else languages, report)
        if check and (lacking := what_lacks(model, to)):
            raise SettingsError(f"--check compares it with the original, which needs: {lacking}")
        own = [] if text else sentences_of_run(source, model)
        lines = sentences_for(model, text or own)
        report.say(f"writing it for {to}, then comparing translations of {len(lines)} sentences")
        if to == "argos":
            table, agreement = to_argos(model, place, quantization, lines, languages, report)
        else:
            table, agreement = send(model, to, place, quantization, lines, report)
        if agreement is not None and text is None:
            which = "the run's validation text" if own else "the bundled corpus"
            report.say(f"compared on sentences of {which}; on others with --text")
        if check and agreement is not None:
            agreement.check(source, rounded=quantization is not None)
    return table


def _refuse_binary(source: Path) -> None:
    from transduce.formats import marian_in

    if (binary := marian_in.binary_in(source)) is not None:
        raise ModelError(
            f"{binary} is a model in Marian's binary form, as Firefox has them; what can be read is the .npz that "
            f"it was made of"
        )


def _found(source: Path, revision: str | None) -> Path:
    """A folder, or what the hub has under that name."""
    from transduce.formats import hub

    if not source.exists() and not hub.is_name(source):
        raise ModelError(f"there is no model {source}")
    return _within(source) if source.exists() else hub.fetch(str(source), revision)


def _within(source: Path) -> Path:
    """The folder itself; of the hub's cache, which keeps versions, the newest."""
    newest = source / "refs" / "main"
    if not newest.is_file():
        return source
    name = read_bytes(newest, SMALL).decode("utf-8", "replace").strip()
    version = source / "snapshots" / name
    return version if name.isalnum() and version.is_dir() else source


@contextmanager
def _made(destination: Path) -> Iterator[Path]:
    """A folder or a file that gets its name when it is whole; of what fails nothing stays."""
    around = beside(destination)
    around.mkdir(parents=True)
    try:
        yield around / destination.name
        os.replace(around / destination.name, destination)
    finally:
        shutil.rmtree(around, ignore_errors=True)


def _bring_in(source: Path, destination: Path, languages: Languages, report: Report) -> bool:
    """Make the folder; whether it has to be told languages at every use."""
    from transduce.files.manifest import write_folder
    from transduce.files.run_folder import CONFIG, MODEL
    from transduce.models.load import load
    from transduce.models.weights import tensor_bytes
    from transduce.settings import config_file
    from transduce.text.languages import EVERY_TEXT, languages_of, needs_languages, typed_marks, with_languages
    from transduce.text.tokenizers import Tokenizers

    converted = _read(source)
    destination.mkdir()
    text = with_languages(converted.settings.text, languages)
    try:
        tokenizers = Tokenizers.from_files(converted.tokenizers, text)  # which knows these languages, or complains
    except (RuntimeError, ValueError) as error:  # as SentencePiece says it
        reason = str(error).partition("\n")[0][:100]
        raise ModelError(f"the SentencePiece model of {source} cannot be used: {reason}") from error
    files = {CONFIG: config_file.write(replace(converted.settings, text=text)).encode(), **converted.tokenizers}
    write_folder(destination, {**files, MODEL: tensor_bytes(converted.weights)})
    count = sum(weight.numel() for weight in load(destination).model.parameters())
    for note in converted.notes:
        report.warn(note)
    if typed := typed_marks(tokenizers.source):
        names = ", ".join(typed[:SHOWN_MARKS]) + (", ..." if len(typed) > SHOWN_MARKS else "")
        report.say(f"{len(typed)} target languages: write {typed[0]} before each line, or another of {names}")
    many = len(languages_of(tokenizers.source).keys() - {EVERY_TEXT})
    report.say(f"{count:,} weights of {source}{f', {many} languages' if many else ''}")
    return many > 0 and needs_languages(text)


def _read(source: Path) -> Converted:
    """By the reader that knows the format."""
    from transduce.files.manifest import MANIFEST
    from transduce.formats import argos, ctranslate2_in, fairseq_in, hugging_face_in, joeynmt_in, marian_in, pytorch_in

    if source.suffix == argos.ENDING:
        return argos.read(source)
    if argos.is_unpacked(source):
        return argos.read_unpacked(source)
    if (source / MANIFEST).exists():
        raise SettingsError(
            f"{source} is a model of ours; send it out with --to huggingface, ctranslate2, argos, onnx or fasttext"
        )
    if (source / "decoder.onnx").exists():
        raise ModelError(f"{source} holds graphs of ONNX, which cannot be brought in; take the model they were made of")
    if source.is_file() and source.suffix != marian_in.ENDING:
        raise ModelError(f"{source} is a file, and no model that can be brought in; name the folder of one")
    if not (source / hugging_face_in.CONFIG).exists() and (weights := marian_in.find(source)):
        return marian_in.read(weights)
    if checkpoint := fairseq_in.find(source):
        return fairseq_in.read(source, checkpoint)
    for reader in (pytorch_in, joeynmt_in):
        if reader.is_folder(source):
            return reader.read(source)
    if ctranslate2_in.is_folder(source):
        return ctranslate2_in.read(source)
    if not (source / hugging_face_in.CONFIG).exists():
        raise ModelError(f"{source} holds no model that is known here: {_hint(source)}")
    return hugging_face_in.read(source)


def _hint(source: Path) -> str:
    """Folders below that may be meant."""
    files = itertools.chain(*(source.glob("*/" * depth + "config.json") for depth in range(1, DEPTH + 1)))
    below = [str(path.parent) for path in itertools.islice(files, SHOWN_FOLDERS)]
    below += list(map(str, itertools.islice(source.glob("*.argosmodel"), SHOWN_FOLDERS)))
    return f"one may lie in {', '.join(below)}" if below else "config.json is missing"
