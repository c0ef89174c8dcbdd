"""transduce inspect: every layer and head for a sentence, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from transduce.report import SILENT
from transduce.tasks import Hidden, Output


def inspect(
    model: Path,
    sentence: str,
    *,
    target: str | None = None,
    output: Output = None,
    weights: str | None = None,
    device: str = "auto",
    report: Hidden = SILENT,
) -> Iterator[str]:
    """Write one page that shows every layer and head for a sentence; it opens in any browser, without network.

    Example: transduce inspect runs/demo "ich möchte ein bier trinken" -o page.html

    Prints the alignment: each word written, and the source word that it looked at most.

    Parameters
    ----------
    model
        Model folder.
    sentence
        Source sentence.
    target
        Translation to look at instead of the model's own.
    output
        HTML file; attention.html in the model folder if not given. A .png, .svg or .pdf shows the mean of all heads.
    weights
        best, last or averaged instead of the usual.
    device
        auto, cpu, cuda or mps.
    """
    from transduce.model import Model

    seen = Model.load(model, device, weights).trace(sentence, target)
    seen = replace(seen, model=f"{model}: {seen.model}")
    written = seen.save(output or model / "attention.html")
    yield f"{seen.text}  ->  {seen.translation}"
    yield from (f"  {source} <-> {word}  ({weight:.2f})" for word, source, weight in seen.alignment())
    report.say(f"wrote {written}")
