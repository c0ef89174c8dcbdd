"""transduce doctor: what is wrong with this text, before it costs a day."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.commands import Flags, Hidden
from transduce.commands.lines import check_files
from transduce.errors import DataError, SettingsError
from transduce.files import strict_json
from transduce.files.output import check_output, write_output
from transduce.report import SILENT
from transduce.settings.compose import compose
from transduce.settings.presets import find
from transduce.settings.sections import BATCH_TOKENS, Settings

if TYPE_CHECKING:
    from transduce.data.doctor import Diagnosis

LISTED = 1000  # line numbers of each fault in the JSON
# Taken out of a cleaned copy. The others may be right: a tag can be text, 911 can be 112.
REMOVED = (
    *("empty", "identical", "not UTF-8", "encoding damage", "control characters", "too long"),
    *("other script", "length ratio", "duplicate", "leak", "misaligned"),
)
CHARACTERS_A_TOKEN = {"Chinese or Japanese": 1.4}
USUAL_CHARACTERS_A_TOKEN = 4.2  # of a subword in an alphabet, the space counted


def doctor(
    *,
    source: str,
    target: str | None = None,
    held_out: list[str] | None = None,
    preset: str = "small",
    clean: Path | None = None,
    report_to: Path | None = None,
    picture: Path | None = None,
    force: bool = False,
    settings: Flags = None,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """Look for what is wrong with parallel text: faults with line numbers and samples, lengths, leaks, the cost.

    Example: transduce doctor --source train.de --target train.en --held-out dev.de --held-out dev.en

    The text is only read. With --clean a copy without the faulty pairs is written, with a list of what was left out.

    Parameters
    ----------
    source
        Text, one sentence a line (.gz also), or a .tsv or .jsonl with both sides.
    target
        Its translation, line by line.
    held_out
        Validation and test files, source and target in turn: their pairs must not be in the text.
    preset
        Settings for the estimate of batches, memory and time; others can be given as flags, such as --model.layers 4.
    clean
        Folder for a copy without the faulty pairs: source, target and dropped.tsv.
    report_to
        File for all of it as JSON: counts, lengths, samples, and of each fault the first 1,000 line numbers.
    picture
        PNG, SVG or PDF file for the lengths of the lines.
    force
        Replace outputs that are there already.
    """
    from transduce.data.doctor import FAULTS, SAMPLES, examine

    files = held_out or []
    if len(files) % 2:
        raise SettingsError(f"--held-out takes files in twos, source and target; {len(files)} were given")
    chosen = compose(find(preset).settings, settings or {})
    texts = [source, *([] if target is None else [target]), *files]
    check_files(texts)
    _check_outputs(texts, report_to, picture, [] if clean is None else _clean_files(source, target, clean), force)
    report.say(f"reading {source}{'' if target is None else f' and {target}'}")
    diagnosis = examine(source, target, list(zip(files[::2], files[1::2], strict=True)))
    if not len(diagnosis.lengths):
        raise DataError(f"{' and '.join(texts[:2])} have no line in common: a side is empty")
    yield from _facts(diagnosis, source, target)
    yield ""
    for name, meaning in FAULTS.items():
        lines = diagnosis.faults[name]
        if len(lines):
            yield f"{name}: {len(lines):,} of {len(diagnosis.lengths):,} pairs ({meaning})"
            yield from (f"    line {line:,}: {_sample(diagnosis, int(line))}" for line in lines[:SAMPLES])
    if not any(len(lines) for lines in diagnosis.faults.values()):
        yield "no fault found"
    yield ""
    yield from _cost(diagnosis, chosen)
    if clean is not None:
        yield _write_clean(diagnosis, source, target, clean)
    if report_to is not None:
        report.say(f"wrote {_write_json(diagnosis, report_to)}")
    if picture is not None:
        from transduce.inspect.plots import line_lengths

        names = tuple(Path(name).name for name in _sides(source, target))
        report.say(f"wrote {line_lengths(diagnosis.lengths, (names[0], names[1]), picture)}")


def _check_outputs(
    texts: list[str], report_to: Path | None, picture: Path | None, copies: list[Path], force: bool
) -> None:
    for path in (report_to, picture):
        check_output(path, texts, force)
    for path in copies:
        if path.parent.is_dir():
            check_output(path, texts, force)


def _sides(source: str, target: str | None) -> tuple[str, str]:
    """What they are called."""
    return (f"{source}, source", f"{source}, target") if target is None else (source, target)


def _facts(diagnosis: Diagnosis, source: str, target: str | None) -> Iterator[str]:
    for side, name in enumerate(_sides(source, target)):
        lengths = diagnosis.lengths[:, side]
        yield (
            f"{name}: {diagnosis.lines[side]:,} lines, {diagnosis.characters[side]:,} characters, "
            f"{lengths.mean():.0f} a line (longest {lengths.max():,}), script {diagnosis.scripts[side]}"
        )
    if diagnosis.lines[0] != diagnosis.lines[1] and target is not None:
        from transduce.data.corpus import suspicious_line
        from transduce.data.doctor import line_lengths

        near = suspicious_line(line_lengths(source), line_lengths(target))
        more = abs(diagnosis.lines[0] - diagnosis.lines[1])
        yield f"one side has {more:,} lines more than the other; by their lengths they part near line {near:,}"
    for name, share in diagnosis.coverage.items():
        yield f"{share:.1%} of the words of {name} are in the training text"


def _sample(diagnosis: Diagnosis, line: int) -> str:
    """Short enough to read, with everything invisible made visible."""
    sides = (text if len(text) < 70 else text[:67] + "..." for text in diagnosis.samples[line])
    return "  |||  ".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) for text in sides)


def _cost(diagnosis: Diagnosis, settings: Settings) -> Iterator[str]:
    """What training on it takes on this machine, roughly."""
    m = settings.model
    tokens = [
        int(count / CHARACTERS_A_TOKEN.get(script, USUAL_CHARACTERS_A_TOKEN)) + lines
        for count, script, lines in zip(diagnosis.characters, diagnosis.scripts, diagnosis.lines, strict=True)
    ]
    slots = BATCH_TOKENS if settings.batch.tokens == "auto" else settings.batch.tokens
    batches = max(1, round(max(tokens) * 1.05 / slots))
    weights, device, speed = _try_updates(settings)
    memory = 16 * weights + slots * (4 * m.layers * (16 * m.d_model + 2 * m.d_ff) + 8 * settings.text.vocabulary)
    yield (
        f"training: about {tokens[0]:,} source and {tokens[1]:,} target tokens, {batches:,} batches of {slots:,} an "
        f"epoch; {weights / 1e6:.1f} million weights, about {memory / 1e9:.1f} GB"
    )
    minutes, steps = tokens[1] / speed / 60, settings.training.steps or 0
    hours = minutes * steps / batches / 60
    yield (
        f"on this machine ({device}) about {speed:,.0f} target tokens a second by a short try, so {minutes:,.1f} "
        f"minutes an epoch; {steps:,} steps are {steps / batches:.1f} epochs or {hours:,.1f} hours"
    )


def _try_updates(settings: Settings) -> tuple[int, str, float]:
    """Number of weights, device, and target tokens a second of forward and backward on random text."""
    import torch

    from transduce.models.kinds import new_model
    from transduce.nn.device import prepare_device
    from transduce.nn.rows import Rows

    device, size = prepare_device("auto"), max(8, settings.text.vocabulary)
    model = new_model(settings.model, size, size).to(device).train()
    rows, slots = 8, 24
    ids = torch.randint(4, size, (rows, slots), device=device)
    text = Rows(ids, torch.ones_like(ids), torch.arange(slots, device=device).expand(rows, slots))
    seconds = []
    for _ in range(3):  # the first one warms up
        begin = time.perf_counter()
        model(text, text).logsumexp(-1).sum().backward()
        float(next(model.parameters()).detach().sum())  # waits for a GPU
        seconds.append(time.perf_counter() - begin)
    return sum(weight.numel() for weight in model.parameters()), device, rows * slots / min(seconds)


def _clean_files(source: str, target: str | None, folder: Path) -> list[Path]:
    """Files of the copy: source, target, and what was left out."""
    if target is None:  # the copy is plain lines, whatever the file was
        stem = Path(source.removesuffix(".gz")).stem
        names = [f"{stem}.source", f"{stem}.target"]
    else:
        names = [Path(path).name.removesuffix(".gz") for path in (source, target)]
        if names[0] == names[1]:
            names = [f"source.{names[0]}", f"target.{names[1]}"]
    return [folder / name for name in (*names, "dropped.tsv")]


def _write_clean(diagnosis: Diagnosis, source: str, target: str | None, folder: Path) -> str:
    """A copy of the pairs that stay, and a list of the others with the reasons."""
    from transduce.data.doctor import clean
    from transduce.files.atomic import beside

    kept, total = 0, len(diagnosis.lengths)
    places = _clean_files(source, target, folder)
    parts = [beside(path) for path in places]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            left, right, dropped = (
                stack.enter_context(part.open("x", encoding="utf-8", errors="surrogateescape", newline="\n"))
                for part in parts
            )
            removed = {name: diagnosis.faults[name] for name in REMOVED}
            for number, one, two, reasons in clean(source, target, total, removed):
                if not reasons:
                    left.write(f"{one}\n")
                    right.write(f"{two}\n")
                    kept += 1
                else:
                    dropped.write(f"{number}\t{', '.join(reasons)}\t{one}\t{two}\n")
        for part, path in zip(parts, places, strict=True):
            os.replace(part, path)
    except OSError as error:
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink()
        raise DataError(f"cannot write the cleaned copy to {folder}: {error.strerror}") from error
    return f"wrote {kept:,} of {total:,} pairs to {folder}; the {total - kept:,} others, with reasons, to dropped.tsv"


def _write_json(diagnosis: Diagnosis, path: Path) -> Path:
    import numpy as np

    from transduce.data.doctor import SAMPLES

    facts: dict[str, Any] = {
        "made by": "transduce doctor",
        "lines": diagnosis.lines,
        "characters": diagnosis.characters,
        "scripts": diagnosis.scripts,
        "coverage": diagnosis.coverage,
        "lengths": {
            "mean": diagnosis.lengths.mean(0).tolist(),
            "median": np.median(diagnosis.lengths, 0).tolist(),
            "longest": diagnosis.lengths.max(0).tolist(),
        },
        "faults": {
            name: {
                "count": len(lines),
                "lines": lines[:LISTED].tolist(),
                "samples": [diagnosis.samples[line] for line in lines[:SAMPLES].tolist()],
            }
            for name, lines in diagnosis.faults.items()
        },
    }
    text = strict_json.dumps(facts, indent=1) + "\n"
    write_output(path, text.encode("utf-8", "backslashreplace"))
    return path
