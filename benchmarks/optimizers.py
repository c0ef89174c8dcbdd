"""Which optimizer reaches a validation BLEU in fewest steps, and in least time?

    python benchmarks/optimizers.py multi30k-en-de --data data        train all, three seeds each
    python benchmarks/optimizers.py --report benchmarks/results       table and picture of what was trained

One model (3+3 layers, d_model 128), one text, one batch size; the paper's Adam with its Noam schedule against
Schedule-Free AdamW and Muon. Each optimizer has a learning rate and a warm-up that suit it, chosen before the runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from common import machine

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam-noam": {"name": "adam", "schedule": "noam", "warmup": 500},  # at its peak 4e-3
    "schedule-free": {"name": "schedule_free", "schedule": "constant", "rate": 5e-3, "warmup": 300},
    "muon": {"name": "muon", "schedule": "inverse_sqrt", "rate": 4e-3, "warmup": 200},
}
MODEL = {"layers": 3, "d_model": 128, "d_ff": 512, "heads": 4, "norm": "before", "dropout": 0.2}
GOALS = {"multi30k": (25.0, 30.0, 34.0), "tatoeba": (30.0, 40.0, 45.0)}  # of validation BLEU
COLOURS = {
    "adam-noam": "#999999",
    "schedule-free": "#0072b2",
    "muon": "#d55e00",
}  # colour-blind readers tell them apart


def train(task: str, optimizer: str, seed: int, given: argparse.Namespace) -> None:
    """One run, kept as a small JSON with its curve."""
    from transduce.commands.bench import corpora
    from transduce.files import metrics
    from transduce.settings.compose import compose
    from transduce.settings.recipes import RECIPES
    from transduce.terminal import Terminal
    from transduce.training.setup import fit

    settings = compose(
        {
            "model": MODEL,
            "text": RECIPES[task].settings["text"],
            "batch": {"tokens": 4096},
            "optimizer": {**OPTIMIZERS[optimizer], "clip": 1.0},
            "training": {
                "steps": given.steps, "validate_every": given.every, "bleu_lines": 300, "average": 1, "seed": seed
            },
        }
    )  # fmt: skip
    run = given.runs / f"{task}-{optimizer}-{seed}"
    training, validation, _ = corpora(RECIPES[task], given.data)
    fit(run, training, validation, settings, Terminal())
    lines = [line for line in metrics.read(run / "metrics.jsonl") if line["kind"] == "valid"]
    facts = {
        "task": task,
        "optimizer": optimizer,
        "settings": OPTIMIZERS[optimizer],
        "seed": seed,
        **machine(),
        "curve": [[line["step"], line["seconds"], line["bleu"]] for line in lines],
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"optimizer-{task}-{optimizer}-{seed}.json").write_text(json.dumps(facts) + "\n")


def first(curve: list[list[float]], goal: float, column: int) -> float | None:
    """Step (column 0) or second (1) at which a curve first reaches the goal."""
    return next((point[column] for point in curve if point[2] >= goal), None)


def report(folder: Path) -> None:
    """Markdown table on standard output, picture beside the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("optimizer-*.json"))]
    tasks = sorted({run["task"] for run in runs})
    figure, axes = plt.subplots(1, len(tasks), figsize=(5.2 * len(tasks), 4), layout="constrained", squeeze=False)
    print("| task | optimizer | seeds | " + "steps (seconds) to BLEU | " * 3 + "BLEU at the end |")
    print("|---|---|---|" + "---|" * 4)
    for axis, task in zip(axes[0], tasks, strict=True):
        goals = GOALS[task.split("-")[0]]
        for optimizer, colour in COLOURS.items():
            curves = [run["curve"] for run in runs if (run["task"], run["optimizer"]) == (task, optimizer)]
            if not curves:
                continue
            cells = []
            for goal in goals:
                found = [[first(curve, goal, column) for curve in curves] for column in (0, 1)]
                reached = None not in found[0]
                steps, seconds = (f"{statistics.mean(x):,.0f}" if reached else "" for x in found)
                cells.append(f"{goal:g}: {steps} ({seconds} s)" if reached else f"{goal:g}: not by all")
            ends = [curve[-1][2] for curve in curves]
            spread = f" ± {statistics.stdev(ends):.1f}" if len(ends) > 1 else ""
            end = f"{statistics.mean(ends):.1f}{spread}"
            print(f"| {task} | {optimizer} | {len(curves)} | {' | '.join(cells)} | {end} |")
            for number, curve in enumerate(curves):
                label = optimizer if number == 0 else None
                axis.plot([p[0] for p in curve], [p[2] for p in curve], color=colour, alpha=0.8, label=label)
        axis.set_title(task, fontsize=11)
        axis.set_xlabel("updates")
        axis.set_ylabel("validation BLEU")
        axis.grid(True, alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, loc="lower right")
    figure.savefig(folder / "optimizers.png", dpi=150)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("task", nargs="?")
    words.add_argument("--optimizers", nargs="*", default=list(OPTIMIZERS), choices=OPTIMIZERS)
    words.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    words.add_argument("--steps", type=int, default=1500)
    words.add_argument("--every", type=int, default=150, help="updates between validations")
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--runs", type=Path, default=Path("runs/optimizers"))
    words.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    words.add_argument("--report", type=Path, help="folder of results: only make table and picture")
    given = words.parse_args()
    if given.report:
        report(given.report)
        return
    if given.task is None:
        words.error("name a task, such as multi30k-en-de, or give --report")
    for seed in given.seeds:
        for optimizer in given.optimizers:
            train(given.task, optimizer, seed, given)


if __name__ == "__main__":
    main()
