"""transduce inspect: every layer and head for a sentence, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from transduce.commands import Hidden, Output
from transduce.commands.labels import explain_labels, is_labeller
from transduce.errors import DataError
from transduce.files.output import check_output
from transduce.files.run_folder import ModelFolder
from transduce.report import SILENT


def inspect(
    model: Path,
    sentence: str,
    *,
    target: str | None = None,
    against: Path | None = None,
    output: Output = None,
    force: bool = False,
    weights: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    device: str = "auto",
    report: Hidden = SILENT,
) -> Iterator[str]:
    """Write one page that shows every layer and head for a sentence; it opens in any browser, without network.

    Example: transduce inspect runs/demo "ich möchte ein bier trinken" -o page.html

    Prints the alignment: each word written, and the source word that the head which links words best looked at most.

    Parameters
    ----------
    model
        Model folder.
    sentence
        Source sentence.
    target
        Translation to look at instead of the model's own; of a model of the kind fasttext, a label.
    against
        Another model folder: both are shown on one page, side by side.
    output
        HTML file; attention.html in the model folder if not given. A .png, .svg or .pdf shows the mean of all heads.
    force
        Replace the output if it is there already.
    weights
        best, last or averaged instead of the usual.
    source_language
        Of the text, in a model that knows many languages, by its name there, such as de or deu_Latn.
    target_language
        Of the translation, likewise.
    device
        auto, cpu, cuda or mps.
    """
    from transduce.inspect.side_by_side import write_side_by_side
    from transduce.model import Model

    if is_labeller(model):
        check_output(output, force=force)
        yield from explain_labels(model, sentence, target, output)
        return
    page = output or ModelFolder(model).attention_page
    if output is None and page.is_symlink():
        raise DataError(f"{page} is a link and is not written through; remove it, or name a file with -o")
    if output is not None:
        check_output(output, force=force)
    spoken = (source_language, target_language)
    traces = [
        replace(seen, model=f"{folder}: {seen.model}")
        for folder in (model, against)
        if folder is not None
        for seen in [Model.load(folder, device, weights, languages=spoken).trace(sentence, target)]
    ]
    written = traces[0].save(page) if against is None else write_side_by_side(traces, page)
    for seen in traces:
        yield f"{seen.text}  ->  {seen.translation}"
        yield from (f"  {source} <-> {word}  ({weight:.2f})" for word, source, weight in seen.alignment())
    report.say(f"wrote {written}")
