"""transduce evaluate: how good a model is, and whether it is better than another."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.commands import Flags, Hidden, search_settings
from transduce.errors import DataError
from transduce.files.run_folder import ModelFolder
from transduce.report import SILENT, Report
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.settings.task import task_of

if TYPE_CHECKING:
    from transduce.model import Model

SHOWN = 10  # labels named in a warning


def evaluate(
    model: Path,
    *,
    source: str,
    reference: str | None = None,
    columns: tuple[str, str] | None = None,
    languages: tuple[str, str] | None = None,
    against: Path | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    tokenize: str | None = None,
    samples: int = 1000,
    device: str = "auto",
    weights: str | None = None,
    settings: Flags = None,
    report: Hidden = SILENT,
) -> dict[str, Any]:
    """Score a model: BLEU, chrF and TER of translations, with signatures; accuracy and macro-F1 of labels. JSON.

    Example: transduce evaluate runs/mine --source test.de --reference test.en

    Parameters
    ----------
    model
        Model folder, or a file of translations.
    source
        Text to translate.
    reference
        Its translation, or its labels, line by line; not needed where one file holds both.
    columns
        Source and reference, such as --columns 1 3: numbers in a .tsv, names in a .jsonl or .parquet.
    languages
        Source and reference in a .tmx, such as --languages de en; not needed where it has two.
    against
        Another model folder, or a file of translations, for a paired bootstrap test.
    beam
        Hypotheses followed side by side. The model's setting if not given.
    length_penalty
        Alpha. The model's setting if not given.
    tokenize
        sacreBLEU tokenizer, such as 13a or zh. The model's setting if not given.
    samples
        Bootstrap samples.
    device
        auto, cpu, cuda or mps.
    weights
        best, last or averaged instead of the ones that training chose.
    """
    from transduce import evaluate as scores
    from transduce.data.lines import read_lines
    from transduce.data.open import open_corpus
    from transduce.model import Model
    from transduce.text.normalise import normalise

    if not model.exists():
        raise DataError(f"there is no folder, or file of translations, {model}")
    config = ModelFolder(model).config
    stored = config_file.read_whole(config) if model.is_dir() and config.exists() else compose()
    labels = task_of(stored).labels
    tokenize, lowercase = tokenize or stored.training.bleu_tokenizer, stored.text.lowercase
    scores.metrics(tokenize)  # an unknown tokenizer is refused before the work
    search = {"split": False, **search_settings(settings, beam=beam, length_penalty=length_penalty)}
    pairs = list(open_corpus(source, reference, labels, columns, languages))
    references = [normalise(pair.target) if labels else pair.target for pair in pairs]

    def translations(of: Path, weights: str | None) -> list[str]:
        if of.is_file():
            return list(read_lines(of))
        loaded = Model.load(of, device, weights, **search)
        if labels:
            _name_unknown_labels(references, loaded, report)
        with report.progress(f"translate with {of}", total=len(pairs)) as bar:
            return [t.text for t in loaded.stream((pair.source for pair in pairs), progress=bar)]

    ours = translations(model, weights)
    theirs = None if against is None else translations(against, None)
    result = (
        _scores_of_labels(ours, theirs, references)
        if labels
        else _scores_of_text(ours, theirs, references, tokenize, samples, lowercase)
    )
    if "against" in result:
        result["against"] = {"other": str(against), **result["against"]}
    return {"model": str(model), "source": source, "reference": reference, "lines": len(pairs), **result}


def _name_unknown_labels(references: list[str], model: Model, report: Report) -> None:
    """A label that the model was never shown counts as wrong, and somebody should know why."""
    unknown = model.tokenizers.unknown(references)
    if unknown:
        lines = sum(reference in set(unknown) for reference in references)
        named = ", ".join(unknown[:SHOWN]) + (", ..." if len(unknown) > SHOWN else "")
        report.warn(f"{lines:,} lines have labels that this model has never seen and cannot give: {named}")


def _scores_of_labels(ours: list[str], theirs: list[str] | None, references: list[str]) -> dict[str, Any]:
    from transduce import evaluate as scores

    accuracy, f1 = scores.exact_match(ours, references), scores.macro_f1(ours, references)
    result: dict[str, Any] = {"scores": {"accuracy": round(accuracy, 4), "macro_f1": round(f1, 4)}}
    if theirs is not None:
        result["against"] = {"accuracy": scores.compare_labels(ours, theirs, references)}
    return result


def _scores_of_text(
    ours: list[str], theirs: list[str] | None, references: list[str], tokenize: str, samples: int, lowercase: bool
) -> dict[str, Any]:
    from transduce import evaluate as scores

    scored = scores.evaluate(ours, references, tokenize, lowercase)
    result: dict[str, Any] = {"scores": {name: asdict(one) for name, one in scored.items()}}
    result["exact_match"] = round(scores.exact_match(ours, references), 4)
    if theirs is not None:
        compared = scores.compare(ours, theirs, references, tokenize, samples, lowercase)
        result["against"] = {"samples": samples, **compared}
    return result
