"""transduce plot: pictures of runs, of heads, and of the ideas behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.commands import Hidden, Output
from transduce.commands.vectors import plot_huffman
from transduce.errors import DataError, SettingsError
from transduce.files.output import check_output
from transduce.files.run_folder import RunFolder
from transduce.report import SILENT

if TYPE_CHECKING:
    from transduce.model import Model

GROUPS = 6  # of lengths in `plot lengths`


def _load(model: Path) -> Model:
    from transduce.model import Model

    return Model.load(model)


def _place(output: Path | None, usual: str, force: bool, inputs: Sequence[str] = ()) -> Path:
    """Where a picture goes, once it is clear that it may."""
    path = output or Path(usual)
    check_output(path, inputs, force)
    return path


def plot_curve(run: Path, *, output: Output = None, force: bool = False, report: Hidden = SILENT) -> None:
    """Draw the learning curve of a run.

    Example: transduce plot curve runs/demo -o curve.svg

    Parameters
    ----------
    run
        Run folder.
    output
        PNG or SVG file; curve.png in the run folder if not given.
    force
        Replace the output if it is there already.
    """
    from transduce.inspect.plots import learning_curve

    check_output(output, force=force)
    report.say(f"wrote {learning_curve(run, output or RunFolder(run).curve)}")


def plot_attention(
    model: Path,
    sentence: str,
    *,
    target: str | None = None,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    words: bool = False,
    output: Output = None,
    force: bool = False,
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
        encoder, decoder or cross (the decoder looking at the encoder); cross if not given and there is one.
    layer
        Counted from 1; all if not given.
    head
        Counted from 1; all if not given.
    words
        Join subwords to words.
    output
        PNG, SVG or PDF file; attention.png if not given.
    force
        Replace the output if it is there already.
    """
    from transduce.inspect.plots import check_name

    path = _place(output, "attention.png", force)
    check_name(path)
    seen = _load(model).trace(sentence, target)
    written = (seen.merged() if words else seen).save(path, kind, layer, head)
    report.say(f"wrote {written}")


def plot_positions(
    *, length: int = 100, d_model: int = 128, output: Output = None, force: bool = False, report: Hidden = SILENT
) -> None:
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
    force
        Replace the output if it is there already.
    """
    from transduce.inspect import ideas

    if not 4 <= length <= 2000:
        raise DataError(f"length={length} must be between 4 and 2000")
    if not 2 <= d_model <= 4096 or d_model % 2:
        raise DataError(f"d_model={d_model} must be an even number between 2 and 4096")
    report.say(f"wrote {ideas.positions(_place(output, 'positions.png', force), length, d_model)}")


def plot_masks(*, output: Output = None, force: bool = False, report: Hidden = SILENT) -> None:
    """Draw who may look at whom: padding, causal, and several sentences in a row.

    Example: transduce plot masks -o masks.png

    Parameters
    ----------
    output
        PNG, SVG or PDF file; masks.png if not given.
    force
        Replace the output if it is there already.
    """
    from transduce.inspect import ideas

    report.say(f"wrote {ideas.masks(_place(output, 'masks.png', force))}")


def plot_schedule(
    *, steps: int = 20_000, warmup: int = 4000, output: Output = None, force: bool = False, report: Hidden = SILENT
) -> None:
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
    force
        Replace the output if it is there already.
    """
    from transduce.inspect import ideas

    for name, value, least in (("steps", steps, 2), ("warmup", warmup, 1)):
        if value < least:
            raise DataError(f"{name}={value} must be at least {least}")
    report.say(f"wrote {ideas.schedules(_place(output, 'schedule.png', force), steps, warmup)}")


def plot_smoothing(
    *, epsilon: float = 0.1, output: Output = None, force: bool = False, report: Hidden = SILENT
) -> None:
    """Draw what label smoothing wants and what it costs to be certain.

    Example: transduce plot smoothing -o smoothing.png

    Parameters
    ----------
    epsilon
        Share of the probability that is spread over the vocabulary.
    output
        PNG, SVG or PDF file; smoothing.png if not given.
    force
        Replace the output if it is there already.
    """
    from transduce.inspect import ideas

    if not 0 <= epsilon < 1:
        raise DataError(f"epsilon={epsilon} must be at least 0 and below 1")
    report.say(f"wrote {ideas.smoothing(_place(output, 'smoothing.png', force), epsilon)}")


def plot_saturation(*, output: Output = None, force: bool = False, report: Hidden = SILENT) -> None:
    """Draw why dot products are scaled: softmax saturates in many dimensions.

    Example: transduce plot saturation -o saturation.png

    Parameters
    ----------
    output
        PNG, SVG or PDF file; saturation.png if not given.
    force
        Replace the output if it is there already.
    """
    from transduce.inspect import ideas

    report.say(f"wrote {ideas.saturation(_place(output, 'saturation.png', force))}")


def plot_lengths(
    models: list[Path],
    *,
    source: str | None = None,
    reference: str | None = None,
    output: Output = None,
    force: bool = False,
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
    force
        Replace the output if it is there already.
    """
    from transduce.bundled.corpus import bundled
    from transduce.data.open import open_corpus
    from transduce.inspect.plots import bleu_by_length, check_name

    path = _place(output, "lengths.png", force, [file for file in (source, reference) if file])
    check_name(path)
    if reference is not None and source is None:
        raise SettingsError("--reference is given without --source")
    loaded = {str(folder): _load(folder) for folder in models}  # all of them, before the first is put to work
    pairs = [(p.source, p.target) for p in (open_corpus(source, reference) if source else bundled(train=0).test)]
    if not pairs:
        raise DataError("there is nothing to translate: the text is empty")
    unit, groups = _by_length(pairs)
    names = _short_names(models)
    yield f"{f'{unit} in the source':24}" + "".join(f"{_range(*ends):>9}" for ends in groups) + f"{'all':>9}"
    results = {}
    for name, (folder, model) in zip(names, loaded.items(), strict=True):
        report.say(f"translating {len(pairs):,} sentences with {folder}")
        *scores, whole = _bleu_of_groups(model, list(groups.values()))
        results[name] = [(*ends, score) for ends, score in zip(groups, scores, strict=True)]
        yield f"{name:24}" + "".join(f"{score:9.1f}" for score in [*scores, whole])
    report.say(f"wrote {bleu_by_length(results, unit, path)}")


def _bleu_of_groups(model: Model, groups: list[list[tuple[str, str]]]) -> list[float]:
    """BLEU of each group, and at the end of all together."""
    from transduce.evaluate import bleu

    t, lowercase = model.settings.training, model.settings.text.lowercase
    texts = [[translation.text for translation in model.translate([s for s, _ in group])] for group in groups]
    wanted = [[target for _, target in group] for group in groups]
    texts.append([text for group in texts for text in group])
    wanted.append([target for group in wanted for target in group])
    return [bleu(*both, t.bleu_tokenizer, lowercase) for both in zip(texts, wanted, strict=True)]


def _by_length(pairs: list[tuple[str, str]]) -> tuple[str, dict[tuple[int, int], list[tuple[str, str]]]]:
    """Groups of about one size, by words; by characters where the text has no spaces. Lengths do not overlap."""
    words, characters = (sum(size(text) for text, _ in pairs) for size in (lambda text: len(text.split()), len))
    unit = "words" if characters < 15 * words else "characters"
    by_length: dict[int, list[tuple[str, str]]] = {}
    for pair in pairs:
        by_length.setdefault(len(pair[0].split()) if unit == "words" else len(pair[0]), []).append(pair)
    groups: dict[tuple[int, int], list[tuple[str, str]]] = {}
    first = 0
    now: list[tuple[str, str]] = []
    for length in sorted(by_length):
        first = first if now else length
        now = now + by_length[length]
        if len(now) >= len(pairs) / GROUPS or length == max(by_length):
            groups[first, length] = now
            now = []
    *rest, last = groups
    if rest and len(groups[last]) < len(pairs) / GROUPS / 2:  # too few to be judged by themselves
        groups[rest[-1][0], last[1]] = groups.pop(rest[-1]) + groups.pop(last)
    return unit, groups


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} - {high}"


def _short_names(folders: list[Path]) -> list[str]:
    """Their last parts, where those differ; else all of them."""
    names = [folder.name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


PLOTS: dict[str, Callable[..., Any]] = {
    "curve": plot_curve,
    "positions": plot_positions,
    "masks": plot_masks,
    "schedule": plot_schedule,
    "smoothing": plot_smoothing,
    "saturation": plot_saturation,
    "attention": plot_attention,
    "lengths": plot_lengths,
    "huffman": plot_huffman,
}
