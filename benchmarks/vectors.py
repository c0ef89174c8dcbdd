"""fastText's job by fastText, gensim and us: labels and word vectors, how good and how fast.

    python benchmarks/vectors.py labels --data data [--tasks cooking sst2 thucnews] [--seeds 1 2 3]
    python benchmarks/vectors.py words --data data [--seeds 1 2 3]
    python benchmarks/vectors.py speed --data data
    python benchmarks/vectors.py transformer --data data [--minutes 4]    our Transformer classifier, same labels
    python benchmarks/vectors.py --table

The peers come with: pip install fasttext-wheel gensim. Every measurement is a process of its own, and systems take
turns. Seconds are from the call to the model, reading included, our kernels being compiled; words/s are those of
training alone, by thread, as fastText itself prints them. Adds lines to benchmarks/results/vectors.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOSSES = ("softmax", "hs", "ns", "ova")
OVA_RATE = 0.2  # of the rate, for one against all: with the whole of it both systems diverge on cooking
# What each text is trained with, the same for all systems; as fastText's own tutorial has it for cooking.
LABELS = {
    "cooking": {"rate": 1.0, "epochs": 25, "word_ngrams": 2},
    "sst2": {"rate": 0.5, "epochs": 5, "word_ngrams": 2},
    "thucnews": {"rate": 0.5, "epochs": 5, "word_ngrams": 2},
}
FILES = {  # training and test part; how a line is taken apart
    "cooking": ("cooking.train.gz", "cooking.valid.gz"),
    "sst2": ("sst2.train.tsv.gz", "sst2.dev.tsv.gz"),  # the test part has no labels
    "thucnews": ("thucnews.train45k.gz", "thucnews.test.gz"),
}
QUESTIONS = ("wordsim353.tsv", "simlex999.txt")


def labelled(task: str, path: Path) -> Iterator[str]:
    """Lines in fastText's form. Chinese with a space around each character, which is all that fastText cuts at."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            line = line.rstrip("\n")
            if task == "sst2" and number:
                label, text = line.split("\t")
                yield f"__label__{label} {text}"
            elif task == "thucnews":
                text, label = line.split("\t")
                yield f"__label__{label} {' '.join(text)}"
            elif task == "cooking":
                yield line


def prepare(task: str, data: Path, folder: Path) -> list[str]:
    paths = []
    for name, file in zip(("train", "test"), FILES[task], strict=True):
        path = folder / f"{name}.txt"
        path.write_text("".join(f"{line}\n" for line in labelled(task, data / "classify" / file)), encoding="utf-8")
        paths.append(str(path))
    return paths


# ---- one measurement, in a process of its own


@contextlib.contextmanager
def spoken(said: list[str]) -> Iterator[None]:
    """What a C++ library prints."""
    with tempfile.TemporaryFile() as held:
        before = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            held.seek(0)
            said.append(held.read().decode(errors="replace"))


def by_fasttext(task: str, paths: list[str], seed: int, threads: int, loss: str) -> dict[str, Any]:
    import fasttext

    said: list[str] = []
    begin = time.monotonic()
    with spoken(said):
        if task == "words":
            model = fasttext.train_unsupervised(paths[0], thread=threads, verbose=2)  # it takes no seed
        else:
            s = LABELS[task]
            model = fasttext.train_supervised(
                paths[0], lr=s["rate"] * (OVA_RATE if loss == "ova" else 1),
                epoch=s["epochs"], wordNgrams=s["word_ngrams"], thread=threads, seed=seed,
                loss=loss, verbose=2)  # fmt: skip
    seconds = time.monotonic() - begin
    speed = float(re.findall(r"words/sec/thread:\s*(\d+)", said[0])[-1])
    out = Path(paths[0]).with_name("theirs.bin")
    model.save_model(str(out))
    found: dict[str, Any] = {"seconds": seconds, "words_a_second_a_thread": speed, "bytes": out.stat().st_size}
    if task == "words":
        from transduce.fasttext.word_vectors import load_vectors

        return {**found, **judged(load_vectors(out), paths[1:])}
    _, precision, _ = model.test(paths[1])
    return {**found, "p_at_1": precision}


def by_us(task: str, paths: list[str], seed: int, threads: int, loss: str) -> dict[str, Any]:
    from transduce.fasttext.folder import save
    from transduce.fasttext.labelled import labelled_lines, plain_lines
    from transduce.fasttext.measure import measured
    from transduce.settings.compose import compose

    if task == "words":
        given: dict[str, Any] = {"threads": threads, "seed": seed}
        lines = plain_lines(paths[:1])
    else:
        given = {**LABELS[task], "objective": "labels", "loss": loss, "min_count": 1, "longest": 0, "power": 0.5}
        given |= {"threads": threads, "seed": seed, "rate": given["rate"] * (OVA_RATE if loss == "ova" else 1)}
        lines = labelled_lines(paths[:1])
    settings = compose({"model": {"kind": "fasttext"}, "vectors": given})
    arrays = Path(paths[0]).parent / "arrays"
    fitted(settings.vectors, lambda: itertools.islice(lines(), 200), arrays)  # kernels are compiled once a machine
    began = time.monotonic()
    network, speed = fitted(settings.vectors, lines, arrays)
    seconds = time.monotonic() - began
    folder = Path(paths[0]).parent / "ours"
    save(network, settings, folder)
    found: dict[str, Any] = {"seconds": seconds, "words_a_second_a_thread": speed / threads}
    found["bytes"] = (folder / "model.safetensors").stat().st_size
    if task == "words":
        from transduce.fasttext.word_vectors import of_network

        return {**found, **judged(of_network(network), paths[1:])}
    return {**found, "p_at_1": measured(network, list(labelled_lines(paths[1:2])())).precision}


def fitted(settings: Any, lines: Any, folder: Path) -> tuple[Any, float]:
    """(a trained network, words a second of training)"""
    from transduce.fasttext import training
    from transduce.fasttext.fit import network_for, read_source

    source = read_source(settings, lines, folder)
    network = network_for(settings, source)
    training.Work(network, source.text).network.out  # noqa: B018  (the table of negatives, the tree)
    begin = time.monotonic()
    training.train(network, source.text)
    return network, source.dictionary.tokens * settings.epochs / (time.monotonic() - begin)


def by_gensim(task: str, paths: list[str], seed: int, threads: int, loss: str) -> dict[str, Any]:
    from gensim.models import FastText

    begin = time.monotonic()
    model = FastText(
        corpus_file=paths[0], vector_size=100, window=5, min_count=5, sg=1, negative=5, epochs=5, alpha=0.05,
        sample=1e-4, workers=threads, seed=seed, bucket=2_000_000)  # fmt: skip
    seconds = time.monotonic() - begin
    words = 5 * model.corpus_total_words
    return {"seconds": seconds, "words_a_second_a_thread": words / seconds / threads, **judged(model.wv, paths[1:])}


def by_transformer(task: str, paths: list[str], seed: int, threads: int, loss: str) -> dict[str, Any]:
    """The classifier that `transduce train --task classify` makes by itself in some minutes (`loss`: how many)."""
    from recipe import transduce

    from transduce.data.lines import read_lines
    from transduce.fasttext.labelled import labelled_lines
    from transduce.model import Model

    folder, sides = Path(paths[0]).parent, {}
    for name, path in zip(("train", "test"), paths[:2], strict=True):
        lines = list(labelled_lines([path])())
        sides[name] = [labels for labels, _ in lines]
        joined = "" if task == "thucnews" else " "  # the spaces there are fastText's need
        (folder / f"{name}.source").write_text("".join(f"{joined.join(text.split())}\n" for _, text in lines))
        (folder / f"{name}.label").write_text("".join(f"{labels[0]}\n" for labels, _ in lines))  # it learns one
    run, begin = folder / f"transformer-{task}-{seed}", time.monotonic()
    transduce("train", str(run), "--task", "classify", f"--source={folder / 'train.source'}", "--device=cpu",
              f"--target={folder / 'train.label'}", f"--minutes={loss}", f"--training.seed={seed}")  # fmt: skip
    seconds = time.monotonic() - begin
    found = [t.text for t in Model.load(run, "cpu").stream(read_lines(folder / "test.source"))]
    right = sum(label in labels for label, labels in zip(found, sides["test"], strict=True))
    size = (run / "model.safetensors").stat().st_size
    return {"seconds": seconds, "words_a_second_a_thread": 0.0, "bytes": size, "p_at_1": right / len(found)}


def judged(vectors: Any, paths: list[str]) -> dict[str, Any]:
    """Agreement with people, whoever has the vectors."""
    from transduce.fasttext.judged import analogies, similarities
    from transduce.fasttext.word_vectors import WordVectors

    if not isinstance(vectors, WordVectors):

        class Spelled(WordVectors):
            spells = True

            def __getitem__(self, word: str) -> Any:
                return theirs[word]

        theirs = vectors
        vectors = Spelled(list(theirs.index_to_key), theirs.vectors)
    found: dict[str, Any] = {}
    for path in paths[:2]:
        agreement = similarities(vectors, Path(path))
        found[Path(path).stem] = round(agreement.correlation, 4)
        found[f"{Path(path).stem}_spelled"] = agreement.known - agreement.listed
    answers = analogies(vectors, Path(paths[2]))
    return {**found, "analogies": round(answers.right / answers.asked, 4), "questions": answers.asked}


SYSTEMS = {"fasttext": by_fasttext, "transduce": by_us, "gensim": by_gensim, "transformer": by_transformer}


# ---- the whole


def measure(out: Path, system: str, task: str, paths: list[str], seed: int, threads: int, loss: str) -> None:
    """In a process of its own, so that nothing is warm but the disk."""
    words = [sys.executable, __file__, "--one", json.dumps([system, task, paths, seed, threads, loss])]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    facts = json.loads(done.stdout.splitlines()[-1])
    with out.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(facts) + "\n")
    print(json.dumps({key: value for key, value in facts.items() if key not in ("python", "torch")}), flush=True)


def one(given: list[Any]) -> None:
    from common import machine

    system, task, paths, seed, threads, loss = given
    try:
        facts = SYSTEMS[system](task, paths, seed, threads, loss)
    except RuntimeError as error:  # fastText, whose loss was no number
        facts = {"failed": str(error)}
    facts = {key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()}
    named = {"system": system, "task": task, "loss": loss, "seed": seed, "threads": threads}
    print(json.dumps({**named, **facts, **machine()}))


def table(path: Path) -> None:
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    lines = [line for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()) if "failed" not in line]
    for line in lines:
        rows.setdefault((line["task"], line["system"], line["loss"], line["threads"]), []).append(line)
    print("| text | system | loss | threads | runs | seconds | words/s a thread | MB | P@1 or similarity, analogies |")
    print("|" + "---|" * 9)
    for key, some in sorted(rows.items()):
        mean = {name: sum(one[name] for one in some) / len(some)
                for name in some[0] if all(isinstance(one.get(name), (int, float)) for one in some)}  # fmt: skip
        quality = [f"{mean[name]:.4f}" for name in ("p_at_1", "wordsim353", "simlex999", "analogies") if name in mean]
        speed, size = f"{mean['words_a_second_a_thread']:,.0f}", f"{mean.get('bytes', 0) / 1e6:.1f}"
        print(
            "|", " | ".join(map(str, [*key, len(some), f"{mean['seconds']:.1f}", speed, size, ", ".join(quality)])), "|"
        )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", nargs="?", choices=["labels", "words", "speed", "transformer"])
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--tasks", nargs="+", choices=LABELS, default=list(LABELS))
    words.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    words.add_argument("--minutes", default="4", help="for the Transformer")
    words.add_argument("--out", type=Path, default=HERE / "results" / "vectors.jsonl")
    words.add_argument("--table", action="store_true")
    words.add_argument("--one", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.one:
        one(json.loads(given.one))
    elif given.table or not given.what:
        table(given.out)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(given, Path(folder))


def run(given: argparse.Namespace, folder: Path) -> None:
    if given.what == "words" or given.what == "speed":
        text = folder / "text.txt"
        text.write_bytes(gzip.decompress((given.data / "words" / "imdb-8MB.txt.gz").read_bytes()))
        questions = folder / "questions-words.txt"
        questions.write_bytes(gzip.decompress((given.data / "words" / "questions-words.txt.gz").read_bytes()))
        paths = [str(text), *(str(given.data.resolve() / "words" / name) for name in QUESTIONS), str(questions)]
    if given.what == "words":
        for seed in given.seeds:
            for system in ("fasttext", "transduce", "gensim"):
                measure(given.out, system, "words", paths, seed, 2, "ns")
    elif given.what == "speed":
        cooking = prepare("cooking", given.data, folder)
        for seed, threads, system in itertools.product(given.seeds, (1, 2), ("fasttext", "transduce")):
            measure(given.out, system, "cooking", cooking, seed, threads, "softmax")
            measure(given.out, system, "words", paths, seed, threads, "ns")
    elif given.what == "transformer":
        for task, seed in itertools.product(given.tasks, given.seeds):
            measure(given.out, "transformer", task, prepare(task, given.data, folder), seed, 2, given.minutes)
    else:
        for task in given.tasks:
            paths = prepare(task, given.data, folder)
            for seed, loss in itertools.product(given.seeds, LOSSES):
                for system in ("fasttext", "transduce"):
                    measure(given.out, system, task, paths, seed, 2, loss)


if __name__ == "__main__":
    main()
