"""Pictures. matplotlib is imported here and nowhere else, without a display."""

from __future__ import annotations

import io
from pathlib import Path

from transduce.errors import DataError
from transduce.models.folder import write_file
from transduce.training.metrics import read

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # told apart by colour-blind readers too (Okabe and Ito)


def learning_curve(run: Path, output: Path) -> Path:
    """Loss, BLEU and learning rate of a run against its steps."""
    from matplotlib.figure import Figure  # half a second that other commands need not spend

    path = run / "metrics.jsonl"
    if not path.exists():
        raise DataError(f"{run} has no metrics.jsonl: nothing has been trained there yet")
    records = read(path)
    train = [r for r in records if r["kind"] == "train"]
    if not records:
        raise DataError(f"{path} is empty: nothing has been trained there yet")
    valid = [r for r in records if r["kind"] == "valid"]
    with_bleu = [r for r in valid if r["bleu"] is not None]

    figure = Figure(figsize=(9, 4), layout="constrained")
    loss, bleu = figure.subplots(1, 2)
    figure.suptitle(f"Learning curve of {run.name}")
    loss.plot([r["step"] for r in train], [r["loss"] for r in train], color=BLUE, label="training (smoothed labels)")
    loss.plot([r["step"] for r in valid], [r["loss"] for r in valid], "o-", color=ORANGE, label="validation")
    loss.set(xlabel="step", ylabel="loss (nats a token)", ylim=(0, None))
    loss.legend(frameon=False, loc="upper right")
    bleu.plot(
        [r["step"] for r in with_bleu], [r["bleu"] for r in with_bleu], "o-", color=GREEN, label="validation BLEU"
    )
    bleu.set(xlabel="step", ylabel="BLEU", ylim=(0, None), xlim=loss.get_xlim())
    rate = bleu.twinx()
    rate.plot([r["step"] for r in train], [r["rate"] for r in train], ":", color=BLUE, label="learning rate")
    rate.set(ylabel="learning rate", ylim=(0, None))
    lines = [*bleu.get_lines(), *rate.get_lines()]
    bleu.legend(
        lines,
        [str(line.get_label()) for line in lines],
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2,
    )
    for axis in (loss, bleu):
        axis.grid(alpha=0.3)
    content = io.BytesIO()
    try:
        figure.savefig(content, dpi=150, format=output.suffix.removeprefix(".") or "png")
    except ValueError as error:
        raise DataError(f"cannot draw {output}: end its name in .png, .svg or .pdf") from error
    write_file(output, content.getvalue())
    return output
