"""transduce doctor: what is wrong with this text, before it costs a day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.commands import Flags, Hidden
from transduce.commands.clean import REMOVED, clean_files, write_clean
from transduce.commands.lines import check_files
from transduce.errors import DataError, SettingsError
from transduce.files import strict_json
from transduce.files.output import check_output, write_output
from transduce.report import SILENT
from transduce.settings.compose import compose
from transduce.settings.presets import AUTO, find
from transduce.settings.sections import Settings

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus
    from transduce.data.doctor import Diagnosis
    from transduce.training.recipe import Recipe

LISTED = 1000  # line numbers of each fault in the JSON
REFUSED = "training would refuse this text as it is; mend it, or let --clean FOLDER write a copy of what can be used"
TEXT = ("source", "target", "weight", "columns", "languages")  # settings that name the text


def doctor(
    *,
    source: list[str],
    target: list[str] | None = None,
    weight: list[int] | None = None,
    columns: tuple[str, str] | None = None,
    languages: tuple[str, str] | None = None,
    held_out: list[str] | None = None,
    preset: str = AUTO,
    clean: Path | None = None,
    report_to: Path | None = None,
    picture: Path | None = None,
    force: bool = False,
    settings: Flags = None,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """Look for what is wrong with parallel text: faults with line numbers and samples, lengths, leaks, the cost.

    Example: transduce doctor --source train.de --target train.en --held-out dev.de --held-out dev.en

    The last line is the command that trains on it with the settings that are advised.

    The text is only read. With --clean a copy without the faulty pairs is written, with a list of what was left out.

    Parameters
    ----------
    source
        Text, one sentence a line, or a .tsv, .csv, .jsonl, .tmx or .parquet with both sides. Text may be packed as
        .gz, .xz or .zst. Several texts: the flag again for each.
    target
        Its translation, line by line; the flag again for each --source, in the same order.
    weight
        How often an epoch goes through a --source: a whole number for each, in the same order.
    columns
        Source and target, such as --columns 1 3: numbers in a .tsv or .csv, names in a .csv, .jsonl or .parquet.
    languages
        Source and target in a .tmx, such as --languages de en; not needed where it has two.
    held_out
        Validation text and then test texts, source and target in turn: their pairs must not be in the text.
    preset
        Settings for the estimate of batches, memory and time, as for transduce train; others can be given as flags.
    clean
        Folder for a copy without the faulty pairs: source, target and dropped.tsv.
    report_to
        File for all of it as JSON: counts, lengths, samples, and of each fault the first 1,000 line numbers.
    picture
        PNG, SVG or PDF file for the lengths of the lines.
    force
        Replace outputs that are there already.
    """
    from transduce.data.doctor import examine
    from transduce.data.open import remarks
    from transduce.data.raw import side_names
    from transduce.training.prepare import text_of
    from transduce.training.recipe import Recipe, settings_of

    text: dict[str, Any] = {"source": source, "target": target, "weight": weight}
    text |= {"columns": columns, "languages": languages}
    given: dict[str, Any] = {section: dict(keys) for section, keys in (settings or {}).items()}
    given.setdefault("data", {}).update({key: value for key, value in text.items() if value is not None})
    wanted = Recipe({}, given) if preset == AUTO else compose(find(preset).settings, given)
    chosen = settings_of(wanted)
    files = [*source, *(target or []), *(held_out or [])]
    check_files(files)
    corpus, others = text_of(chosen.data), _held_out(held_out or [], columns, languages)
    copies = [] if clean is None else clean_files(corpus, clean)
    _check_outputs(files, report_to, picture, copies, force)
    for remark in remarks(corpus):
        report.say(remark)
    report.say(f"reading {corpus.name}")
    diagnosis = examine(corpus, list(others.values()))
    if not len(diagnosis.lengths):
        raise DataError(f"{corpus.name} have no line in common: a side is empty")
    yield from _facts(diagnosis, corpus)
    yield ""
    problems = list(_refusals(diagnosis, corpus))
    yield from _faults(diagnosis, corpus)
    yield from problems
    yield ""
    if clean is not None:
        yield write_clean(diagnosis, corpus, clean)
    if report_to is not None:
        report.say(f"wrote {_write_json(diagnosis, report_to)}")
    if picture is not None:
        from transduce.inspect.plots import line_lengths

        names = tuple(Path(name).name for name in side_names(corpus))
        report.say(f"wrote {line_lengths(diagnosis.lengths, (names[0], names[1]), picture)}")
    if problems and not copies:
        yield REFUSED
        return
    yield from _training(diagnosis, corpus, wanted, given, preset, next(iter(others), ()), copies)


def _held_out(
    files: list[str], columns: tuple[str, str] | None, languages: tuple[str, str] | None
) -> dict[tuple[str, ...], Corpus]:
    """Validation and test text by its files, which come in twos but for those that hold both sides."""
    from transduce.data.open import holds_both_sides, open_corpus

    found: dict[tuple[str, ...], Corpus] = {}
    rest = list(files)
    while rest:
        first = rest.pop(0)
        if not rest and not holds_both_sides(first):
            raise SettingsError(f"--held-out takes files in twos, source and target; {len(files)} were given")
        second = None if holds_both_sides(first) else rest.pop(0)
        names = (first,) if second is None else (first, second)
        found[names] = open_corpus(first, second, False, columns, languages)
    return found


def _check_outputs(
    texts: list[str], report_to: Path | None, picture: Path | None, copies: list[Path], force: bool
) -> None:
    for path in (report_to, picture):
        check_output(path, texts, force)
    for path in copies:
        if path.parent.is_dir():
            check_output(path, texts, force)


def _facts(diagnosis: Diagnosis, corpus: Corpus) -> Iterator[str]:
    from transduce.data.corpus import TwoFiles, parts_of, where_unequal
    from transduce.data.raw import line_lengths, side_names

    parts = parts_of(corpus)
    for side, name in enumerate(side_names(corpus)):
        lengths = diagnosis.lengths[:, side]
        yield (
            f"{name}: {diagnosis.lines[side]:,} lines, {diagnosis.characters[side]:,} characters, "
            f"{lengths.mean():.0f} a line (longest {lengths.max():,}), script {diagnosis.scripts[side]}"
        )
    for part, (left, right) in zip(parts, diagnosis.sides, strict=True):
        if len(parts) > 1:
            yield f"{part.name}: {min(left, right):,} pairs"
        if left != right and isinstance(part, TwoFiles):
            longer, more = (part.source, left - right) if left > right else (part.target, right - left)
            where = where_unequal(line_lengths(part.source), line_lengths(part.target))
            yield f"{longer} has {more:,} {'line' if more == 1 else 'lines'} more than the other side; {where}"
    for name, share in diagnosis.coverage.items():
        unit = "characters" if diagnosis.unspaced[name] else "words"
        yield f"{share:.1%} of the {unit} of {name} are in the training text"


def _faults(diagnosis: Diagnosis, corpus: Corpus) -> Iterator[str]:
    from transduce.data.corpus import line_name
    from transduce.data.doctor import FAULTS, SAMPLES

    stretches = diagnosis.stretches(corpus)
    for name, meaning in FAULTS.items():
        lines = diagnosis.faults[name].tolist()
        if lines:
            yield f"{name}: {len(lines):,} of {len(diagnosis.lengths):,} pairs ({meaning})"
            yield from (f"    {line_name(stretches, n)}: {_sample(diagnosis, n)}" for n in lines[:SAMPLES])
    if not any(len(lines) for lines in diagnosis.faults.values()) and not _are_unequal(diagnosis):
        yield "no fault found"


def _are_unequal(diagnosis: Diagnosis) -> bool:
    return any(left != right for left, right in diagnosis.sides)


def _refusals(diagnosis: Diagnosis, corpus: Corpus) -> Iterator[str]:
    """What training would say of bytes that are no UTF-8, and of lines that are no pairs."""
    from transduce.data.corpus import TwoFiles, parts_of
    from transduce.data.lines import read_lines

    if not len(diagnosis.faults["not UTF-8"]) and not len(diagnosis.faults["empty"]):
        return
    for part in parts_of(corpus):
        for text in map(read_lines, (part.source, part.target)) if isinstance(part, TwoFiles) else (part,):
            try:
                for _ in text:
                    pass
            except DataError as problem:
                yield str(problem)


def _training(
    diagnosis: Diagnosis,
    corpus: Corpus,
    wanted: Settings | Recipe,
    given: dict[str, Any],
    preset: str,
    valid: tuple[str, ...],
    copies: list[Path],
) -> Iterator[str]:
    """What it costs, and the command line. A cleaned copy needs nothing left out."""
    from transduce.commands.advice import BY_SETTING, advised, train_line
    from transduce.commands.cost import describe_cost, epoch_tokens, tokens_of_training
    from transduce.training.recipe import Recipe, settings_of

    try:
        lengths, supported = tokens_of_training(corpus, bool(valid), wanted)
    except SettingsError as error:
        yield f"training would stop here: {error}"
        return
    chosen = settings_of(wanted)
    if isinstance(wanted, Recipe):
        yield from (f"{choice.name}={choice.value}: {choice.why}" for choice in wanted.choices if choice.why)
    elif supported != chosen:
        yield f"this text supports a vocabulary of {supported.text.vocabulary:,}, not {chosen.text.vocabulary:,}"
    tokens = epoch_tokens(lengths, [stretch.lines for stretch in diagnosis.stretches(corpus)], supported)
    yield from describe_cost(tokens, len(lengths.lines), supported)
    advice = advised(diagnosis, lengths, chosen, supported)
    if copies:
        data = {key: value for key, value in given["data"].items() if key not in TEXT}
        given = {**given, "data": {**data, "source": str(copies[0]), "target": str(copies[1])}}
        advice = {name: value for name, value in advice.items() if not name.startswith("data.")}
    else:
        left = [name for name in REMOVED if len(diagnosis.faults[name]) and name not in (*BY_SETTING, "length ratio")]
        if left:
            yield f"no setting leaves out: {', '.join(left)}; --clean FOLDER writes a copy without them"
    if not copies and _are_unequal(diagnosis):
        yield REFUSED
        return
    if not copies and (hopeless := _hopeless(diagnosis)):
        yield hopeless
        return
    yield train_line(given, preset, advice, valid)


def _hopeless(diagnosis: Diagnosis) -> str:
    """What no setting can mend; empty, if there is nothing."""
    words = {
        "misaligned": "most lines do not stand beside their translation: one side is shifted, or sorted otherwise",
        "identical": "most lines have the same text on both sides: is that the right --target?",
    }
    found = (name for name in words if len(diagnosis.faults[name]) > diagnosis.lines[0] / 2)
    name = next(found, None)
    return f"{words[name]}; mend that first, there would be nothing to learn" if name else ""


def _sample(diagnosis: Diagnosis, line: int) -> str:
    """Short enough to read, with everything invisible, and every byte that is no text, made visible."""
    sides = (text if len(text) < 70 else text[:67] + "..." for text in diagnosis.samples[line])
    return "  |||  ".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) for text in sides).replace(
        "\\udc", "\\x"
    )


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
