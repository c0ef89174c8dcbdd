"""transduce average: one model from weights that a run has kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transduce.commands import Hidden
from transduce.errors import DataError, ModelError, SettingsError
from transduce.files.run_folder import CONFIG, MODEL, RunFolder
from transduce.report import SILENT


def average(
    run: Path,
    *,
    output: Path,
    last: int | None = None,
    best: int | None = None,
    steps: list[int] | None = None,
    report: Hidden = SILENT,
) -> None:
    """Average weights that a run has kept, into a model folder of its own.

    Example: transduce average runs/mine --best 3 --output runs/mine-best3

    A run keeps the weights of its last training.average validations and of its training.keep_best best ones. Compare
    the result by: transduce evaluate runs/mine-best3 --against runs/mine --source test.de --reference test.en

    Parameters
    ----------
    run
        Folder of the run.
    output
        Folder for the averaged model.
    last
        So many of the newest.
    best
        So many of the best by validation.
    steps
        Those of these steps.
    """
    from transduce.files.manifest import verify, write_folder
    from transduce.files.reading import VOCABULARY, read_bytes
    from transduce.models.load import load_text
    from transduce.models.weights import read_shapes, tensor_bytes
    from transduce.text.tokenizers import file_names
    from transduce.training.average import is_whole, mean_of

    if sum(choice is not None for choice in (last, best, steps)) != 1:
        raise SettingsError("say which weights: one of --last N, --best N and --steps N")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise SettingsError(f"{output} is there already; choose another --output")
    settings, _ = load_text(run)
    shapes = read_shapes(run / MODEL)  # first: its size is compared with its header
    verify(run, [MODEL])
    names = [CONFIG, *file_names(settings.text)]
    kept = RunFolder(run).kept_weights()
    chosen = _chosen(RunFolder(run), list(kept), last, best, steps)
    files = {name: read_bytes(run / name, VOCABULARY) for name in names}
    for step in chosen:
        if not is_whole(kept[step], shapes):
            raise ModelError(f"{kept[step]} cannot be read, or is not of this run's model; leave step {step:,} out")
    write_folder(output, {**files, MODEL: tensor_bytes(mean_of(kept[step] for step in chosen))})
    report.say(f"the mean of steps {_listed(chosen)} is the model in {output}")


def _chosen(run: RunFolder, kept: list[int], last: int | None, best: int | None, steps: list[int] | None) -> list[int]:
    from transduce.training.checkpoint import latest
    from transduce.training.state import read_state

    wanted = last if last is not None else best if best is not None else len(steps or [])
    if wanted < 2:
        raise SettingsError("an average needs the weights of at least two steps")
    if steps is not None:
        missing = [step for step in steps if step not in kept] or [step for step in steps if steps.count(step) > 1]
        if missing:
            raise SettingsError(f"step {missing[0]:,} is not kept, or named twice; kept are {_listed(kept)}")
        return sorted(steps)
    order = kept[::-1]
    if best is not None:
        newest, _ = latest(run)
        order = [] if newest is None else [step for step in read_state(newest).best_steps() if step in kept]
    if len(order) < wanted:
        kind = "validated weights" if best is not None else "weights"
        raise DataError(
            f"{run.path} keeps {kind} of {len(order)} steps ({_listed(sorted(order))}), not of {wanted}; ask for "
            f"fewer, or train with a larger training.average or training.keep_best"
        )
    return sorted(order[:wanted])


def _listed(steps: Sequence[int] | dict[int, Path]) -> str:
    return ", ".join(f"{step:,}" for step in steps) or "none"
