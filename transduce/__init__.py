"""Sequence transduction you can read, train, look into and ship.

import transduce
model = transduce.load("runs/demo")
print(model.translate("ich möchte ein bier trinken").text)
model.trace("ich möchte ein bier trinken").save("attention.html")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

__version__ = "0.1.0"

if TYPE_CHECKING:
    from transduce.commands.convert import Format, Quantization
    from transduce.fasttext.labeller import Labeller
    from transduce.fasttext.word_vectors import WordVectors
    from transduce.model import Model
    from transduce.report import Report


def load(
    folder: str | Path,
    device: str = "auto",
    weights: str | None = None,
    languages: tuple[str | None, str | None] = (None, None),
    adapter: str | Path | None = None,
    **search: Any,
) -> Model | Labeller:
    """The model in a folder, ready to use. `search` changes its search settings: load(..., beam=1).

    A model of many languages is told which: load(..., languages=("de", "en")). With `adapter`, a file of adapters that
    were trained on this model (LoRA), it is the model that came out of that training."""
    from transduce.arguments import check_folder
    from transduce.settings.config_file import is_fasttext

    check_folder(folder, "folder")
    if is_fasttext(Path(folder)):
        from transduce.fasttext.labeller import Labeller  # only here: numba takes time to load

        return Labeller.load(folder, **search)
    from transduce.model import Model  # only here: PyTorch takes seconds to load, and labels do without

    return Model.load(folder, device, weights, languages=languages, adapter=adapter, **search)


def vectors(path: str | Path) -> WordVectors:
    """Word vectors from a model folder of the kind fasttext, or a file: .bin, .ftz, .vec, word2vec, GloVe.

    vectors("words.vec")["tea"] is a NumPy array; vectors("words.bin").nearest("tea") its neighbours."""
    from transduce.arguments import check_folder
    from transduce.fasttext.word_vectors import load_vectors

    check_folder(path, "path")
    return load_vectors(path)


def train(
    run: str | Path,
    pairs: Sequence[tuple[str, str]] | None = None,
    valid_pairs: Sequence[tuple[str, str]] | None = None,
    preset: str = "auto",
    task: Literal["translate", "classify"] = "translate",
    report: Report | None = None,
    *,
    source: str | Path | Sequence[str | Path] | None = None,
    target: str | Path | Sequence[str | Path] | None = None,
    **settings: dict[str, Any],
) -> Model | Labeller:
    """Train on pairs in memory, or on files, and give back the model: train("runs/x", pairs, model={"layers": 3}).

    Files are those of the command line: train("runs/x", source="a.de", target="a.en"), a list where there are several,
    with validation text in data={"valid_source": ..., "valid_target": ...}. With task="classify" the second of each
    pair is the label.
    """
    from transduce.data.corpus import ListCorpus
    from transduce.inspect.curve import curve_at_the_end
    from transduce.terminal import Terminal
    from transduce.training.prepare import open_corpora
    from transduce.training.recipe import settings_of
    from transduce.training.resolve import resolve
    from transduce.training.setup import fit

    _check_training(run, pairs, valid_pairs, source, target, task)
    _check_sections(settings)
    run, report = Path(run), report or Terminal()
    files = {name: _names(paths) for name, paths in (("source", source), ("target", target)) if paths is not None}
    if files and isinstance(settings.get("data", {}), dict):  # what is none is refused with all other settings
        settings["data"] = {**settings.get("data", {}), **files}
    if preset == "fasttext":
        return _train_labels(run, pairs, valid_pairs, task, settings, report)
    wanted = resolve(run, preset, None, settings, task)
    resolved = settings_of(wanted)
    training, validation = open_corpora(resolved, report) if pairs is None else (ListCorpus(pairs), None)
    if valid_pairs is not None:
        validation = ListCorpus(valid_pairs)
    with curve_at_the_end(run, report):
        fit(run, training, validation, wanted, report)
    return load(run, resolved.training.device)


def _names(paths: str | Path | Sequence[str | Path]) -> str | list[str]:
    return str(paths) if isinstance(paths, str | Path) else [*map(str, paths)]


def _train_labels(
    run: Path, pairs: Any, valid_pairs: Any, task: str, settings: dict[str, dict[str, Any]], report: Report
) -> Labeller:
    """fastText's classifier, from pairs of text and label, or from files."""
    from transduce.commands.labels import train_labels
    from transduce.errors import ArgumentError
    from transduce.fasttext.fit import fit
    from transduce.fasttext.labelled import labels_of
    from transduce.fasttext.labeller import Labeller
    from transduce.settings.compose import compose
    from transduce.settings.presets import find

    if task != "classify":
        raise ArgumentError('preset="fasttext" needs task="classify"')
    if valid_pairs is not None:
        raise ArgumentError("preset fasttext does not look at validation pairs; measure with the model afterwards")
    if pairs is None:
        train_labels(run, None, settings, None, report)
    else:
        lines = [(labels_of(label), text) for text, label in pairs]
        fit(run, compose(find("fasttext").settings, settings), lambda: lines, report)
    return Labeller.load(run)


def convert(
    source: str | Path,
    destination: str | Path,
    to: Format = "transduce",
    quantization: Quantization | None = None,
    check: bool = False,
    text: str | Path | None = None,
    languages: tuple[str | None, str | None] = (None, None),
    revision: str | None = None,
) -> None:
    """A model of another system as a model folder, or the other way round: convert("opus-mt-de-en", "runs/opus").

    `check`: too few translations that are equal are an error; `text`: a file whose sentences are compared. `languages`:
    source and target, where a model knows many, or for a package of Argos. `revision`: of a name on Hugging Face's hub.
    """
    from transduce.arguments import check_choice, check_folder, check_languages, check_text
    from transduce.commands.convert import FORMATS, QUANTIZATIONS
    from transduce.commands.convert import convert as run

    check_folder(source, "source")
    check_folder(destination, "destination")
    check_choice(to, "to", FORMATS)
    if quantization is not None:
        check_choice(quantization, "quantization", QUANTIZATIONS)
    if text is not None:
        check_folder(text, "text", "file")
    if revision is not None:
        check_text(revision, "revision")
    source_language, target_language = check_languages(languages)
    run(
        Path(source), Path(destination), to=to, quantization=quantization, check=check, revision=revision,
        text=None if text is None else str(text), source_language=source_language, target_language=target_language,
    )  # fmt: skip


def _check_sections(settings: dict[str, Any]) -> None:
    """Refuse a setting without its section, in the way that Python writes it."""
    from transduce.errors import SettingsError
    from transduce.settings.entries import entries

    for section, key in (entry.name.split(".") for entry in entries()):
        if key in settings and not isinstance(settings[key], dict) and key != section:
            raise SettingsError(
                f"{key} is a setting of the section {section}: {section}={{{key!r}: {settings[key]!r}}}"
            )


def _check_training(run: Any, pairs: Any, valid_pairs: Any, source: Any, target: Any, task: Any) -> None:
    """Refuse what is no text before anything is made of it."""
    from collections.abc import Iterator

    from transduce.arguments import check_choice, check_folder, check_pairs
    from transduce.errors import ArgumentError

    check_folder(run, "run")
    if (pairs is None) == (source is None):
        given = "both were" if pairs is not None else "neither was"
        raise ArgumentError(f"train takes pairs, or source and target files; {given} given")
    if target is not None and source is None:
        raise ArgumentError("target is a file, and goes with a file source; pairs have both sides in them")
    for name, file in (("source", source), ("target", target)):
        several = enumerate(file) if isinstance(file, list | tuple) else ()
        for number, one in several:
            check_folder(one, f"{name}[{number}]", "file")
        if file is not None and not isinstance(file, list | tuple):
            check_folder(file, name, "file")
    for name, some in (("pairs", pairs), ("valid_pairs", valid_pairs)):
        if isinstance(some, Iterator):
            raise ArgumentError(f"{name} are gone through more than once; give a list: list({name})")
        if some is not None:
            for _ in check_pairs(some, name):
                pass
    check_choice(task, "task", ("translate", "classify"))
