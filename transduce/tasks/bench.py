"""transduce bench: train a named task over several seeds and report what papers report."""

from __future__ import annotations

import itertools
import json
import shlex
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce import config as configuration
from transduce.config import Overrides
from transduce.errors import DataError, SettingsError, did_you_mean
from transduce.models import presets
from transduce.report import SILENT, Report
from transduce.tasks import Flags, Hidden
from transduce.tasks.train import fit

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus

BEAMS = (1, 5)  # greedy, as teaching codes report; 5, as papers on Multi30k do
LENGTH_PENALTIES = (0.6, 1.0, 1.4)  # tried on validation text


@dataclass(frozen=True)
class Task:
    """Text, and the settings that were found good on its validation part; the test part decided nothing."""

    summary: str
    source: str = ""  # language: the end of a file's name
    target: str = ""
    parts: tuple[tuple[str, str, str, str], ...] = ()  # folder, and the names of its training, validation, test files
    settings: Overrides = field(default_factory=dict)

    def corpora(self, data: Path) -> list[Corpus]:
        """Training, validation and test text."""
        from transduce.data.corpus import Joined, ListCorpus, open_corpus
        from transduce.text.bundled import bundled

        if not self.parts:
            made = bundled()
            splits = {"training": made.train, "validation": made.dev, "test": made.test}
            return [ListCorpus([(p.source, p.target) for p in s], f"bundled {name}") for name, s in splits.items()]

        for folder, *_ in self.parts:
            if not (data / folder).is_dir():
                raise DataError(f"there is no folder {data / folder}; --data names the folder that holds {folder}")

        def files(folder: str, name: str) -> Corpus:
            ends = [f"{data / folder / name}.{language}" for language in (self.source, self.target)]
            source, target = (f"{end}.gz" if Path(f"{end}.gz").exists() else end for end in ends)
            return open_corpus(source, target)

        return [Joined([files(folder, names[i]) for folder, *names in self.parts]) for i in range(3)]


MULTI30K = (("multi30k", "train", "val", "test_2016_flickr"),)
TATOEBA = (("tatoeba-de-en", "train", "dev", "test"),)
CHINESE = (("tatoeba-zh-en", "train", "dev", "test"), ("captions-zh-en", "train", "val", "test"))
COMMON: Overrides = {
    "batch": {"tokens": 8192},
    "optimizer": {"schedule": "cosine", "rate": 2e-3, "warmup": 1000, "clip": 1.0},
}
WIDTHS = {"d_model": 256, "d_ff": 1024, "heads": 4, "norm": "before"}
CAPTIONS: Overrides = {
    **COMMON,
    "model": {**WIDTHS, "layers": 3, "dropout": 0.4},
    "text": {"vocabulary": 6000},
    "training": {"steps": 4000, "validate_every": 1000, "average": 3},
}
INTO_GERMAN: Overrides = {  # deep and narrow: of the widths tried, the one that learned least by heart
    "batch": COMMON["batch"],
    "optimizer": {**COMMON["optimizer"], "name": "adamw", "weight_decay": 0.05, "rate": 5e-3},
    "model": {
        **{"layers": 6, "d_model": 128, "d_ff": 512, "heads": 4, "norm": "before"},
        **{"dropout": 0.2, "attention_dropout": 0.1, "token_dropout": 0.05},
    },
    "text": {"vocabulary": 6000, "sampling": 0.05},
    "training": {"steps": 8000, "validate_every": 1000, "average": 4},
}
EVERYDAY: Overrides = {
    **COMMON,
    "model": {**WIDTHS, "layers": 4, "dropout": 0.3},
    "text": {"vocabulary": 8000},
    "training": {"steps": 5000, "validate_every": 1000, "average": 3},
}
FROM_CHINESE: Overrides = {**EVERYDAY, "text": {"vocabulary": 12_000, "coverage": 0.9995}}
TASKS = {
    "bundled": Task(
        "The bundled German-English corpus with the tiny preset: needs no data.", settings=presets.find("tiny").settings
    ),
    "multi30k-en-de": Task("Captions, 29,000 pairs, English to German.", "en", "de", MULTI30K, INTO_GERMAN),
    "multi30k-de-en": Task("Captions, 29,000 pairs, German to English.", "de", "en", MULTI30K, CAPTIONS),
    "tatoeba-de-en": Task("Everyday sentences, 154,000 pairs, German to English.", "de", "en", TATOEBA, EVERYDAY),
    "tatoeba-en-de": Task("Everyday sentences, 154,000 pairs, English to German.", "en", "de", TATOEBA, EVERYDAY),
    "tatoeba-zh-en": Task("Everyday sentences and captions, Chinese to English.", "zh", "en", CHINESE, FROM_CHINESE),
}


def bench(
    task: str,
    *,
    data: Path = Path("data"),
    run: Path | None = None,
    seeds: list[int] | None = None,
    settings: Flags = None,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """Train a named task over several seeds; mean and deviation of the scores that papers report.

    Example: transduce bench multi30k-en-de --data data --seeds 1 --seeds 2 --seeds 3

    Writes RUN/results.json. Seeds that are done are not trained again, so more can be added.
    Any setting can be a flag, as for transduce train.

    Parameters
    ----------
    task
        bundled, multi30k-en-de, multi30k-de-en, tatoeba-de-en, tatoeba-en-de or tatoeba-zh-en.
    data
        Folder that holds multi30k, tatoeba-de-en, tatoeba-zh-en and captions-zh-en (not needed for bundled).
    run
        Folder of the runs, one in it for each seed; runs/bench/TASK if not given.
    seeds
        1, 2 and 3 if not given.
    """
    if task not in TASKS:
        raise SettingsError(f"unknown task {task}{did_you_mean(task, TASKS)}; there are: {', '.join(TASKS)}")
    if "seed" in (settings or {}).get("training", {}):
        raise SettingsError("the seeds of a benchmark are given by --seeds, not by --training.seed")
    chosen, here = TASKS[task], run or Path("runs/bench") / task
    if here.exists() and not here.is_dir():
        raise SettingsError(f"{here} is a file; choose another --run")
    recipe = configuration.compose(chosen.settings, settings or {})
    done = {result["seed"] for result in _results(here, task, recipe)}
    seeds = seeds or [1, 2, 3]
    for number, seed in enumerate(seeds, 1):
        if seed in done:
            report.say(f"{here / f'seed-{seed}'} is done already")
            continue
        report.say(f"{task}, seed {seed} ({number} of {len(seeds)})")
        composed = configuration.compose({"training": {"seed": seed}}, base=recipe)
        result = {"task": task, **_one(chosen, data, here / f"seed-{seed}", composed, report)}
        _write(here / f"seed-{seed}" / "result.json", result)
        done.add(seed)
    results = _results(here, task, recipe)
    flags: list[tuple[str, Any]] = [("--data", data), *([("--run", run)] if run else [])]
    flags += [("--seeds", result["seed"]) for result in results]
    flags += [
        (f"--{section}.{key}", value) for section, keys in (settings or {}).items() for key, value in keys.items()
    ]
    command = " ".join(["transduce bench", task, *(f"{flag} {shlex.quote(str(value))}" for flag, value in flags)])
    _write(here / "results.json", {"task": task, "command": command, **summary(results), "seeds": results})
    yield from table(task, results)
    yield f"({here / 'results.json'})"


def _results(run: Path, task: str, recipe: configuration.Settings) -> list[dict[str, Any]]:
    """What is there already; results of another task or recipe must not be summed up with these."""
    found = []
    for path in sorted(run.glob("seed-*/result.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            found.append({**result, "seed": int(result["seed"]), "settings": dict(result["settings"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path} is damaged; remove it, and the seed is scored again") from error
        for name, value in {"task": task, **configuration.flat(recipe)}.items():
            was = result["task"] if name == "task" else result["settings"].get(name, value)
            if was != value and name != "training.seed":
                raise SettingsError(f"{path.parent} was trained with {name}={was}, not {value}; choose another --run")
    return found


def _one(task: Task, data: Path, run: Path, settings: configuration.Settings, report: Report) -> dict[str, Any]:
    """Train with one seed, translate the test text, score."""
    import torch

    from transduce.decoding.translator import Translator
    from transduce.evaluate import as_papers_do
    from transduce.nn.device import choose_device
    from transduce.training import metrics

    begin = time.monotonic()
    training, validation, test = task.corpora(data)
    outcome = fit(run, training, validation, settings, report)
    trained = time.monotonic()
    pairs = list(test)
    penalty, validated = _length_penalty(run, validation, settings)
    scores, signatures = {}, {}
    for beam in BEAMS:
        translator = Translator.load(run, settings.training.device, beam=beam, length_penalty=penalty)
        found = [t.text for t in translator.translate([pair.source for pair in pairs])]
        (run / f"test.beam{beam}.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        for name, scored in as_papers_do(found, [pair.target for pair in pairs]).items():
            scores[f"{name}, beam {beam}"] = scored.score
            signatures[name] = scored.signature
    lines = metrics.read(run / "metrics.jsonl")
    device = choose_device(settings.training.device)
    return {
        "seed": settings.training.seed,
        "scores": scores,
        "signatures": signatures,
        "validation BLEU": outcome.score,
        f"validation BLEU lower-cased, beam {max(BEAMS)}": validated,
        "chosen weights": outcome.chosen,
        "chosen length penalty": penalty,
        "steps": outcome.step,
        "seconds of training": round(outcome.seconds, 1),
        "seconds in all, text to model": round(trained - begin, 1),
        "target tokens": outcome.target_tokens,
        "target tokens a second": round(outcome.target_tokens / outcome.seconds),
        "curve": [[line["step"], line["seconds"], line["bleu"]] for line in lines if line["kind"] == "valid"],
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "torch": torch.__version__,
        "settings": configuration.flat(settings),
    }


def _length_penalty(run: Path, validation: Corpus, settings: configuration.Settings) -> tuple[float, float | None]:
    """The one with the highest BLEU on validation text, and that BLEU; what was set by hand stays."""
    from transduce.decoding.translator import Translator
    from transduce.evaluate import bleu

    given, t = settings.search.length_penalty, settings.training
    pairs = list(itertools.islice(validation, t.bleu_lines))
    if not pairs:
        return given, None

    def score(penalty: float) -> float:
        translator = Translator.load(run, t.device, beam=max(BEAMS), length_penalty=penalty)
        texts = [found.text for found in translator.translate([pair.source for pair in pairs])]
        return bleu(texts, [pair.target for pair in pairs], t.bleu_tokenizer, lowercase=True)

    free = given == configuration.SearchSettings.length_penalty
    scores = {penalty: score(penalty) for penalty in (LENGTH_PENALTIES if free else (given,))}
    best = max(scores, key=scores.__getitem__)
    return best, round(scores[best], 2)


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of everything that is a number."""
    numbers = {
        **{name: [r["scores"][name] for r in results] for name in results[0]["scores"]},
        **{name: [r[name] for r in results] for name, value in results[0].items() if isinstance(value, int | float)},
    }
    del numbers["seed"]
    return {
        "mean": {name: round(statistics.mean(values), 2) for name, values in numbers.items()},
        "deviation": {name: round(statistics.stdev(values), 2) for name, values in numbers.items() if len(values) > 1},
    }


def table(task: str, results: list[dict[str, Any]]) -> Iterator[str]:
    """What a person wants to see."""
    whole = summary(results)
    yield f"{task}, {len(results)} seeds: {', '.join(str(r['seed']) for r in results)}"
    for name, mean in whole["mean"].items():
        each = [r["scores"].get(name, r.get(name)) for r in results]
        spread = f" ± {whole['deviation'][name]:.2f}" if name in whole["deviation"] else ""
        yield f"  {name:36} {mean:12,.2f}{spread:10}   {'  '.join(f'{value:,.2f}' for value in each)}"
    for name, signature in results[0]["signatures"].items():
        yield f"  {name}: {signature}"


def _write(path: Path, content: dict[str, Any]) -> None:
    from transduce.models.folder import write_file

    write_file(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
