"""A model of ours for other systems: written in their format, and compared with the original on some sentences."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.commands.parity import Agreement, compare
from transduce.errors import ModelError, SettingsError
from transduce.report import Report, Table

if TYPE_CHECKING:
    from transduce.core.seq2seq import Seq2Seq
    from transduce.model import Model
    from transduce.settings.sections import SearchSettings
    from transduce.text.languages import Languages

PATIENCE = 2  # beams of ends that CTranslate2 waits for, so that its search is as near to ours as it can be
SENTENCES = 200  # that both sides translate, to be compared
FEWEST = 20  # of a run's own, for a share to mean anything
LARGEST = 2**26  # bytes of them that are read
README = "A translation model, trained and packaged with transduce.\n"


Sent = tuple[Table | None, Agreement | None]  # the table is for people


def send(model: Model, to: str, place: Path, quantization: str | None, lines: list[str], report: Report) -> Sent:
    """Write a model and compare it."""
    if to == "huggingface":
        return to_hugging_face(model, place, lines, report)
    if to == "onnx":
        return to_onnx(model, place, quantization, lines, report)
    power = _power(model.settings.search)["length_penalty"]
    on = "" if model.settings.search.stop == "usual" else f" and patience={PATIENCE}, which looks on"
    report.say(f"CTranslate2 searches as it is told; most like this model with length_penalty={power:g}{on}")
    return to_ctranslate2(model, place, quantization, lines, report)


def what_lacks(model: Model, to: str) -> str | None:
    """For its copy to be compared with it, in words; None: nothing."""
    import importlib.util

    from transduce.text.languages import languages_of, needs_languages

    if to == "huggingface" and importlib.util.find_spec("transformers") is None:
        return "pip install transformers"
    if languages_of(model.tokenizers.source) and needs_languages(model.settings.text):
        return "--source-language and --target-language"
    return None


def to_hugging_face(model: Model, destination: Path, lines: list[str], report: Report) -> Sent:
    from transduce.files.atomic import write_files
    from transduce.formats import hugging_face_out
    from transduce.models.load import Loaded

    loaded = Loaded(model.model, model.tokenizers, model.settings)
    text = hugging_face_out.text_of(loaded)
    files = hugging_face_out.files(loaded, text)
    destination.mkdir()
    write_files({destination / name: content for name, content in files.items()})
    if lacking := what_lacks(model, "huggingface"):
        report.warn(f"it is not compared with the original, which needs: {lacking}")
        return None, None
    s = model.search
    early = s.stop == "usual" and s.beam > 1
    rule = {**_power(s), "stop": "usual" if early else "likely"}
    rule |= {key: getattr(s, key) for key in ("forced_end", "no_repeat", "min_length")}
    return compare(model, destination, lines, hugging_face_out.Copy(destination, model.settings, text), rule, report)


def to_ctranslate2(model: Model, destination: Path, quantization: str | None, lines: list[str], report: Report) -> Sent:
    from transduce.core.transformer import Transformer
    from transduce.files.atomic import write_files
    from transduce.formats import ctranslate2_out
    from transduce.formats.ctranslate2_text import token_there
    from transduce.text.languages import languages_of, mark_of

    assert isinstance(model.model, Transformer)
    destination.mkdir()
    both = (model.tokenizers.source, model.tokenizers.target)
    names, other = ([*map(token_there, side.pieces(range(side.size)))] for side in both)
    ctranslate2_out.convert(model.model, destination, (names, other), quantization)
    sides = [*model.tokenizers.files().values()]
    write_files({destination / "source.spm": sides[0], destination / "target.spm": sides[-1]})
    if marks := languages_of(model.tokenizers.source):
        some = " or ".join(token_there(mark_of(code)) for code in list(marks)[:2])
        report.say(
            f"CTranslate2 knows no languages: begin every source with the mark of its own, such as {some}, and every "
            f"translation with that of the other (target_prefix)"
        )
    if lacking := what_lacks(model, "ctranslate2"):
        report.warn(f"it is not compared with the original, which needs: {lacking}")
        return None, None
    rule = {**_power(model.search), "stop": "usual"}
    copy = ctranslate2_out.Copy(destination, model.tokenizers, rule["length_penalty"])
    return compare(model, destination, lines, copy, rule, report)


def to_argos(
    model: Model, destination: Path, quantization: str | None, lines: list[str], languages: Languages, report: Report
) -> Sent:
    """What CTranslate2 gets, in one file."""
    from transduce.files.atomic import write_files
    from transduce.formats import argos

    source, target = languages
    assert source is not None
    assert target is not None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / destination.name
        table, agreement = to_ctranslate2(model, folder, quantization, lines, report)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    pieces = files.pop("source.spm")
    files.pop("target.spm")
    write_files({destination: argos.package(files, pieces, (source, target), README)})
    return table, agreement


def to_onnx(
    model: Model, destination: Path, quantization: str | None, lines: list[str], report: Report
) -> tuple[Table, Agreement]:
    """Two graphs, the vocabularies, what a search needs to know, and a program that is all of it."""
    import inspect

    from transduce.core.transformer import Transformer
    from transduce.files import strict_json
    from transduce.files.atomic import write_files
    from transduce.formats import onnx_out

    assert isinstance(model.model, Transformer)
    graphs = onnx_out.files(model.model)
    graphs = graphs if quantization is None else onnx_out.in_whole_numbers(graphs)
    from transduce.formats import onnx_runner  # whose library is there, or the line before has complained

    sides, s = [*model.tokenizers.files().values()], model.settings.search
    facts: dict[str, object] = {"positions": model.lengths.positions, "extra": s.extra, "penalty": s.penalty}
    facts |= {"beam": s.beam, "stop": s.stop, "length_penalty": s.length_penalty, "forced_end": s.forced_end}
    facts["source_end"] = model.settings.model.source_end
    texts = {"model.json": strict_json.dumps(facts, indent=1), "translate.py": inspect.getsource(onnx_runner)}
    destination.mkdir()
    files = {**graphs, "source.model": sides[0], "target.model": sides[-1]}
    files |= {name: text.encode() for name, text in texts.items()}
    write_files({destination / name: content for name, content in files.items()})
    rule = {key: getattr(s, key) for key in ("penalty", "length_penalty", "forced_end", "stop")}
    return compare(model, destination, lines, onnx_out.Copy(onnx_runner.Translator(destination)), rule, report)


def _power(s: SearchSettings) -> dict[str, Any]:
    """The length penalty as others have it."""
    from transduce.formats.hugging_face_out import nearest_power

    return {"penalty": "plain", "length_penalty": nearest_power(s)}


def load_as(source: Path, to: str, languages: Languages, report: Report) -> Model:
    """The model as the other system will have it: it does nothing to text before that is cut into tokens."""
    from transduce.core.special import BEGIN, PAD, UNKNOWN
    from transduce.decoding.marks import marks_of
    from transduce.formats import ctranslate2_out, hugging_face_out, onnx_out
    from transduce.model import Model
    from transduce.models.load import load
    from transduce.text.languages import EVERY_TEXT, languages_of, with_languages
    from transduce.text.tokenizers import Tokenizers

    model, tokenizers, settings = load(source)
    if to == "huggingface":
        reason = hugging_face_out.why_not(settings)
    else:
        reason = (onnx_out if to == "onnx" else ctranslate2_out).why_not(model)
    if settings.text.tokenizer not in ("bpe", "unigram") and to != "huggingface":
        reason = reason or f"cuts text with SentencePiece, and this model by text.tokenizer={settings.text.tokenizer}"
    if reason:
        raise ModelError(f"{source} cannot go out to {to}, which {reason}")
    if settings.text.source_language == EVERY_TEXT and to != "huggingface":
        raise ModelError(f"{source} begins every text with a token, which {to} would not do by itself")
    knows_many = settings.text.source_language or languages_of(tokenizers.source)
    if knows_many and to not in ("huggingface", "ctranslate2"):
        raise ModelError(f"{source} knows many languages by their marks, which cannot go out to {to}")
    if settings.text.lowercase:
        raise ModelError(f"{source} reads everything in small letters (text.lowercase), which {to} cannot do by itself")
    if settings.text.case == "marks":
        raise ModelError(f"{source} marks case (text.case=marks), which {to} cannot do; train with --text.case typed")
    if tokenizers.protection:
        report.warn(
            f"what passes through here (text.protect={settings.text.protect}) is ordinary text for {to}, of which this "
            f"model has seen little: numbers, URLs and tags may come out changed; --text.protect none trains another"
        )
        _never_write(model, list(marks_of(tokenizers.target)))  # type: ignore[arg-type]
    if to in ("ctranslate2", "argos"):  # which would write these too, where its caller does not forbid it
        _never_write(model, [PAD, UNKNOWN, BEGIN])
    lost = _not_taken_along(settings.search, to)
    if lost:
        report.warn(f"{to} does not search by {', '.join(lost)}, as this model does here")
    plain = replace(with_languages(settings.text, languages), protect=None, protect_pattern=None)
    settings = replace(settings, text=plain)
    return Model(model, Tokenizers.from_files(tokenizers.files(), plain), settings, "cpu")


EVERYWHERE = {"beam", "length_penalty", "penalty", "stop", "extra", "tokens", "split", "aligner", "engine", "precision"}
ELSEWHERE = {"huggingface": {"forced_end", "no_repeat", "min_length"}, "onnx": {"forced_end"}}


def _not_taken_along(s: SearchSettings, to: str) -> list[str]:
    """Search settings that decide what is written here, and that the other system will not have."""
    from transduce.settings.sections import SearchSettings

    usual, known = asdict(SearchSettings()), EVERYWHERE | ELSEWHERE.get(to, set())
    return [f"search.{key}={value}" for key, value in asdict(s).items() if value != usual[key] and key not in known]


def _never_write(model: Seq2Seq, tokens: list[int]) -> None:
    """Tokens that no translation has here, because a search leaves them out, and that others would show: special ones,
    and marks of what passes through, with nothing behind them."""
    import torch

    from transduce.formats.vocabulary import NEVER

    projection = model.projection
    if projection.bias is None:
        projection.bias = torch.nn.Parameter(torch.zeros(len(projection.weight)))
    with torch.no_grad():
        projection.bias[tokens] += NEVER


def sentences_for(model: Model, text: str | Iterable[str] | None) -> list[str]:
    """Some to compare with, none of them too long for the model; those of the bundled corpus where none are given."""
    from transduce.bundled.corpus import bundled
    from transduce.data.lines import read_lines
    from transduce.text.normalise import normalise

    lines = read_lines(text) if isinstance(text, str) else text or (pair.source for pair in bundled(train=0).test)
    found = [line for line in map(normalise, islice(lines, SENTENCES)) if line]
    sizes = map(len, model.tokenizers.source.encode(found))
    fitting = [line for line, size in zip(found, sizes, strict=True) if size <= model.lengths.longest]
    if not fitting:
        raise SettingsError(f"--text {text} has no sentence to compare with that the model can read")
    return fitting


def sentences_of_run(folder: Path, model: Model) -> list[str]:
    """Sources of a run's validation text, if it is a run that has kept some; without those of which protection would
    hide a part, since an export knows of none."""
    from transduce.data.store import TEXT, Damaged, Store
    from transduce.files.run_folder import RunFolder
    from transduce.text.protect import Protection

    protection = Protection(model.tokenizers.settings)
    for kept in sorted(RunFolder(folder).data.glob(f"*/{TEXT}")):
        with contextlib.suppress(Damaged, OSError, TypeError, ValueError):
            if 0 < kept.stat().st_size < LARGEST:  # that of the training text is empty
                pairs = Store(kept.parent).text(SENTENCES)
                found = [source for source, _ in pairs if source.strip() and not protection.spans(source)]
                return found if len(found) >= FEWEST else []
    return []
