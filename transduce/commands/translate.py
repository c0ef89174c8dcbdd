"""transduce translate and score: lines in, lines out."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from transduce.commands import Hidden, Output, SearchFlags, note_unfinished, search_settings
from transduce.commands.labels import is_labeller
from transduce.commands.lines import check_files, check_plain, deliver, lines_kept, mark_of, parse_shard, warn_of_little
from transduce.commands.workers import CHUNK, Workers, check_workers
from transduce.errors import DataError, SettingsError
from transduce.files import strict_json
from transduce.files.output import check_output
from transduce.report import SILENT, Report

if TYPE_CHECKING:
    from transduce.decoding.translator import TargetScore, Translation
    from transduce.fasttext.labeller import Labeller
    from transduce.model import Model

SHOWN = 5  # line numbers named in a warning
MEANING = {  # of the statuses that a reader should know about
    "truncated": "more than {limit} tokens, the rest left out",
    "long": "a sentence of more than {limit} tokens, translated in pieces",
    "length": "cut at the output's length limit",
    "unmet": "without something that was asked for",
    "unknown": "much of it in letters or words that the model does not know",
    "doubtful": "unlike the text that the model has learned from, or unlike a good translation; do not trust it",
    "failed": "the model gave no number",
}


def translate(
    model: Path,
    *files: str,
    output: Output = None,
    force: bool = False,
    resume: bool = False,
    beam: int | None = None,
    length_penalty: float | None = None,
    n_best: int = 1,
    sample: bool = False,
    glossary: Path | None = None,
    keep: str | None = None,
    forbid: list[str] | None = None,
    prefix: str | None = None,
    alternatives: int = 0,
    alignments: bool = False,
    shortlist: Path | None = None,
    together: Annotated[list[Path] | None, Parameter(name="--with")] = None,
    adapter: Path | None = None,
    split: Annotated[bool, Parameter(negative="--no-split")] = True,
    json: bool = False,
    shard: str | None = None,
    workers: int = 1,
    engine: str | None = None,
    precision: str | None = None,
    device: str = "auto",
    weights: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    settings: SearchFlags = None,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """Translate files, or standard input, line by line: as many lines out as in, in order.

    Every control of the search is a flag --search.NAME; `transduce settings` lists them.

    Example: echo "ich möchte ein bier" | transduce translate runs/demo

    Parameters
    ----------
    model
        Model folder.
    files
        Text files, one line a text (.gz also); none, or -, is standard input.
    output
        File to write instead of standard output; it appears when all of it is there.
    force
        Replace the output if it is there already.
    resume
        Go on where an interrupted run with the same --output stopped.
    beam
        Hypotheses followed side by side; 1 is greedy. The model's setting if not given.
    length_penalty
        Alpha; larger prefers longer translations. The model's setting if not given.
    n_best
        Translations a line, each text once; more than one come as lines of "line number TAB score TAB text".
    sample
        Draw translations at random instead (--search.temperature, top_k, top_p, min_p, seed).
    glossary
        File of "word TAB translation" (or a|b|c, of which one) that translations must follow.
    keep
        Regular expression; what it matches in a line stands in the translation unchanged.
    forbid
        Word that no translation contains; may be given several times.
    prefix
        File with what the translation of each line begins with.
    alternatives
        With --json: so many tokens that could stand at each place, with their probabilities.
    alignments
        Also say which words come from which, behind |||: "the house ||| 0-0 1-1" (Pharaoh format).
    shortlist
        File made by transduce shortlist: write with the tokens it allows, which is faster on a CPU.
    together
        Another model folder of the same vocabulary: the models write together; may be given several times.
    adapter
        File of adapters (LoRA) that were trained on this model, such as RUN/adapter.safetensors.
    split
        Translate the sentences of a line one by one; --no-split: a line is a sentence, as trained.
    json
        One JSON object a line, with source, status, score and candidates.
    shard
        I/N: of every N lines only the I-th, as one of N machines that share the work; transduce merge joins them again.
    workers
        Processes that translate together, for files of 100,000s of lines and a GPU that waits for Python.
    engine
        auto, plain or ctranslate2.
    precision
        float32, bfloat16, ...; with ctranslate2 also int8. float32 is usual, on a GPU bfloat16.
    device
        auto, cpu, cuda or mps.
    weights
        best, last or averaged instead of the ones that training chose.
    source_language
        Of the text, in a model that knows many languages, by its name there, such as de or deu_Latn.
    target_language
        Of the translation, likewise.
    """
    from transduce.data.lines import read_lines
    from transduce.decoding.shortlist import Shortlist
    from transduce.decoding.wishes import Wishes
    from transduce.text.glossary import Glossary

    which, count = parse_shard(shard)
    if not json:
        _refuse_what_needs_json(n_best, count > 1 or resume, alignments, alternatives)
    inputs = [*files, *(str(file) for file in (glossary, prefix, shortlist) if file)]
    check_files(inputs if files else [*inputs, "-"], output, force or resume)
    check_output(output, [adapter] if adapter else [], force or resume)
    check_plain(files)
    flags = {"beam": beam, "length_penalty": length_penalty, "engine": engine, "precision": precision}
    flags |= {"method": "sample" if sample else None, "split": None if split else False}
    spoken, searched = (source_language, target_language), search_settings(settings, **flags)
    how: dict[str, Any] = {"device": device, "weights": weights, "together": together or ()}
    how |= {"languages": spoken, "adapter": adapter}
    refused = {"--with": together, "--adapter": adapter, "--weights": weights, "--workers": workers > 1}
    translator = _load(model, how, searched, [flag for flag, value in refused.items() if value])
    check_workers(workers, translator.search.engine)
    note_unfinished(model, report)
    asked = (n_best, keep, forbid, alternatives, alignments, json, shard, weights, together, spoken, adapter)
    chunk = min(CHUNK, translator.engine.chunk) if workers > 1 else translator.engine.chunk
    mark = mark_of(model, inputs, translator.search, *asked, chunk) if output else ""  # all of the text is read for it
    kept = lines_kept(output, resume, mark, chunk, report)
    done = 0 if kept is None else kept.lines
    words = None if glossary is None else Glossary.from_lines(read_lines(glossary), str(glossary))
    short = None if shortlist is None else Shortlist.from_lines(read_lines(shortlist), str(shortlist))
    wishes = Wishes(n_best, words, keep, forbid or (), alternatives, alignments, short)
    at_keyboard = files in ((), ("-",)) and sys.stdin is not None and sys.stdin.isatty()
    on_screen = output is None and sys.stdout.isatty()  # then the lines themselves show how far it is
    if engine or precision:
        report.say(f"engine: {translator.engine.name}")

    def mine(lines: Iterable[str]) -> Iterator[str]:
        """Those of this shard that are still to be done."""
        return itertools.islice(lines, which - 1 + done * count, None, count)

    def translations() -> Iterator[Translation]:
        with (SILENT if on_screen else report).progress("translate") as bar:
            begins = mine(read_lines(prefix)) if prefix else ()
            given = mine(_input_lines(files)), wishes, 1 if at_keyboard else chunk, bar, begins
            if workers == 1 or at_keyboard:
                yield from translator.stream(*given)
            else:
                with closing(Workers(workers, model, **how, **searched)) as crew:
                    yield from crew.stream(*given)

    numbered = zip(itertools.count(which + done * count, count), translations(), strict=False)
    watched = _warn_at_the_end(numbered, translator.lengths.longest, report)
    return deliver(_lines_of(watched, n_best, json, alignments), output, report, mark, kept)


def _load(path: Path, how: dict[str, Any], searched: dict[str, Any], flags: Sequence[str]) -> Model | Labeller:
    """A model that translates, or one that gives labels, which does without these flags."""
    if is_labeller(path):
        from transduce.fasttext.labeller import Labeller

        if flags:
            raise SettingsError(f"{flags[0]} does not go with a model of the kind fasttext, which gives labels")
        return Labeller.load(path, **searched)
    from transduce.model import Model  # only here: PyTorch takes seconds to load, and labels do without

    return Model.load(path, **how, **searched)


def _refuse_what_needs_json(n_best: int, joined: bool, alignments: bool, alternatives: int) -> None:
    if n_best > 1 and joined:
        raise SettingsError("--n-best with --shard or --resume needs --json: outputs are joined line by line")
    if alignments and n_best > 1:
        raise SettingsError("--alignments with --n-best needs --json, which has a place for them")
    if alternatives:
        raise SettingsError("--alternatives needs --json, which has a place for them")


Numbered = tuple[int, "Translation"]  # with the line it comes from


def _warn_at_the_end(translations: Iterable[Numbered], limit: int, report: Report) -> Iterator[Numbered]:
    """The same translations; at the end, which lines the reader should know about."""
    noticed: dict[str, list[int]] = {status: [] for status in MEANING}
    counts = dict.fromkeys(noticed, 0)
    sure, judged = 0.0, 0
    for number, t in translations:
        if t.confidence is not None:
            sure, judged = sure + t.confidence, judged + 1
        if t.status in noticed:
            counts[t.status] += 1
            noticed[t.status] = [*noticed[t.status], number][:SHOWN]
        yield number, t
    for status, numbers in noticed.items():
        if numbers:
            listed = ", ".join(map(str, numbers)) + (", ..." if counts[status] > SHOWN else "")
            meaning = MEANING[status].format(limit=limit)
            report.warn(f"status {status} ({meaning}): {counts[status]:,} in all, line {listed}")
    warn_of_little(sure, judged, report)


def _lines_of(translations: Iterable[Numbered], n_best: int, json: bool, aligned: bool) -> Iterator[str]:
    from transduce.text.words import pharaoh

    for number, t in translations:
        if json:
            record = {"line": number, "source": t.source, "translation": t.text, "status": t.status, "score": t.score}
            if t.confidence is not None:
                record["confidence"] = t.confidence
            record["candidates"] = [candidate._asdict() for candidate in t.candidates]
            if t.parts:
                record["parts"] = [{"source": p.source, "translation": p.text, "status": p.status} for p in t.parts]
            if t.alternatives:
                record["alternatives"] = t.alternatives
            if aligned:
                record["alignment"] = t.alignment
            yield strict_json.dumps(record)
        elif n_best == 1:
            yield f"{t.text} ||| {pharaoh(t.alignment)}" if aligned else t.text
        elif not t.candidates:
            yield f"{number}\t0.0000\t"
        else:
            yield from (f"{number}\t{candidate.score:.4f}\t{candidate.text}" for candidate in t.candidates)


def score(
    model: Path,
    *,
    source: str,
    target: str | None = None,
    columns: tuple[str, str] | None = None,
    languages: tuple[str, str] | None = None,
    json: bool = False,
    output: Output = None,
    force: bool = False,
    device: str = "auto",
    weights: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """The log-probability of each given translation, one a line.

    Example: transduce score runs/demo --source test.de --target test.en

    Parameters
    ----------
    model
        Model folder.
    source
        Source text, or a .tsv, .csv, .jsonl, .tmx or .parquet with both sides.
    target
        The translations to score.
    columns
        Source and target, such as --columns 1 3: numbers in a .tsv or .csv, names in a .csv, .jsonl or .parquet.
    languages
        Source and target in a .tmx, such as --languages de en; not needed where it has two.
    json
        One JSON object a line, with status, number of tokens and perplexity.
    output
        File to write instead of standard output.
    force
        Replace the output if it is there already.
    device
        auto, cpu, cuda or mps.
    weights
        best, last or averaged instead of the ones that training chose.
    source_language
        Of the text, in a model that knows many languages, by its name there, such as de or deu_Latn.
    target_language
        Of the translation, likewise.
    """
    from transduce.data.open import open_corpus
    from transduce.model import Model

    check_files([source] if target is None else [source, target], output, force)
    translator = Model.load(model, device, weights, languages=(source_language, target_language))
    corpus = open_corpus(source, target, False, columns, languages)
    scores = translator.score((pair.source, pair.target) for pair in corpus)

    def lines() -> Iterator[str]:
        too_long = failed = 0
        for number, s in enumerate(scores, 1):
            too_long += s.status in ("truncated", "too long")
            failed += s.status == "failed"
            yield _score_line(number, s, json)
        if too_long:
            report.warn(f"{too_long:,} lines were too long to be scored whole; --json tells which")
        if failed:
            report.warn(f"{failed:,} lines have no score: the model gave no number; --json tells which")

    return deliver(lines(), output, report)


def _score_line(number: int, s: TargetScore, json: bool) -> str:
    if not json:
        return f"{s.log_probability:.4f}"
    known = not math.isnan(s.log_probability)
    perplexity = math.exp(min(-s.log_probability / s.tokens, 700)) if known else None
    record = {"line": number, "log_probability": s.log_probability if known else None, "status": s.status}
    return strict_json.dumps({**record, "tokens": s.tokens, "perplexity": perplexity})


def _input_lines(files: Sequence[str]) -> Iterator[str]:
    from transduce.data.lines import decode_lines, read_lines

    for file in files or ["-"]:
        if file != "-":
            yield from read_lines(file)
        elif sys.stdin is None:
            raise DataError("standard input is closed; name a file to translate")
        else:
            yield from decode_lines(sys.stdin.buffer, "standard input")
