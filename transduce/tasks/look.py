"""transduce inspect and plot: look inside a model, and at the ideas behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import DataError
from transduce.report import SILENT
from transduce.tasks import Hidden, Output

if TYPE_CHECKING:
    from transduce.model import Model

GROUPS = 6  # of lengths in `plot lengths`


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
    seen = _load(model, weights, device).trace(sentence, target)
    written = seen.save(output or model / "attention.html")
    yield f"{seen.text}  ->  {seen.translation}"
    yield from (f"  {source} <-> {word}  ({weight:.2f})" for word, source, weight in seen.alignment())
    report.say(f"wrote {written}")


def _load(model: Path, weights: str | None = None, device: str = "auto") -> Model:
    from transduce.model import Model

    return Model.load(model, device, weights)


def plot_attention(
    model: Path,
    sentence: str,
    *,
    target: str | None = None,
    kind: str = "cross",
    layer: int | None = None,
    head: int | None = None,
    words: bool = False,
    output: Output = None,
    report: Hidden = SILENT,
) -> None:
    """Draw one attention head, or the mean of several, for a sentence.

    Example: transduce plot attention runs/demo "ich möchte ein bier" --layer 2 --head 1 -o head.svg

    Parameters
    ----------
    model
        Model folder.
    sentence
        Source sentence.
    target
        Translation to look at instead of the model's own.
    kind
        encoder, decoder or cross (the decoder looking at the encoder).
    layer
        Counted from 1; all if not given.
    head
        Counted from 1; all if not given.
    words
        Join subwords to words.
    output
        PNG, SVG or PDF file; attention.png if not given.
    """
    seen = _load(model).trace(sentence, target)
    written = (seen.merged() if words else seen).save(output or Path("attention.png"), kind, layer, head)
    report.say(f"wrote {written}")


def plot_positions(*, length: int = 100, d_model: int = 128, output: Output = None, report: Hidden = SILENT) -> None:
    """Draw the sinusoid positions and how their products fall with distance.

    Example: transduce plot positions -o positions.png

    Parameters
    ----------
    length
        Positions shown.
    d_model
        Width, an even number.
    output
        PNG, SVG or PDF file; positions.png if not given.
    """
    from transduce.inspect import ideas

    if length < 4 or d_model < 2 or d_model % 2:
        raise DataError(f"length={length} must be at least 4 and d_model={d_model} even and at least 2")
    report.say(f"wrote {ideas.positions(output or Path('positions.png'), length, d_model)}")


def plot_masks(*, output: Output = None, report: Hidden = SILENT) -> None:
    """Draw who may look at whom: padding, causal, and several sentences in a row.

    Example: transduce plot masks -o masks.png
    """
    from transduce.inspect import ideas

    report.say(f"wrote {ideas.masks(output or Path('masks.png'))}")


def plot_schedule(*, steps: int = 20_000, warmup: int = 4000, output: Output = None, report: Hidden = SILENT) -> None:
    """Draw the learning rate schedules.

    Example: transduce plot schedule --warmup 2000 -o schedule.png

    Parameters
    ----------
    steps
        Steps shown.
    warmup
        Steps of linear rise.
    output
        PNG, SVG or PDF file; schedule.png if not given.
    """
    from transduce.inspect import ideas

    if steps < 2 or warmup < 1:
        raise DataError(f"steps={steps} must be at least 2 and warmup={warmup} at least 1")
    report.say(f"wrote {ideas.schedules(output or Path('schedule.png'), steps, warmup)}")


def plot_smoothing(*, epsilon: float = 0.1, output: Output = None, report: Hidden = SILENT) -> None:
    """Draw what label smoothing wants and what it costs to be certain.

    Example: transduce plot smoothing -o smoothing.png
    """
    from transduce.inspect import ideas

    if not 0 <= epsilon < 1:
        raise DataError(f"epsilon={epsilon} must be at least 0 and below 1")
    report.say(f"wrote {ideas.smoothing(output or Path('smoothing.png'), epsilon)}")


def plot_saturation(*, output: Output = None, report: Hidden = SILENT) -> None:
    """Draw why dot products are scaled: softmax saturates in many dimensions.

    Example: transduce plot saturation -o saturation.png
    """
    from transduce.inspect import ideas

    report.say(f"wrote {ideas.saturation(output or Path('saturation.png'))}")


def plot_lengths(
    models: list[Path],
    *,
    source: str | None = None,
    reference: str | None = None,
    output: Output = None,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """BLEU of one or several models against the length of the source, as a table and a picture.

    Example: transduce plot lengths runs/rnn runs/rnn-attention runs/demo -o lengths.png

    Parameters
    ----------
    models
        Model folders.
    source
        Text to translate; the bundled test text if not given.
    reference
        Its translation.
    output
        PNG, SVG or PDF file; lengths.png if not given.
    """
    from transduce.data.corpus import open_corpus
    from transduce.evaluate import bleu
    from transduce.inspect.plots import bleu_by_length
    from transduce.text.bundled import bundled

    pairs = [(p.source, p.target) for p in (open_corpus(source, reference) if source else bundled(train=0).test)]
    pairs.sort(key=lambda pair: len(pair[0].split()))
    groups = [pairs[i * len(pairs) // GROUPS : (i + 1) * len(pairs) // GROUPS] for i in range(GROUPS)]
    groups = [group for group in groups if group]
    if not groups:
        raise DataError("there is nothing to translate: the text is empty")
    ends = [(len(group[0][0].split()), len(group[-1][0].split())) for group in groups]
    results = {}
    yield f"{'words in the source':24}" + "".join(f"{f'{low} - {high}':>9}" for low, high in ends) + f"{'all':>9}"
    for folder in models:
        report.say(f"translating {len(pairs):,} sentences with {folder}")
        texts = iter([found.text for found in _load(folder).translate([text for text, _ in pairs])])
        found = [[next(texts) for _ in group] for group in groups]
        wanted = [[target for _, target in group] for group in groups]
        scores = [bleu(*both) for both in zip(found, wanted, strict=True)]
        results[folder.name] = [(*end, score) for end, score in zip(ends, scores, strict=True)]
        whole = bleu(sum(found, []), sum(wanted, []))
        yield f"{folder.name:24}" + "".join(f"{score:9.1f}" for score in [*scores, whole])
    report.say(f"wrote {bleu_by_length(results, output or Path('lengths.png'))}")


PLOTS: dict[str, Callable[..., Any]] = {
    "positions": plot_positions,
    "masks": plot_masks,
    "schedule": plot_schedule,
    "smoothing": plot_smoothing,
    "saturation": plot_saturation,
    "attention": plot_attention,
    "lengths": plot_lengths,
}
