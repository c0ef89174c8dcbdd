"""One function a command, which reads as the whole story of that command; its parameters are the command's flags.

Nothing here prints or exits: results are returned (text as an iterator of lines), talk goes to the `report`.
Rooms that need torch are imported inside the functions, so that `transduce --help` does not wait for it.
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from transduce import config as settings_module
from transduce.config import Overrides, Settings
from transduce.data import corpus
from transduce.data.corpus import Corpus
from transduce.errors import DataError, SettingsError
from transduce.models.presets import PRESETS, preset as find_preset
from transduce.report import SILENT, Report

if TYPE_CHECKING:
    from transduce.decoding.translator import Translation, Translator
    from transduce.models.seq2seq import Seq2Seq
    from transduce.training.trainer import Outcome

Hidden = Annotated[Report, Parameter(parse=False)]  # handed in by cli.py, not a flag


# ---- train -----------------------------------------------------------------------------------------------------


def train(
    run: Path,
    *,
    source: str | None = None,
    target: str | None = None,
    valid_source: str | None = None,
    valid_target: str | None = None,
    preset: str | None = None,
    config: Path | None = None,
    device: str | None = None,
    settings: Annotated[Overrides | None, Parameter(parse=False)] = None,
    report: Hidden = SILENT,
) -> None:
    """Train a translator, or go on with a run that exists.

    Example: transduce train runs/mine --source train.de.gz --target train.en.gz --preset small --model.layers 4

    Without --source it trains on the bundled German-English corpus. Flags are stronger than the file given with
    --config, which is stronger than the preset. Any setting can be a flag: --model.layers 4 (see: transduce settings).

    Parameters
    ----------
    run
        Folder of the run; made if it is not there, gone on with if it is.
    source
        Training text, one sentence a line (.gz also), or a .tsv or .jsonl with both sides.
    target
        Its translation, line by line.
    valid_source
        Validation text; without it, some training pairs are set aside.
    valid_target
        Its translation.
    preset
        Starting point: tiny, small, paper-base, paper-big (see transduce presets).
    config
        YAML file with sections of settings.
    device
        auto, cpu, cuda or mps.
    """
    files = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    flags: dict[str, Any] = {"data": {key: value for key, value in files.items() if value is not None}}
    if device is not None:
        flags["training"] = {"device": device}
    resolved = resolve(run, preset, config, _merge(flags, settings or {}))
    training, validation = _corpora(resolved, report)
    fit(run, training, validation, resolved, report)


def fit(run: Path, training: Corpus, validation: Corpus | None, settings: Settings, report: Report = SILENT) -> Outcome:
    """From two corpora to a trained model in `run`; what `train` and `transduce.train` share."""
    import torch  # noqa: PLC0415

    from transduce.data.batches import Batches  # noqa: PLC0415
    from transduce.inspect.plots import learning_curve  # noqa: PLC0415
    from transduce.models import folder  # noqa: PLC0415
    from transduce.nn.device import choose_device  # noqa: PLC0415
    from transduce.training.trainer import Trainer  # noqa: PLC0415

    device = choose_device(settings.training.device)
    pairs = corpus.count(training)
    if validation is None:
        training, validation = corpus.hold_out(training, pairs, settings.data.hold_out)
        if validation is not None:
            report.say(f"no validation text given: {corpus.count(validation):,} of {pairs:,} pairs are set aside for it")

    tokenizers = _tokenizers(run, training, pairs, settings, report)
    train_store = _store(run, training, tokenizers, settings, report)
    batches = Batches(train_store, settings.batch, tokenizers, settings.training.seed, settings.text.sampling)
    fill = batches.fill(0)
    report.say(f"{len(batches.plan(0)):,} batches an epoch, {fill.empty:.1%} of their slots empty")
    valid_batches = None
    if validation is not None:
        valid_store = _store(run, validation, tokenizers, settings, report)
        valid_batches = Batches(valid_store, settings.batch, tokenizers, seed=0)

    torch.manual_seed(settings.training.seed)
    model = folder.create(settings, tokenizers)
    weights = sum(weight.numel() for weight in model.parameters())
    report.say(f"model of {weights:,} weights on {device}")
    decode_bleu = _validation_bleu(validation, tokenizers, settings, device)
    trainer = Trainer(run, model, settings, batches, valid_batches, decode_bleu, device, report)
    try:
        outcome = trainer.run()
    finally:
        if (run / "metrics.jsonl").exists():
            learning_curve(run, run / "curve.png")
    bleu = "" if outcome.bleu is None else f", validation BLEU {outcome.bleu:.1f}"
    report.say(f"{outcome.reason}: {outcome.step:,} steps in {outcome.seconds / 60:.1f} minutes")
    report.say(f"the {outcome.chosen} weights are the model in {run}{bleu}; learning curve: {run / 'curve.png'}")
    return outcome


def resolve(run: Path, preset: str | None, config: Path | None, flags: Overrides) -> Settings:
    """The settings of a run: preset, file and flags in rising strength; for an existing run, over what it has."""
    stored = run / "config.yaml"
    file = settings_module.read(config) if config else {}
    given = [find_preset(preset).settings] if preset else []
    if not stored.exists():
        if run.exists() and (not run.is_dir() or any(run.iterdir())):
            raise SettingsError(f"{run} exists and is not a run folder; choose another name")
        own_text = "source" in flags.get("data", {}) or "source" in (file.get("data") or {})
        default = [find_preset("small" if own_text else "tiny").settings]
        return settings_module.compose(*(given or default), file, flags)
    base = settings_module.compose(settings_module.read(stored))
    settings = settings_module.compose(*given, file, flags, base=base)
    before, now = settings_module.flat(base), settings_module.flat(settings)
    for name, value in now.items():
        if name.startswith(("model.", "text.", "data.")) and before[name] != value:
            raise SettingsError(
                f"{run} was started with {name}={before[name]} and cannot go on with {value}; "
                f"leave the setting out, or choose another run folder"
            )
    return settings


def _corpora(settings: Settings, report: Report) -> tuple[Corpus, Corpus | None]:
    d = settings.data
    if d.source is None:
        from transduce.text.bundled import bundled  # noqa: PLC0415

        if d.target or d.valid_source or d.valid_target:
            raise SettingsError("--source is missing: the other side and validation text need it")
        report.say("no --source given: training on the bundled German-English corpus")
        made = bundled()
        pairs = [[(p.source, p.target) for p in split] for split in (made.train, made.dev)]
        return corpus.ListCorpus(pairs[0], "the bundled corpus"), corpus.ListCorpus(pairs[1], "the bundled corpus")
    training = corpus.open_corpus(d.source, d.target)
    if d.valid_source is None:
        if d.valid_target:
            raise SettingsError("--valid-target is given without --valid-source")
        return training, None
    return training, corpus.open_corpus(d.valid_source, d.valid_target)


def _tokenizers(run: Path, training: Corpus, pairs: int, settings: Settings, report: Report):  # type: ignore[no-untyped-def]
    """Learned from the training text at a run's start, and kept in its folder with the settings."""
    from transduce.models.folder import write_folder  # noqa: PLC0415
    from transduce.text.tokenizer import Tokenizers  # noqa: PLC0415

    if (run / "config.yaml").exists():
        tokenizers = Tokenizers.load(run, settings.text)
    else:
        report.say(f"learning the vocabulary ({settings.text.tokenizer}) from {pairs:,} pairs")
        enough = 1_000_000  # SentencePiece keeps its text in memory
        tokenizers = Tokenizers.train(corpus.Normalised(corpus.Every(training, -(-pairs // enough))), settings.text)
    files = {**tokenizers.files(), "config.yaml": settings_module.write(settings).encode()}
    write_folder(run, files)
    return tokenizers


def _store(run: Path, text: Corpus, tokenizers, settings: Settings, report: Report):  # type: ignore[no-untyped-def]
    from transduce.data import store  # noqa: PLC0415

    cache = Path(settings.data.cache) if settings.data.cache else run / "data"
    built = store.build(text, tokenizers, settings.data, cache, report)
    report.say(f"{text.name}: {built.counts}")
    if len(built) == 0:
        raise DataError(f"nothing is left of {text.name}: {built.counts}; loosen the filters (data.max_tokens and others)")
    return built


def _validation_bleu(
    validation: Corpus | None, tokenizers: Any, settings: Settings, device: str
) -> Callable[[Seq2Seq], float] | None:
    """A function that decodes validation text greedily and gives its BLEU."""
    from transduce.decoding.translator import Translator  # noqa: PLC0415
    from transduce.evaluate import bleu, metrics  # noqa: PLC0415
    from transduce.models.folder import Loaded  # noqa: PLC0415

    tokenize, lines = settings.training.bleu_tokenizer, settings.training.bleu_lines
    metrics(tokenize)  # complain now, not after an hour
    if validation is None or lines == 0:
        return None
    pairs = [pair for _, pair in zip(range(lines), validation, strict=False)]

    def decode_bleu(model: Seq2Seq) -> float:
        translator = Translator(Loaded(model, tokenizers, settings), device).with_search(beam=1)
        found = translator.translate([pair.source for pair in pairs])
        return bleu([t.text for t in found], [pair.target for pair in pairs], tokenize)

    return decode_bleu


def _merge(*layers: Overrides) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        for section, keys in layer.items():
            merged[section] = {**merged.get(section, {}), **keys} if isinstance(keys, dict) else keys
    return merged


# ---- use -------------------------------------------------------------------------------------------------------


def translate(
    model: Path,
    *files: str,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    n_best: int = 1,
    json: bool = False,
    device: str = "auto",
    weights: str | None = None,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """Translate files, or standard input, line by line: as many lines out as in, in order.

    Example: echo "ich möchte ein bier" | transduce translate runs/demo

    Parameters
    ----------
    model
        Model folder.
    files
        Text files, one sentence a line (.gz also); none, or -, is standard input.
    output
        File to write instead of standard output.
    beam
        Hypotheses followed side by side; 1 is greedy. The model's setting if not given.
    length_penalty
        Alpha; larger prefers longer translations. The model's setting if not given.
    n_best
        Translations a line; more than one come as lines of "line number TAB score TAB text".
    json
        One JSON object a line, with source, status, score and candidates.
    device
        auto, cpu, cuda or mps.
    weights
        best, last or averaged instead of the ones that training chose.
    """
    from transduce.decoding.translator import CHUNK, Translator  # noqa: PLC0415

    translator = Translator.load(model, device, weights, beam=beam, length_penalty=length_penalty)
    at_keyboard = not files and sys.stdin.isatty()
    found = translator.stream(_input_lines(files), n_best, chunk=1 if at_keyboard else CHUNK)
    return _deliver(_written(found, translator, n_best, json, report), output, report)


def _written(
    found: Iterable[Translation], translator: Translator, n_best: int, json: bool, report: Report
) -> Iterator[str]:
    """Translations as lines of text; at the end, what the reader should know about some of them."""
    noticed: dict[str, list[int]] = {"truncated": [], "length": []}
    counts = dict.fromkeys(noticed, 0)
    with report.progress("translate") as bar:
        for number, t in enumerate(found, 1):
            if t.status in noticed:
                counts[t.status] += 1
                noticed[t.status] = (noticed[t.status] + [number])[:5]
            if json:
                yield json_format.dumps({"line": number, **_record(t)}, ensure_ascii=False)
            elif n_best == 1:
                yield t.text
            else:
                yield from (f"{number}\t{c.score:.4f}\t{c.text}" for c in t.candidates or [_NOTHING])
            if number % 100 == 0:
                bar.update(number, lines=f"{number:,}")
    longest = translator.settings.model.max_positions - 1
    meaning = {"truncated": f"longer than {longest} tokens and cut", "length": "cut off at the output's length limit"}
    for status, lines in noticed.items():
        if lines:
            more = ", ..." if counts[status] > len(lines) else ""
            report.warn(f"{counts[status]:,} lines were {meaning[status]}: {', '.join(map(str, lines))}{more}")


class _NOTHING:
    """Stands for the translation of an empty line among n-best lists."""

    score = 0.0
    text = ""


def _record(t: Translation) -> dict[str, Any]:
    candidates = [asdict(c) for c in t.candidates]
    return {"source": t.source, "translation": t.text, "status": t.status, "score": t.score, "candidates": candidates}


def evaluate(
    model: Path,
    *,
    source: str,
    reference: str,
    against: Path | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    tokenize: str | None = None,
    samples: int = 1000,
    device: str = "auto",
    weights: str | None = None,
    report: Hidden = SILENT,
) -> dict[str, Any]:
    """Score a model's translations by BLEU, chrF and TER, with signatures; JSON on standard output.

    Example: transduce evaluate runs/mine --source test.de --reference test.en --against runs/other

    Parameters
    ----------
    model
        Model folder.
    source
        Text to translate.
    reference
        Its translation, line by line.
    against
        Another model folder, or a file of translations, for a paired bootstrap test.
    beam
        Hypotheses followed side by side. The model's setting if not given.
    length_penalty
        Alpha. The model's setting if not given.
    tokenize
        sacreBLEU tokenizer, such as 13a or zh. The model's setting if not given.
    samples
        Bootstrap samples.
    device
        auto, cpu, cuda or mps.
    weights
        best, last or averaged instead of the ones that training chose.
    """
    from transduce import evaluate as scores  # noqa: PLC0415
    from transduce.decoding.translator import Translator  # noqa: PLC0415

    pairs = list(corpus.TwoFiles(source, reference))
    sources, references = [p.source for p in pairs], [p.target for p in pairs]

    def translations(folder: Path) -> list[str]:
        if folder.is_file():
            return list(corpus.read_lines(str(folder)))
        own = weights if folder == model else None
        translator = Translator.load(folder, device, own, beam=beam, length_penalty=length_penalty)
        with report.progress(f"translate with {folder}", total=len(sources)) as bar:
            found = []
            for t in translator.stream(sources):
                found.append(t.text)
                bar.update(len(found))
        return found

    ours = translations(model)
    if tokenize is None:
        tokenize = settings_module.compose(settings_module.read(model / "config.yaml")).training.bleu_tokenizer if model.is_dir() else "13a"
    result: dict[str, Any] = {"model": str(model), "source": source, "reference": reference, "lines": len(sources)}
    result["scores"] = {name: asdict(scored) for name, scored in scores.evaluate(ours, references, tokenize).items()}
    result["exact_match"] = round(scores.exact_match(ours, references), 4)
    if against is not None:
        compared = scores.compare(ours, translations(against), references, tokenize, samples)
        result["against"] = {"other": str(against), "samples": samples, **compared}
    return result


def score(
    model: Path,
    *,
    source: str,
    target: str | None = None,
    json: bool = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    device: str = "auto",
    weights: str | None = None,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """The log-probability of each given translation, one a line.

    Example: transduce score runs/demo --source test.de --target test.en

    Parameters
    ----------
    model
        Model folder.
    source
        Source text, or a .tsv or .jsonl with both sides.
    target
        The translations to score.
    json
        One JSON object a line, with the number of tokens and the perplexity.
    output
        File to write instead of standard output.
    device
        auto, cpu, cuda or mps.
    weights
        best, last or averaged instead of the ones that training chose.
    """
    import math  # noqa: PLC0415

    from transduce.decoding.translator import Translator  # noqa: PLC0415

    translator = Translator.load(model, device, weights)
    pairs = corpus.open_corpus(source, target)

    def lines() -> Iterator[str]:
        for number, s in enumerate(translator.score(pairs), 1):
            if json:
                perplexity = math.exp(-s.log_probability / s.tokens)
                record = {"line": number, "log_probability": s.log_probability, "tokens": s.tokens}
                yield json_format.dumps({**record, "perplexity": perplexity})
            else:
                yield f"{s.log_probability:.4f}"

    return _deliver(lines(), output, report)


def plot_curve(run: Path, *, output: Annotated[Path | None, Parameter(alias="-o")] = None, report: Hidden = SILENT) -> None:
    """Draw the learning curve of a run.

    Example: transduce plot curve runs/demo -o curve.svg

    Parameters
    ----------
    run
        Run folder.
    output
        PNG or SVG file; curve.png in the run folder if not given.
    """
    from transduce.inspect.plots import learning_curve  # noqa: PLC0415

    report.say(f"wrote {learning_curve(run, output or run / 'curve.png')}")


# ---- look up ---------------------------------------------------------------------------------------------------


def presets(name: str | None = None) -> Iterator[str]:
    """List the presets, or show every setting of one.

    Example: transduce presets small

    Parameters
    ----------
    name
        Preset to show in full; the settings it changes are marked with *.
    """
    if name is None:
        yield from (f"{key:12}{p.summary}" for key, p in PRESETS.items())
        return
    chosen = find_preset(name)
    yield chosen.summary
    changed = {f"{section}.{key}" for section, keys in chosen.settings.items() for key in keys}
    values = settings_module.flat(settings_module.compose(chosen.settings))
    yield from (f"{'*' if key in changed else ' '} {key:30}{_shown(value)}" for key, value in values.items())


def settings() -> Iterator[str]:
    """List every setting with its default and what it means.

    Example: transduce settings | grep dropout
    """
    for entry in settings_module.entries():
        yield f"--{entry.name:30}{_shown(entry.default):12}{entry.help}"


def _shown(value: object) -> str:
    return {None: "none", True: "true", False: "false"}.get(value, str(value)) if value in (None, True, False) else str(value)  # type: ignore[call-overload]


def write_corpus(folder: Path, *, train: int = 40_000, seed: int = 1, report: Hidden = SILENT) -> None:
    """Write the bundled German-English corpus as text files.

    Example: transduce corpus data/bundled

    Parameters
    ----------
    folder
        Where train.de, train.en, dev.de, dev.en, test.de and test.en go.
    train
        Training pairs; dev and test stay the same.
    seed
        Another seed makes another corpus.
    """
    from transduce.text.bundled import bundled  # noqa: PLC0415

    made = bundled(train=train, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in (("train", made.train), ("dev", made.dev), ("test", made.test)):
        for side in ("source", "target"):
            language = {"source": "de", "target": "en"}[side]
            lines = "".join(getattr(pair, side) + "\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")
    report.say(f"wrote {len(made.train):,} training, {len(made.dev):,} dev and {len(made.test):,} test pairs to {folder}")


# ---- demo ------------------------------------------------------------------------------------------------------

DEMO_SENTENCES = (
    "ich möchte ein bier",
    "ich möchte ein bier trinken",
    "morgen holt meine schwester den alten lehrer ab",
    "er bleibt zu hause, weil er müde ist",
    "hast du gestern das rote fahrrad repariert?",
)


def demo(run: Path = Path("runs/demo"), *, report: Hidden = SILENT) -> Iterator[str]:
    """The tour: train on the bundled corpus, score the result, translate.

    Example: transduce demo

    Parameters
    ----------
    run
        Folder of the run; a finished one is used again.
    """
    from transduce import evaluate as scores  # noqa: PLC0415
    from transduce.decoding.translator import Translator  # noqa: PLC0415
    from transduce.text.bundled import bundled  # noqa: PLC0415

    train(run, report=report)
    translator = Translator.load(run, "cpu")
    test = bundled(train=0).test
    report.say(f"translating {len(test):,} test sentences that were held out")
    found = [t.text for t in translator.translate(p.source for p in test)]
    references, half = [p.target for p in test], len(test) // 2
    for name, part in (("all", slice(None)), ("new sentences", slice(half)), ("new combinations", slice(half, None))):
        scored = scores.evaluate(found[part], references[part])["BLEU"]
        exact = scores.exact_match(found[part], references[part])
        yield f"held-out test, {name + ':':18}BLEU {scored.score:5.1f}   exact match {exact:6.1%}"
    yield f"({scored.signature})"
    yield ""
    for sentence in DEMO_SENTENCES:
        yield f"{sentence}  ->  {translator.translate(sentence).text}"
    yield ""
    yield "Next:"
    yield f'  echo "wir haben kein brot gekauft" | transduce translate {run}'
    yield f"  transduce translate {run} --json --n-best 3        # type sentences, one a line"
    yield f"  open {run}/curve.png                               # how it learned"
    yield "  transduce train runs/mine --source your.de --target your.en --preset small"


# ---- lines in, lines out ---------------------------------------------------------------------------------------


def _input_lines(files: Sequence[str]) -> Iterator[str]:
    for file in files or ["-"]:
        if file == "-":
            yield from corpus.decode_lines(sys.stdin.buffer, "standard input")
        else:
            yield from corpus.read_lines(file)


def _deliver(lines: Iterator[str], output: Path | None, report: Report) -> Iterator[str]:
    """The lines themselves, or nothing once they are in the file."""
    if output is None:
        return lines
    if not output.parent.is_dir():
        raise DataError(f"there is no folder {output.parent} for the output {output.name}; make it first")
    try:
        stream = open(output, "w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write {output}: {error.strerror}") from error
    number = 0
    with stream:
        for number, line in enumerate(lines, 1):
            try:
                stream.write(line + "\n")
            except OSError as error:
                raise DataError(f"cannot go on writing {output} at line {number:,}: {error.strerror}") from error
    report.say(f"wrote {number:,} lines to {output}")
    return iter(())
