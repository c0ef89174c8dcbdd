"""transduce compare: two models on the same text, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from transduce.commands import Hidden
from transduce.errors import DataError, SettingsError
from transduce.files.output import check_output, write_output
from transduce.report import SILENT, Table

if TYPE_CHECKING:
    from transduce.inspect.compare_page import Difference
    from transduce.inspect.trace import Trace
    from transduce.model import Model
    from transduce.text.languages import Languages


def compare(
    model: Path,
    other: Path,
    *,
    source: str,
    reference: str,
    output: Annotated[Path, Parameter(alias="-o")],
    lines: int = 20,
    maps: int = 4,
    samples: int = 1000,
    source_language: str | None = None,
    target_language: str | None = None,
    device: str = "auto",
    force: bool = False,
    report: Hidden = SILENT,
) -> Table:
    """Show two models on the same text: scores, how sure the difference is, and where they differ most.

    Example: transduce compare runs/new runs/old --source test.de --reference test.en -o compare.html

    The page opens in any browser, without network. It has the sentences that one model translates much better than the
    other, and for some of them the attention of both, side by side.

    Parameters
    ----------
    model
        Model folder.
    other
        Another model folder.
    source
        Text to translate.
    reference
        Its translation, line by line.
    output
        HTML file to write.
    lines
        Sentences that are shown, half of them where each model is better.
    maps
        Of them, so many with the attention of both models.
    samples
        Bootstrap samples, for intervals and for the test.
    source_language
        Of models that know many languages: that of the text, such as de.
    target_language
        That of its translation, such as en.
    device
        auto, cpu, cuda or mps.
    force
        Replace the output if it is there already.
    """
    from transduce.commands.evaluate import scores_of_text, table_of
    from transduce.data.open import open_corpus
    from transduce.inspect.compare_page import compare_page
    from transduce.settings.task import task_of

    if output.suffix.lower() != ".html":
        raise SettingsError(f"--output {output} must end in .html: it is a page")
    check_output(output, [source, reference], force)
    models = _loaded((model, other), device, (source_language, target_language))
    if any(task_of(one.settings).labels for one in models):
        raise SettingsError("compare shows models that translate; for labels: transduce evaluate MODEL --against OTHER")
    pairs = list(open_corpus(source, reference, False, None, None))
    texts: list[list[str]] = []
    for folder, one in zip((model, other), models, strict=True):
        with report.progress(f"translate with {folder}", total=len(pairs)) as bar:
            texts.append([t.text for t in one.stream((pair.source for pair in pairs), progress=bar)])
    stored = models[0].settings
    tokenize, references = stored.training.bleu_tokenizer, [pair.target for pair in pairs]
    found = scores_of_text(texts[0], texts[1], references, tokenize, samples, stored.text.lowercase)
    found["against"] = {"other": str(other), **found["against"]}
    table = table_of({"model": str(model), "source": source, "lines": len(pairs), **found})
    same = sum(a == b for a, b in zip(*texts, strict=True))
    differences = _differences(models, pairs, texts, lines, maps)
    counts = f"{same:,} of {len(pairs):,} translations are the same."
    write_output(output, compare_page((str(model), str(other)), table, counts, differences).encode())
    report.say(f"wrote {output}")
    return table


def _loaded(folders: tuple[Path, Path], device: str, languages: Languages) -> list[Model]:
    """Both models; which languages it is about is told to the one that knows many."""
    from transduce.model import Model
    from transduce.models.load import load_text
    from transduce.text.languages import languages_of

    knows = [bool(languages_of(load_text(folder)[1].source)) for folder in folders]
    told = [languages if one or not any(knows) else (None, None) for one in knows]
    return [Model.load(folder, device, languages=ones, split=False) for folder, ones in zip(folders, told, strict=True)]


def _traces(models: list[Model], source: str) -> tuple[Trace, ...] | None:
    """The attention of both; None where a line is too long for one of them to look at as a whole, or is empty."""
    try:
        return tuple(one.trace(source) for one in models)
    except DataError:
        return None


def _differences(models: list[Model], pairs: list, texts: list[list[str]], lines: int, maps: int) -> list[Difference]:
    """The lines whose chrF differs most, in turns where the one and where the other model is better."""
    from transduce.evaluate import chrf_of_each
    from transduce.inspect.compare_page import Difference

    references = [pair.target for pair in pairs]
    scores = [chrf_of_each(side, references) for side in texts]
    gains = sorted((a - b, i) for i, (a, b) in enumerate(zip(*scores, strict=True)) if texts[0][i] != texts[1][i])
    better, worse = [i for gain, i in reversed(gains) if gain > 0], [i for gain, i in gains if gain <= 0]
    chosen = [i for both in zip(better, worse, strict=False) for i in both]
    chosen = list(dict.fromkeys([*chosen, *better, *worse]))[:lines]
    found = []
    for place, i in enumerate(chosen):
        traces = _traces(models, pairs[i].source) if place < maps else None
        both = (texts[0][i], texts[1][i]), (scores[0][i], scores[1][i])
        found.append(Difference(i + 1, pairs[i].source, references[i], *both, traces))  # type: ignore[arg-type]
    return found
