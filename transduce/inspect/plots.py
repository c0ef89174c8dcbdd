"""Pictures of runs and heads. matplotlib is imported here and nowhere else, without a display."""

from __future__ import annotations

import functools
import importlib.util
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from transduce.errors import DataError, SettingsError
from transduce.files import metrics
from transduce.files.output import write_output
from transduce.files.run_folder import RunFolder
from transduce.inspect.kinds import ATTENTION_KINDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from transduce.inspect.runs import Run
    from transduce.inspect.trace import Trace

# told apart by colour-blind readers too (Okabe and Ito)
BLUE, ORANGE, GREEN, PINK, SKY, YELLOW = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)
BOXES = "Boxes are letters that no font of this machine has; the page that ends in .html shows them."
CHINESE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei"),
    *("WenQuanYi Micro Hei", "Droid Sans Fallback", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "SimHei"),
)


def can_draw() -> bool:
    """Whether matplotlib, an extra, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def figure(width: float, height: float, title: str) -> Figure:
    """An empty picture."""
    if not can_draw():
        raise SettingsError("pictures need matplotlib: pip install 'transduce[plots]'")
    from matplotlib.figure import Figure  # half a second that other commands need not spend

    made = Figure(figsize=(width, height), layout="constrained")
    made.suptitle(title)
    return made


@functools.cache
def _other_fonts() -> list[str]:
    """Fonts of this machine that have Chinese, Japanese or Korean, two at most."""
    from matplotlib.font_manager import fontManager

    here = {font.name for font in fontManager.ttflist}
    return [name for name in CHINESE_FONTS if name in here][:2]


def save(made: Figure, output: Path) -> Path:
    """In the format that the name ends in. Letters that no font here has are empty boxes, and the picture says so."""
    from matplotlib.text import Text

    check_name(output)
    for text in made.findobj(Text) if _other_fonts() else ():
        text.set_fontfamily(["DejaVu Sans", *_other_fonts()])  # the later ones for what the first has no glyph of
    content, is_whole = _drawn(made, output)
    if not is_whole:
        made.supxlabel(BOXES, fontsize=5, x=0.01, ha="left")
        content, _ = _drawn(made, output)
    write_output(output, content)
    return output


def _drawn(made: Figure, output: Path) -> tuple[bytes, bool]:
    """The bytes of a picture, and whether all its letters could be drawn."""
    content, kind = io.BytesIO(), output.suffix.removeprefix(".").lower()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.savefig(content, dpi=150, format=kind, metadata={"Software" if kind == "png" else "Creator": "transduce"})
    return content.getvalue(), not any("missing from font" in str(warning.message) for warning in caught)


def check_name(output: Path) -> None:
    """Before long work too."""
    if output.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise DataError(f"cannot draw {output}: end its name in .png, .svg or .pdf")


def attention(trace: Trace, output: Path, kind: str, layer: int | None = None, head: int | None = None) -> Path:
    """One head with its tokens on both axes; None: the mean over layers or heads."""
    queries, keys = trace.axes(kind)
    weights = trace.head(kind, layer, head)
    which = f"{f'layer {layer}' if layer else 'all layers'}, {f'head {head}' if head else 'all heads'}"
    inches = [max(4.0, 1.8 + 0.28 * len(names)) for names in (keys, queries)]
    made = figure(min(inches[0] + 1.2, 30), min(inches[1], 30), f"{ATTENTION_KINDS[kind].capitalize()}, {which}")
    axis = made.subplots()
    image = axis.imshow(weights, cmap="cividis", vmin=0, vmax=1, aspect="equal")
    axis.set_xticks(range(len(keys)), [_plain(name) for name in keys], rotation=90)
    axis.set_yticks(range(len(queries)), [_plain(name) for name in queries])
    axis.set(xlabel="looked at", ylabel="is read" if kind == "encoder" else "is written")
    made.colorbar(image, label="weight", shrink=0.8)
    return save(made, output)


def _plain(token: str) -> str:
    """As text, whatever is in it: matplotlib would take what stands between dollars for a formula."""
    return token.replace("▁", "·").replace("$", r"\$")


def line_lengths(lengths: np.ndarray, names: tuple[str, str], output: Path) -> Path:
    """How long the lines of both sides are, and how they go together. `lengths` (pairs, 2) in characters."""
    made = figure(10, 4, f"Line lengths of {len(lengths):,} pairs")
    left, right = made.subplots(1, 2)
    most = max(10, int(np.percentile(lengths, 99.5)) if len(lengths) else 10)
    bins = np.linspace(0, most, 50)
    for side, colour, style in ((0, BLUE, "-"), (1, ORANGE, "--")):
        counts, _ = np.histogram(lengths[:, side].clip(max=most), bins)
        left.step(bins[:-1], counts, style, where="post", color=colour, label=names[side])
    left.set(xlabel="characters in a line", ylabel="lines", ylim=(0, None))
    left.legend(frameon=False)
    image = right.hist2d(*lengths.clip(max=most).T, bins=(bins, bins), cmap="cividis", norm="log")[3]
    right.set(xlabel=f"characters, {names[0]}", ylabel=f"characters, {names[1]}")
    made.colorbar(image, ax=right, label="pairs")
    return save(made, output)


def bleu_by_length(results: Mapping[str, Sequence[tuple[int, int, float]]], unit: str, output: Path) -> Path:
    """BLEU of some models against the length of the source: for each, (from, to, BLEU) of every group of lengths."""
    made = figure(8, 4.5, "BLEU against source length")
    axis = made.subplots()
    marks = ("o-", "s--", "^:", "D-.")
    for i, (name, groups) in enumerate(results.items()):
        scores, label = [score for _, _, score in groups], f" {name}".replace("$", r"\$")
        axis.plot(range(len(groups)), scores, marks[i % len(marks)], color=COLOURS[i % len(COLOURS)], label=label)
    groups = next(iter(results.values()))
    axis.set_xticks(range(len(groups)), [f"{low}" if low == high else f"{low} - {high}" for low, high, _ in groups])
    axis.set(xlabel=f"{unit} in the source", ylabel="BLEU", ylim=(0, 102))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="lower left")
    return save(made, output)


def learning_curve(run: Path, output: Path) -> Path:
    """Loss, BLEU and learning rate of a run against its steps."""
    path = RunFolder(run).metrics
    if not run.is_dir():
        raise DataError(f"there is no folder {run}")
    if not path.exists():
        raise DataError(f"{run} has no metrics.jsonl: nothing has been trained there yet")
    records = metrics.read(path)
    train = [r for r in records if r["kind"] == "train"]
    if not records:
        raise DataError(f"{path} is empty: nothing has been trained there yet")
    valid = [r for r in records if r["kind"] == "valid"]
    measure = metrics.measure_of(valid)
    scored = [r for r in valid if r.get(measure) is not None]
    name = "accuracy (%)" if measure == "accuracy" else "BLEU"

    made = figure(9, 4, f"Learning curve of {run.name}".replace("$", r"\$"))
    loss, score = made.subplots(1, 2)
    loss.plot([r["step"] for r in train], [r["loss"] for r in train], color=BLUE, label="training (smoothed labels)")
    loss.plot([r["step"] for r in valid], [r["loss"] for r in valid], "o-", color=ORANGE, label="validation")
    loss.set(xlabel="step", ylabel="loss (nats a token)", ylim=(0, None))
    loss.legend(frameon=False, loc="upper right")
    steps = [r["step"] for r in scored]
    score.plot(steps, [r[measure] for r in scored], "o-", color=GREEN, label=f"validation {name}")
    score.set(xlabel="step", ylabel=name, ylim=(0, None), xlim=loss.get_xlim())
    rate = score.twinx()
    rate.plot([r["step"] for r in train], [r["rate"] for r in train], ":", color=BLUE, label="learning rate")
    rate.set(ylabel="learning rate", ylim=(0, None))
    lines = [*score.get_lines(), *rate.get_lines()]
    score.legend(
        lines,
        [str(line.get_label()) for line in lines],
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2,
    )
    for axis in (loss, score):
        axis.grid(alpha=0.3)
    return save(made, output)


def curves_of(runs: Sequence[Run], output: Path) -> Path:
    """Their curves in one picture: validation loss and score against steps."""
    made = figure(11, 4.5, f"{len(runs)} runs")
    left, right = made.subplots(1, 2)
    for i, run in enumerate(runs):
        colour, style = COLOURS[i % len(COLOURS)], ("o-", "s--", "^:", "D-.")[i // len(COLOURS) % 4]
        steps = [record["step"] for record in run.valid]
        left.plot(steps, [record["loss"] for record in run.valid], style, color=colour, label=run.folder.name)
        scored = [record for record in run.valid if record.get(run.measure) is not None]
        right.plot([r["step"] for r in scored], [r[run.measure] for r in scored], style, color=colour)
    left.set(xlabel="step", ylabel="validation loss (nats a token)")
    names = {"accuracy (%)" if run.measure == "accuracy" else "BLEU" for run in runs}
    right.set(xlabel="step", ylabel=" or ".join(sorted(names)), ylim=(0, None))
    for axis in (left, right):
        axis.grid(alpha=0.3)
    if any(run.valid for run in runs):
        made.legend(loc="outside right upper", frameon=False)
    return save(made, output)


def confusion_matrix(counts: np.ndarray, labels: Sequence[str], output: Path) -> Path:
    """Which label is said (columns) where which is true (rows)."""
    size = max(4.0, 0.35 * len(labels) + 2)
    made = figure(size + 1, size, "what was said (columns) where this was true (rows)")
    axes = made.add_subplot()
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.set_yticks(range(len(labels)), labels)
    if len(labels) <= 20:
        for row, column in np.ndindex(*counts.shape):
            colour = "white" if shares[row, column] > 0.5 else "black"
            if counts[row, column]:
                axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", color=colour, fontsize=8)
    return save(made, output)


def huffman_tree(words: Sequence[str], counts: Sequence[int], ways: Sequence[Sequence[bool]], output: Path) -> Path:
    """A tree with a word at each leaf. `ways`: for each word its turns from the root, True to the right."""
    order = sorted(range(len(words)), key=lambda i: tuple(ways[i]))
    across = {tuple(ways[i]): float(place) for place, i in enumerate(order)}  # from a way to where it ends
    deepest = max(map(len, ways))
    for depth in range(deepest - 1, -1, -1):
        for begin in {way[:depth] for way in across if len(way) > depth}:
            across[begin] = (across[(*begin, False)] + across[(*begin, True)]) / 2
    made = figure(0.42 * len(words) + 1, 0.62 * deepest + 1.2, "Huffman's tree: frequent words hang near the root")
    axes = made.add_subplot()
    for way, x in across.items():
        if way:
            axes.plot(
                [across[way[:-1]], x], [-len(way) + 1, -len(way)], color=ORANGE if way[-1] else BLUE, linewidth=1.2
            )
    for i in order:
        place = (across[tuple(ways[i])], -len(ways[i]) - 0.1)
        axes.text(*place, f"{words[i]} {counts[i]:,}", rotation=90, ha="center", va="top", fontsize=9)
    axes.set(ylim=(-deepest - 2.2, 0.3), ylabel="turns (blue left, orange right)")
    axes.set_xticks([])
    axes.set_yticks(range(-deepest, 1), [str(-y) for y in range(-deepest, 1)])
    return save(made, output)
