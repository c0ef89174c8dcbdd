"""transduce bench: train a named task over several seeds and report what papers report."""

from __future__ import annotations

import itertools
import shlex
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.commands import Flags, Hidden
from transduce.errors import DataError, SettingsError, did_you_mean
from transduce.files import strict_json
from transduce.files.reading import SMALL, read_bytes
from transduce.report import SILENT, Report
from transduce.settings.compose import by_the_clock, compose
from transduce.settings.entries import flat
from transduce.settings.recipes import RECIPES, Recipe
from transduce.settings.sections import SearchSettings, Settings

if TYPE_CHECKING:
    from transduce.data.corpus import Corpus, Pair

BEAMS = (1, 5)  # greedy, as teaching codes report; 5, as papers on Multi30k do
LENGTH_PENALTIES = (0.6, 1.0, 1.4)  # tried on validation text


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
    if task not in RECIPES:
        raise SettingsError(f"unknown task {task}{did_you_mean(task, RECIPES)}; there are: {', '.join(RECIPES)}")
    if "seed" in (settings or {}).get("training", {}):
        raise SettingsError("the seeds of a benchmark are given by --seeds, not by --training.seed")
    chosen, here = RECIPES[task], run or Path("runs/bench") / task
    if here.exists() and not here.is_dir():
        raise SettingsError(f"{here} is a file; choose another --run")
    wanted = compose(chosen.settings, by_the_clock(settings or {}), settings or {})
    done = {result["seed"] for result in _results(here, task, wanted)}
    seeds = seeds or [1, 2, 3]
    for number, seed in enumerate(seeds, 1):
        if seed in done:
            report.say(f"{here / f'seed-{seed}'} is done already")
            continue
        report.say(f"{task}, seed {seed} ({number} of {len(seeds)})")
        composed = compose({"training": {"seed": seed}}, base=wanted)
        result = {"task": task, **_one(chosen, data, here / f"seed-{seed}", composed, report)}
        _write(here / f"seed-{seed}" / "result.json", result)
        done.add(seed)
    results = _results(here, task, wanted)
    flags: list[tuple[str, Any]] = [("--data", data), *([("--run", run)] if run else [])]
    flags += [("--seeds", result["seed"]) for result in results]
    flags += [
        (f"--{section}.{key}", value) for section, keys in (settings or {}).items() for key, value in keys.items()
    ]
    command = " ".join(["transduce bench", task, *(f"{flag} {shlex.quote(str(value))}" for flag, value in flags)])
    _write(here / "results.json", {"task": task, "command": command, **summary(results), "seeds": results})
    yield from table(task, results)
    yield f"({here / 'results.json'})"


def _results(run: Path, task: str, wanted: Settings) -> list[dict[str, Any]]:
    """What is there already; results of another task or recipe must not be summed up with these."""
    results = []
    for path in sorted(run.glob("seed-*/result.json")):
        try:
            result = strict_json.loads(read_bytes(path, SMALL))
            results.append({**result, "seed": int(result["seed"]), "settings": dict(result["settings"])})
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path} is damaged; remove it, and the seed is scored again") from error
        for name, value in {"task": task, **flat(wanted)}.items():
            was = result["task"] if name == "task" else result["settings"].get(name, value)
            if was != value and name != "training.seed":
                raise SettingsError(f"{path.parent} was trained with {name}={was}, not {value}; choose another --run")
    return results


def corpora(recipe: Recipe, data: Path) -> list[Corpus]:
    """Training, validation and test text."""
    from transduce.bundled.corpus import bundled
    from transduce.data.corpus import Joined, ListCorpus
    from transduce.data.open import open_corpus

    if not recipe.parts:
        made = bundled()
        splits = {"training": made.train, "validation": made.dev, "test": made.test}
        return [ListCorpus([(p.source, p.target) for p in s], f"bundled {name}") for name, s in splits.items()]
    for folder, *_ in recipe.parts:
        if not (data / folder).is_dir():
            raise DataError(f"there is no folder {data / folder}; --data names the folder that holds {folder}")

    def files(folder: str, name: str) -> Corpus:
        ends = [f"{data / folder / name}.{language}" for language in (recipe.source, recipe.target)]
        source, target = (f"{end}.gz" if Path(f"{end}.gz").exists() else end for end in ends)
        return open_corpus(source, target)

    return [Joined([files(folder, names[i]) for folder, *names in recipe.parts]) for i in range(3)]


def _one(recipe: Recipe, data: Path, run: Path, settings: Settings, report: Report) -> dict[str, Any]:
    """Train with one seed, translate the test text, score."""
    import torch

    from transduce.files import metrics
    from transduce.files.run_folder import RunFolder
    from transduce.inspect.curve import curve_at_the_end
    from transduce.models.device import prepare_device
    from transduce.training.setup import fit

    begin = time.monotonic()
    training, validation, test = corpora(recipe, data)
    with curve_at_the_end(run, report):
        outcome = fit(run, training, validation, settings, report)
    trained = time.monotonic()
    penalty, validated = _length_penalty(run, validation, settings)
    scores, signatures = _score_test(run, list(test), penalty, settings.training.device)
    lines = metrics.read(RunFolder(run).metrics)
    device = prepare_device(settings.training.device)
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
        "settings": flat(settings),
    }


def _score_test(run: Path, pairs: list[Pair], penalty: float, device: str) -> tuple[dict[str, float], dict[str, str]]:
    """Scores and signatures for each beam; the translations stay in the run's folder."""
    from transduce.evaluate import as_papers_do
    from transduce.model import Model

    scores, signatures = {}, {}
    for beam in BEAMS:
        model = Model.load(run, device, beam=beam, length_penalty=penalty, split=False)
        texts = [t.text for t in model.translate([pair.source for pair in pairs])]
        (run / f"test.beam{beam}.txt").write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
        for name, scored in as_papers_do(texts, [pair.target for pair in pairs]).items():
            scores[f"{name}, beam {beam}"] = scored.score
            signatures[name] = scored.signature
    return scores, signatures


def _length_penalty(run: Path, validation: Corpus, settings: Settings) -> tuple[float, float | None]:
    """The one with the highest BLEU on validation text, and that BLEU; what was set by hand stays."""
    from transduce.evaluate import bleu
    from transduce.model import Model

    given, t = settings.search.length_penalty, settings.training
    pairs = list(itertools.islice(validation, t.bleu_lines))
    if not pairs:
        return given, None

    def score(penalty: float) -> float:
        model = Model.load(run, t.device, beam=max(BEAMS), length_penalty=penalty, split=False)
        texts = [translation.text for translation in model.translate([pair.source for pair in pairs])]
        return bleu(texts, [pair.target for pair in pairs], t.bleu_tokenizer, lowercase=True)

    free = given == SearchSettings.length_penalty
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
    from transduce.files.atomic import write_file

    write_file(path, (strict_json.dumps(content, indent=1) + "\n").encode())
