"""transduce evaluate: how good a model is, and whether it is better than another."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from transduce import config
from transduce.errors import DataError
from transduce.report import SILENT
from transduce.tasks import Flags, Hidden, search_settings


def evaluate(
    model: Path,
    *,
    source: str,
    reference: str | None = None,
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
    from transduce.data.corpus import open_corpus, read_lines
    from transduce.decoding.translator import Translator
    from transduce.text.tokenizer import normalise

    if not model.exists():
        raise DataError(f"there is no folder, or file of translations, {model}")
    stored = config.compose(config.read(model / "config.yaml") if (model / "config.yaml").exists() else {})
    labels = stored.text.target_tokenizer == "labels"
    pairs = list(open_corpus(source, reference, labels))
    references = [normalise(pair.target) if labels else pair.target for pair in pairs]

    search = search_settings(settings, beam=beam, length_penalty=length_penalty)

    def translations(of: Path, weights: str | None) -> list[str]:
        if of.is_file():
            return list(read_lines(of))
        translator = Translator.load(of, device, weights, **search)
        with report.progress(f"translate with {of}", total=len(pairs)) as bar:
            return [t.text for t in translator.stream((pair.source for pair in pairs), progress=bar)]

    tokenize, lowercase = tokenize or stored.training.bleu_tokenizer, stored.text.lowercase
    scores.metrics(tokenize)  # an unknown tokenizer is refused before the work
    ours = translations(model, weights)
    theirs = None if against is None else translations(against, None)
    found = (
        _scores_of_labels(ours, theirs, references)
        if labels
        else _scores_of_text(ours, theirs, references, tokenize, samples, lowercase)
    )
    if "against" in found:
        found["against"] = {"other": str(against), **found["against"]}
    return {"model": str(model), "source": source, "reference": reference, "lines": len(pairs), **found}


def _scores_of_labels(ours: list[str], theirs: list[str] | None, references: list[str]) -> dict[str, Any]:
    from transduce import evaluate as scores

    accuracy, f1 = scores.exact_match(ours, references), scores.macro_f1(ours, references)
    found: dict[str, Any] = {"scores": {"accuracy": round(accuracy, 4), "macro_f1": round(f1, 4)}}
    if theirs is not None:
        found["against"] = {"accuracy": scores.compare_labels(ours, theirs, references)}
    return found


def _scores_of_text(
    ours: list[str], theirs: list[str] | None, references: list[str], tokenize: str, samples: int, lowercase: bool
) -> dict[str, Any]:
    from transduce import evaluate as scores

    scored = scores.evaluate(ours, references, tokenize, lowercase)
    found: dict[str, Any] = {"scores": {name: asdict(one) for name, one in scored.items()}}
    found["exact_match"] = round(scores.exact_match(ours, references), 4)
    if theirs is not None:
        compared = scores.compare(ours, theirs, references, tokenize, samples, lowercase)
        found["against"] = {"samples": samples, **compared}
    return found
