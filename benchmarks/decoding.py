"""Decoding speed of the same weights in transduce, HF generate and CTranslate2, in one run and in turns.

    python benchmarks/decoding.py MODEL SOURCE.gz [--reference REF.gz] [--lines 2000] [--beams 1 4]    a trained model
    python benchmarks/decoding.py --random base [--sentences 1 256 4096]       random weights, all outputs equally long
    python benchmarks/decoding.py MODEL SOURCE.gz --file 200000 [--beams 4]    a file that long, from disk to disk

Writes JSON to benchmarks/results.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from common import matrix_rate, synchronize, write
from translators import Sources, Translate, ctranslate2, hugging_face

from transduce.commands.workers import CHUNK, Workers
from transduce.core import transformer
from transduce.core.hypotheses import Penalty, Request
from transduce.core.search import Roles
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import END
from transduce.data.lines import read_lines
from transduce.decoding.garbage import garbage_collection_paused
from transduce.engine import auto
from transduce.engine.auto import make_engine
from transduce.evaluate import bleu
from transduce.model import Model
from transduce.models.device import prepare_device
from transduce.settings.sections import ModelSettings, SearchSettings
from transduce.text.normalise import normalise

ALPHA = 0.6
SIZES = {
    "base": ModelSettings(layers=6, d_model=512, d_ff=2048, heads=8, output_bias=True),
    "small": ModelSettings(layers=4, d_model=256, d_ff=1024, heads=4, output_bias=True),
}
TOKENS = 24  # of sources and of outputs, with random weights
VOCABULARY = 16_000
THREADS = torch.get_num_threads()


def ours(
    model: Seq2Seq, device: str, precision: str, beam: int, most: Callable[[int], int], engine: str = "auto"
) -> Translate:
    """transduce's engine, stopping as the others do."""
    auto.WORTH_LOADING = auto.WORTH_COMPILING = auto.MANY = 0  # a user with few lines would not wait for it
    searches = make_engine(model, SearchSettings(engine=engine, precision=precision), device)
    roles = Roles(beam, 1, Penalty(ALPHA, plain=True), stop="usual", ended_first=False)

    def translate(sources: Sources) -> list[list[int]]:
        with garbage_collection_paused():  # as Model.translate has it
            limits = {length: most(length) for length in set(map(len, sources))}
            requests = [Request(source, limits[len(source)]) for source in sources]
            return [hypotheses[0].tokens for hypotheses in searches.find(requests, roles, lambda _: None)]

    return translate


def peers(model: Seq2Seq, device: str, beam: int, batch: int, forced: int | None) -> dict[str, Callable[[], Translate]]:
    """Each by name, built when it is its turn; a GPU's memory is not for all of them."""
    exact = {"min_new_tokens": forced, "max_new_tokens": forced} if forced else {}
    options = {"num_beams": beam, "length_penalty": ALPHA, "early_stopping": beam > 1, **exact}
    if device == "cuda":
        dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16}
        found = {
            f"HF generate {name}": lambda dtype=dtype: hugging_face(model, device, dtype, batch, **options)
            for name, dtype in dtypes.items()
        }
        if beam == 1:
            found["HF generate bfloat16, static cache"] = lambda: hugging_face(
                model, device, torch.bfloat16, batch, static=True, **options
            )
        return found
    exact = {"min_decoding_length": forced, "max_decoding_length": forced} if forced else {}
    c_options = {"beam_size": beam, "length_penalty": ALPHA, **exact}
    return {
        "HF generate float32": lambda: hugging_face(model, device, torch.float32, batch, **options),
        "CTranslate2 float32": lambda: ctranslate2(model, "float32", batch, **c_options),
        "CTranslate2 float32, with scores": lambda: ctranslate2(
            model, "float32", batch, return_scores=True, **c_options
        ),
        "CTranslate2 int8": lambda: ctranslate2(model, "int8", batch, **c_options),
    }


def measure(systems: dict[str, Translate], sources: Sources, rounds: int) -> dict[str, dict[str, Any]]:
    """Tokens a second of each, in turns; END counts."""
    facts: dict[str, dict[str, Any]] = {name: {"speeds": []} for name in systems}
    for name, translate in systems.items():
        facts[name]["outputs"] = translate(sources)  # also compiles
    outputs: list[list[int]] = []
    for _ in range(rounds):
        for name, translate in systems.items():
            outputs.clear()  # of the turn before: to free a million lists takes time, which is nobody's
            torch.set_num_threads(THREADS)  # CTranslate2 sets it to 1, for everybody in the process
            synchronize()
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            begin = time.perf_counter()
            outputs = translate(sources)
            synchronize()
            seconds = time.perf_counter() - begin
            if torch.cuda.is_available():  # of all systems that are built, and of this one's work
                facts[name]["memory"] = torch.cuda.max_memory_allocated()
            facts[name]["speeds"].append(sum(len(tokens) + 1 for tokens in outputs) / seconds)
    return facts


def latencies(translate: Translate, sources: Sources) -> dict[str, float]:
    """Milliseconds of one sentence at a time."""
    times = []
    for ids in sources:
        synchronize()
        begin = time.perf_counter()
        translate([ids])
        synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    times.sort()
    return {"p50": round(statistics.median(times), 2), "p95": round(times[int(0.95 * len(times))], 2)}


def work_of(model: Seq2Seq, sources: Sources, outputs: list[list[int]], beam: int) -> float:
    """Floating-point operations of the products that a search cannot do without: encoder and what is looked at in the
    memory for each source token, the decoder and the vocabulary for each token of each hypothesis."""
    a_source, a_target = 0, 0
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            size = 2 * module.in_features * module.out_features
            of_memory = name.startswith("encoder") or "cross_attention.key" in name or "cross_attention.value" in name
            a_source, a_target = (a_source + size, a_target) if of_memory else (a_source, a_target + size)
    written = sum(len(tokens) + 1 for tokens in outputs)
    return a_source * sum(len(ids) + 1 for ids in sources) + a_target * beam * written


def report(
    facts: dict[str, dict[str, Any]],
    texts: Callable[[list[int]], str],
    reference: list[str] | None,
    work: Callable[[list[list[int]]], float],
) -> dict:
    """Speeds with their range, the share of outputs equal to ours, BLEU; on a GPU memory, and the share of the matrix
    rate that it is measured to have. `work`: floating-point operations that outputs take."""
    rate = matrix_rate() if torch.cuda.is_available() else None
    first = next(iter(facts.values()))["outputs"]
    result = {}
    for name, fact in facts.items():
        speeds = [round(speed) for speed in fact["speeds"]]
        same = sum(a == b for a, b in zip(fact["outputs"], first, strict=True)) / len(first)
        result[name] = {"tokens_per_second": round(statistics.median(speeds)), "speeds": speeds, "same": round(same, 4)}
        if rate is not None:
            written = sum(len(tokens) + 1 for tokens in fact["outputs"])
            share = work(fact["outputs"]) / written * statistics.median(fact["speeds"]) / rate
            result[name] |= {"memory": fact["memory"], "share_of_matrix_rate": round(share, 4)}
        if reference is not None:
            result[name]["BLEU"] = round(bleu([texts(tokens) for tokens in fact["outputs"]], reference), 2)
        print(f"  {name:40} {json.dumps(result[name])}", file=sys.stderr, flush=True)
    return result


def trained(given: argparse.Namespace, device: str) -> dict:
    """A trained model on real sentences."""
    model = Model.load(given.model, device, split=False)
    lines = list(read_lines(given.source))[: given.lines]
    reference = None if given.reference is None else list(read_lines(given.reference))[: given.lines]
    sources = [
        ids[: model.lengths.longest] or [END] for ids in model.tokenizers.source.encode(list(map(normalise, lines)))
    ]
    precisions = ["bfloat16", "float32"] if device == "cuda" else ["float32"]
    result = {}
    for beam in given.beams:
        print(f"beam {beam}", file=sys.stderr)
        systems = {f"transduce {p}": ours(model.model, device, p, beam, model.lengths.limit) for p in precisions}
        if device == "cpu":
            through = ours(model.model, device, "float32", beam, model.lengths.limit, "ctranslate2")
            systems["transduce --engine ctranslate2 float32"] = through
        for name, make in peers(model.model, device, beam, given.batch, None).items():
            if name in given.peers or not given.peers:
                systems[name] = make()
        work = functools.partial(work_of, model.model, sources, beam=beam)
        facts = report(measure(systems, sources, given.rounds), model.tokenizers.target.decode, reference, work)
        if given.latency:
            for name, translate in systems.items():
                facts[name]["milliseconds of one sentence"] = latencies(translate, sources[: given.latency])
        result[f"beam {beam}"] = facts
    return {"model": given.model.name, "lines": len(lines), "batch": given.batch, "systems": result}


def from_disk_to_disk(given: argparse.Namespace, device: str) -> dict:
    """A file of so many lines, read, tokenized, translated, detokenized and written in order."""
    model = Model.load(given.model, device, split=False)
    tokenizers = model.tokenizers
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        lines = itertools.islice(itertools.cycle(list(read_lines(given.source))), given.file)
        source.write_text("".join(line + "\n" for line in lines))

        def by_stream(beam: int, source: Path) -> None:
            with target.open("w") as out:
                out.writelines(f"{t.text}\n" for t in model.with_search(beam=beam).stream(read_lines(source)))

        def by_workers(crew: Workers, source: Path) -> None:
            with target.open("w") as out:
                out.writelines(f"{t.text}\n" for t in crew.stream(read_lines(source)))

        def by_loop(translate: Translate, source: Path) -> None:
            ids = tokenizers.source.encode([normalise(line) for line in read_lines(source)])
            texts = tokenizers.target.decode_all(translate(ids))
            target.write_text("".join(text + "\n" for text in texts))

        few = Path(folder) / "few"
        few.write_text("".join(f"{line}\n" for line in itertools.islice(read_lines(source), 10_000)))
        result: dict[str, dict] = {}

        def time_of(beam: int, name: str, run: Callable[[Path], None]) -> None:
            run(few)  # compiles
            begin = time.perf_counter()
            run(source)
            seconds = time.perf_counter() - begin
            facts = {"seconds": round(seconds, 2), "lines_per_second": round(given.file / seconds)}
            print(f"  beam {beam} {name:50} {json.dumps(facts)}", file=sys.stderr, flush=True)
            result.setdefault(f"beam {beam}", {})[name] = facts

        for beam in given.beams:  # one after the other: a GPU's memory is not for all of them
            for number in given.workers:
                with closing(Workers(number, given.model, device, split=False, beam=beam)) as crew:
                    list(crew.stream(itertools.islice(read_lines(source), CHUNK * number)))  # each compiles
                    time_of(beam, f"transduce, {number} workers", functools.partial(by_workers, crew))
            time_of(beam, f"transduce {model.engine.name}", functools.partial(by_stream, beam))
            for batch in given.batches:
                for name, make in peers(model.model, device, beam, batch, None).items():
                    if name in given.peers or not given.peers:
                        time_of(beam, f"{name}, batches of {batch}", functools.partial(by_loop, make()))
    return {"model": given.model.name, "lines": given.file, "systems": result}


def at_random(given: argparse.Namespace, device: str) -> dict:
    """Random weights: every source and every output has 24 tokens."""
    torch.manual_seed(0)
    model = transformer.build(SIZES[given.random], VOCABULARY, VOCABULARY).to(device).eval()
    with torch.no_grad():
        model.projection.bias.zero_()
        model.projection.bias[END] = -1000.0  # nobody ends before the limit
    rng = random.Random(0)
    precision = "bfloat16" if device == "cuda" else "float32"
    result: dict[str, dict] = {}
    for beam in given.beams:
        translate = ours(model, device, precision, beam, lambda _: TOKENS)
        for count in given.sentences:
            sources = [[rng.randrange(4, VOCABULARY) for _ in range(TOKENS - 1)] for _ in range(count)]
            systems = {f"transduce {precision}": translate}
            if count <= given.most_for_peers:
                make = peers(model, device, beam, count, TOKENS)
                systems |= {name: build() for name, build in make.items() if name in given.peers or not given.peers}
            print(f"beam {beam}, {count} sentences", file=sys.stderr)
            work = functools.partial(work_of, model, sources, beam=beam)
            facts = report(measure(systems, sources, given.rounds), str, None, work)
            result[f"beam {beam}, {count} sentences"] = facts
    return {"size": given.random, "tokens": TOKENS, "vocabulary": VOCABULARY, "systems": result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("source", nargs="?")
    parser.add_argument("--reference")
    parser.add_argument("--random", choices=SIZES)
    parser.add_argument("--sentences", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--peers", nargs="*", default=[])
    parser.add_argument("--most-for-peers", type=int, default=8192)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32, help="sentences of a peer's batch")
    parser.add_argument("--file", type=int, default=0, help="lines of a file that is translated from disk to disk")
    parser.add_argument("--batches", type=int, nargs="+", default=[512, 1024, 2048], help="of peers, for --file")
    parser.add_argument("--workers", type=int, nargs="*", default=[], help="so many processes of ours too, for --file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=int, default=0, help="sentences that are also translated one by one")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--name", help="of the file of results")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    device = prepare_device(given.device)
    if not given.random and not (given.model and given.source):
        parser.error("a model and a source, or --random")
    work = at_random if given.random else from_disk_to_disk if given.file else trained
    kind = "-file" if given.file else ""
    write(
        given.output, given.name or f"decoding-{given.random or given.model.name}{kind}-{device}", work(given, device)
    )


if __name__ == "__main__":
    main()
