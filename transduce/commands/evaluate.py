"""transduce evaluate: how good a model is, and whether it is better than another."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.commands import Hidden, SearchFlags, search_settings
from transduce.commands.labels import evaluate_labels, is_labeller, table_of_labels
from transduce.errors import DataError, SettingsError
from transduce.files.run_folder import ModelFolder
from transduce.report import SILENT, Report, Table
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.settings.task import task_of

if TYPE_CHECKING:
    from transduce.model import Model

SHOWN = 10  # labels named in a warning
DOUBTS = 0.5  # share of the lines from which something is wrong with the text, or with the model


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
    k: int = 1,
    confusion: Path | None = None,
    device: str = "auto",
    weights: str | None = None,
    adapter: Path | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    json: bool = False,
    settings: SearchFlags = None,
    report: Hidden = SILENT,
) -> dict[str, Any] | Table:
    """Score a model: BLEU, chrF and TER of translations, with signatures; accuracy and macro-F1 of labels.

    Example: transduce evaluate runs/mine --source test.de --reference test.en

    Prints a table, to a pipe also; for programs there is --json.

    Parameters
    ----------
    model
        Model folder, or a file of translations.
    source
        Text to translate.
    reference
        Its translation, or its labels, line by line; not needed where one file holds both.
    columns
        Source and reference, such as --columns 1 3: numbers in a .tsv or .csv, names in a .csv, .jsonl or .parquet.
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
        Bootstrap samples, for confidence intervals and for the test.
    k
        Of labels by fastText's classifier: precision and recall of so many labels a line.
    confusion
        Likewise: a picture of what was said where which label was true, as a .png, .svg or .pdf.
    device
        auto, cpu, cuda or mps.
    weights
        best, last or averaged instead of the ones that training chose.
    adapter
        File of adapters (LoRA) that were trained on this model, such as RUN/adapter.safetensors.
    source_language
        Of the text, in a model that knows many languages, by its name there, such as de or deu_Latn.
    target_language
        Of the translation, likewise.
    json
        JSON instead of a table.
    """
    from transduce import evaluate as scores
    from transduce.data.lines import read_lines
    from transduce.data.open import open_corpus
    from transduce.model import Model
    from transduce.text.normalise import normalise

    if not model.exists():
        raise DataError(f"there is no folder, or file of translations, {model}")
    if is_labeller(model) and against is None:
        found = evaluate_labels(model, source, reference, columns, k, confusion)
        return found if json else table_of_labels(found)
    if k != 1 or confusion is not None:
        raise SettingsError("--k and --confusion are for models of the kind fasttext alone, without --against")
    config = ModelFolder(model).config
    stored = config_file.read_whole(config) if model.is_dir() and config.exists() else compose()
    labels = task_of(stored).labels
    tokenize, lowercase = tokenize or stored.training.bleu_tokenizer, stored.text.lowercase
    scores.metrics(tokenize)  # an unknown tokenizer is refused before the work
    search = {"split": False, **search_settings(settings, beam=beam, length_penalty=length_penalty)}
    pairs = list(open_corpus(source, reference, labels, columns, languages))
    references = [normalise(pair.target) if labels else pair.target for pair in pairs]

    def translations(of: Path, weights: str | None, adapter: Path | None) -> list[str]:
        if of.is_file():
            return list(read_lines(of))
        if is_labeller(of):
            from transduce.fasttext.labeller import Labeller

            return [t.text for t in Labeller.load(of).stream(pair.source for pair in pairs)]
        spoken = (source_language, target_language)
        loaded = Model.load(of, device, weights, languages=spoken, adapter=adapter, **search)
        if labels:
            _name_unknown_labels(references, loaded, report)
        with report.progress(f"translate with {of}", total=len(pairs)) as bar:
            found = [(t.text, t.status) for t in loaded.stream((pair.source for pair in pairs), progress=bar)]
        _warn_of_doubts([status for _, status in found], of, report)
        return [text for text, _ in found]

    ours = translations(model, weights, adapter)
    theirs = None if against is None else translations(against, None, None)
    result = (
        _scores_of_labels(ours, theirs, references)
        if labels
        else scores_of_text(ours, theirs, references, tokenize, samples, lowercase)
    )
    if "against" in result:
        result["against"] = {"other": str(against), **result["against"]}
    result = {"model": str(model), "source": source, "reference": reference, "lines": len(pairs), **result}
    return result if json else table_of(result)


def _warn_of_doubts(statuses: list[str], model: Path, report: Report) -> None:
    """Scores look the same whether a text is in the model's language or not."""
    doubts = sum(status in ("unknown", "doubtful") for status in statuses)
    if doubts > DOUBTS * len(statuses):
        report.warn(
            f"{model} calls {doubts:,} of {len(statuses):,} lines unknown or doubtful: it has hardly learned anything, "
            f"or the text is not in its language, or the two sides are swapped"
        )


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


def scores_of_text(
    ours: list[str], theirs: list[str] | None, references: list[str], tokenize: str, samples: int, lowercase: bool
) -> dict[str, Any]:
    from transduce import evaluate as scores

    scored = scores.evaluate(ours, references, tokenize, lowercase, samples)
    result: dict[str, Any] = {"scores": {name: asdict(one) for name, one in scored.items()}}
    result["exact_match"] = round(scores.exact_match(ours, references), 4)
    if theirs is not None:
        compared = scores.compare(ours, theirs, references, tokenize, samples, lowercase)
        match = round(scores.exact_match(theirs, references), 4)
        result["against"] = {"samples": samples, **compared, "exact_match": match}
    return result


def table_of(result: dict[str, Any]) -> Table:
    """The same for people: a row a score, the other model beside it, then the verdict and the signatures."""
    against, scores = result.get("against"), result["scores"]
    heads = ["", result["model"], *([against["other"], "difference", "p"] if against else [])]
    rows = [_row(name, found, (against or {}).get(name)) for name, found in scores.items()]
    if "exact_match" in result:
        ours, theirs = result["exact_match"], (against or {}).get("exact_match")
        other = [] if theirs is None else [f"{theirs:.1%}", f"{ours - theirs:+.1%}", ""]
        rows.append(["exact match", f"{ours:.1%}", *other])
    signatures = [f"{name}: {found['signature']}" for name, found in scores.items() if isinstance(found, dict)]
    below = [*([_verdict(result["model"], against)] if against else []), *signatures]
    if signatures:
        below.append("(± is half of the 95 % interval by bootstrap resampling)")
    return Table(heads, rows, [f"{result['lines']:,} lines of {result['source']}", ""], ["", *below] if below else [])


def _row(name: str, found: Any, compared: dict[str, float] | None) -> list[str]:
    """sacreBLEU's scores with their intervals; shares as they are."""
    if not isinstance(found, dict):
        shown = [f"{found:.1%}"]
        other = (
            [] if compared is None else [f"{compared['theirs']:.1%}", f"{compared['ours'] - compared['theirs']:+.1%}"]
        )
    else:
        low, high = found["interval"] or (0.0, 0.0)
        shown = [f"{found['score']:.1f}" + (f" ± {(high - low) / 2:.1f}" if found["interval"] else "")]
        other = (
            [] if compared is None else [f"{compared['theirs']:.1f}", f"{compared['ours'] - compared['theirs']:+.1f}"]
        )
    return [name.replace("_", "-"), *shown, *other, *([] if compared is None else [f"{compared['p']:.3f}"])]


def _verdict(model: str, against: dict[str, Any]) -> str:
    """Which of two is better and how sure that is, by the first score."""
    name, one = next((name, one) for name, one in against.items() if isinstance(one, dict))
    difference = one["ours"] - one["theirs"]
    if not difference:
        return f"{model} and {against['other']} have the same {name}"
    better, amount = model if difference > 0 else against["other"], abs(difference)
    if name == "BLEU":
        by = f"{amount:.1f} {name}" if amount >= 0.05 else f"{amount:.2g} {name}"
    else:
        by = f"{100 * amount:.1f} points of {name}"
    sure = (
        "it is hardly chance"
        if one["p"] < 0.01
        else "it is probably not chance"
        if one["p"] < 0.05
        else "it may be chance"
    )
    return f"{better} is better by {by}; p = {one['p']:.3f}, so {sure}"
