"""transduce distill: a small model that learns from what a large one writes."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.commands import Flags, Hidden
from transduce.commands.lines import check_files, digest_of, write_translations
from transduce.errors import DataError, SettingsError
from transduce.files import strict_json
from transduce.files.atomic import write_file
from transduce.files.reading import SMALL, read_bytes
from transduce.report import SILENT, Report, Table
from transduce.settings.sections import Overrides

if TYPE_CHECKING:
    from transduce.decoding.results import Translation
    from transduce.model import Model
    from transduce.text.languages import Languages

TIMED = 500  # sentences that teacher and student are timed on
UNUSABLE = ("length", "truncated", "failed")  # statuses of translations that a student is not to learn


def distill(
    teacher: Path,
    run: Path,
    *,
    source: str,
    target: str | None = None,
    valid_source: str | None = None,
    valid_target: str | None = None,
    test_source: str | None = None,
    test_target: str | None = None,
    beam: int | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    word_level: float | None = None,
    output: Path | None = None,
    minutes: float | None = None,
    device: str | None = None,
    settings: Flags = None,
    report: Hidden = SILENT,
) -> Table | None:
    """Train a fast student on the translations of a teacher (sequence-level distillation, Kim and Rush, 2016).

    Example: transduce distill runs/big runs/fast --source train.de --target train.en --minutes 15

    Word by word too: transduce distill runs/big runs/fast --source train.de --target train.en --word-level 0.5

    The student has the teacher's width and encoder, and a decoder of one layer, which is where translating spends its
    time; any setting is stronger, such as --model.layers 6. The teacher's translations are a file that is kept, so an
    interrupted command goes on where it was; what they were made of stands in a second file beside it. A translation
    that was cut at its length limit is an empty line there, and training leaves its pair out.

    Parameters
    ----------
    teacher
        Model folder.
    run
        Folder of the student; made if it is new, continued if it exists.
    source
        Text that the teacher translates, one sentence a line (.gz also): its own training text, or any other.
    target
        The real translation, if there is one; the student then learns from both.
    valid_source
        Validation text, which chooses the student's weights; without it, some pairs are set aside.
    valid_target
        Its translation.
    test_source
        Text that neither has learned from or was chosen by: on it teacher and student are compared at the end.
    test_target
        Its translation.
    beam
        Of the teacher; its own setting if not given.
    source_language
        Of a teacher that knows many languages: that of the text, such as de.
    target_language
        That of the translations that are wanted, such as en.
    word_level
        Above 0 to 1: this share of the loss is the teacher's probability of every token (word-level distillation).
        The student then has the teacher's vocabulary, and every update waits for the teacher.
    output
        File of the teacher's translations; RUN.teacher if not given.
    minutes
        Time of the student's training.
    device
        auto, cpu, cuda or mps.
    """
    from transduce.commands.train import train
    from transduce.data.open import holds_both_sides
    from transduce.files.reading import followed
    from transduce.files.run_folder import RunFolder
    from transduce.model import Model
    from transduce.training.resolve import resolve

    if word_level is not None and not 0 < word_level <= 1:
        raise SettingsError(f"--word-level {word_level:g} must be above 0 and at most 1: a share of the loss")
    if (test_source is None) != (test_target is None):
        raise SettingsError("--test-source and --test-target go together: a text and its translation")
    given = {"--source": source, "--target": target, "--valid-source": valid_source, "--test-source": test_source}
    for flag, file in given.items():
        if file is not None and holds_both_sides(file):
            raise SettingsError(f"{flag} {file}: give source and target as files of their own, one sentence a line")
    if followed(teacher) == followed(run):
        raise SettingsError(f"{run} is the teacher; name another folder for the student")
    written = output or run.with_name(f"{run.name}.teacher")
    student = (_going_on if RunFolder(run).has_started else partial(_shape_of_student, teacher))(settings, word_level)
    resolve(run, None, None, {**student, "data": {**student.get("data", {}), "source": [source]}})  # complains now
    spoken = (source_language, target_language)
    origin = _origin(teacher, source, beam, spoken)
    check_files([file for file in (test_source, test_target) if file])  # now, not after the training
    if written.exists():
        _refuse_stale(written, origin)
    else:
        files = (source, target, valid_source, valid_target, test_source, test_target)
        check_files([file for file in files if file], written)
        model = Model.load(teacher, device or "auto", languages=spoken, beam=beam)
        write_file(_note_beside(written), strict_json.dumps(origin, indent=1).encode())
        write_translations(model, teacher, source, written, _usable, spoken, report, resume=True)
    texts = ([source], [str(written)]) if target is None else ([source, source], [str(written), target])
    if target is not None and valid_source is None and not RunFolder(run).has_started:
        report.say(
            "half of what validation compares with is the teacher's; --valid-source and --valid-target tell more"
        )
    valid = [None if file is None else [file] for file in (valid_source, valid_target)]
    train(
        run,
        source=texts[0],
        target=texts[1],
        valid_source=valid[0],
        valid_target=valid[1],
        device=device,
        minutes=minutes,
        settings=student,
        report=report,
    )
    if test_source is None or test_target is None:
        return None
    return _compared({teacher: spoken, run: (None, None)}, (test_source, test_target), device or "auto", report)


def _usable(translation: Translation) -> str:
    """What the student is to learn from a translation: nothing, where its end is missing."""
    return "" if translation.status in UNUSABLE else translation.text


def _origin(teacher: Path, source: str, beam: int | None, spoken: Languages) -> dict[str, str]:
    """What a teacher's translations are made of, in the words of the flags."""
    from transduce.files.manifest import MANIFEST

    return {
        "teacher": digest_of(teacher / MANIFEST),
        "--source": digest_of(Path(source)),
        "--beam": str(beam),
        "--source-language": str(spoken[0]),
        "--target-language": str(spoken[1]),
    }


def _note_beside(written: Path) -> Path:
    """The file that says what a file of translations was made of."""
    return written.with_name(f"{written.name}.json")


def _refuse_stale(written: Path, origin: dict[str, str]) -> None:
    """Translations of another text, or by another teacher, would be taught in silence."""
    way_out = f"remove {written} to have it made again, or name another file with --output"
    try:
        noted = strict_json.loads(read_bytes(_note_beside(written), SMALL))
    except (OSError, ValueError) as error:
        raise DataError(f"{written} is there, and nothing says what it was made of; {way_out}") from error
    changed = [name for name, value in origin.items() if not isinstance(noted, dict) or noted.get(name) != value]
    if changed:
        raise DataError(f"{written} was made with another {', '.join(changed)}; {way_out}")


def _going_on(given: Overrides | None, word_level: float | None) -> Overrides:
    """What is said of a student that is there already; another share than it has is refused with the rest."""
    sections = {section: dict(keys) for section, keys in (given or {}).items()}
    if word_level is None:
        return sections
    return {**sections, "training": {"teacher_share": word_level, **sections.get("training", {})}}


def _shape_of_student(teacher: Path, given: Overrides | None, word_level: float | None) -> Overrides:
    """The teacher's width and encoder with one layer of decoder, and text read as the teacher reads it, where nobody
    says otherwise."""
    from transduce.files.run_folder import CONFIG
    from transduce.settings import config_file

    whole = config_file.read_whole(teacher / CONFIG)
    m, t = whole.model, whole.text
    shape = {"layers": m.layers, "decoder_layers": 1, "d_model": m.d_model, "d_ff": m.d_ff, "heads": m.heads}
    sections = {section: dict(keys) for section, keys in (given or {}).items()}
    reads = {name: getattr(t, name) for name in ("case", "lowercase", "protect", "protect_pattern")}
    if word_level is not None:  # then both must have the same tokens, and read no longer sentences
        reads = asdict(t)
        shape |= {"tie_source": m.tie_source, "max_positions": m.max_positions}
        sections["data"] = {"max_tokens": min(whole.data.max_tokens, m.max_positions - 1), **sections.get("data", {})}
        sections["training"] = {"teacher": str(teacher), "teacher_share": word_level, **sections.get("training", {})}
    return {
        **sections,
        "model": {**shape, **sections.get("model", {})},
        "text": {**reads, **sections.get("text", {})},
    }


def _compared(folders: dict[Path, Languages], text: tuple[str, str], device: str, report: Report) -> Table:
    """Score and speed of models, each for its languages, on the same text."""
    from transduce.data.lines import read_lines
    from transduce.evaluate import bleu
    from transduce.model import Model

    lines, references = (list(read_lines(file)) for file in text)
    rows = []
    for folder, languages in folders.items():
        model = Model.load(folder, device, languages=languages, split=False)
        with report.progress(f"translate with {folder}", total=len(lines)) as bar:
            texts = [t.text for t in model.stream(lines, progress=bar)]
        weights = sum(weight.numel() for weight in model.model.parameters())
        score = bleu(texts, references, model.settings.training.bleu_tokenizer)
        rows.append([str(folder), f"{score:.1f}", f"{_speed(model, lines):,.0f}", f"{weights:,}"])
    return Table(["", "BLEU", "sentences/s", "weights"], rows, [f"{len(lines):,} lines of {text[0]}"])


def _speed(model: Model, lines: list[str]) -> float:
    some = lines[:TIMED]
    model.translate(some[:8])  # compiles, on a GPU
    begin = time.perf_counter()
    model.translate(some)
    return len(some) / (time.perf_counter() - begin)
