"""Several processes under torchrun train the run that one process trains; a dead one ends the others, or is restarted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import bundled_pairs, small_model, source_rows, target_rows
from processes import Fork

from transduce import cli
from transduce.core.flat import FlatWeights
from transduce.core.loss import cross_entropy
from transduce.core.special import PAD
from transduce.data.batches import Batches
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.files import metrics
from transduce.files.run_folder import RunFolder
from transduce.models.weights import read_tensors
from transduce.settings.sections import BatchSettings, DataSettings, TextSettings
from transduce.text.tokenizers import Tokenizers
from transduce.training import overlap
from transduce.training.distributed import Processes
from transduce.training.gradients import PlainGradients

SETTINGS = [
    "--source",
    "t.de",
    "--target",
    "t.en",
    "--valid-source",
    "v.de",
    "--valid-target",
    "v.en",
    "--device",
    "cpu",
    "--preset",
    "tiny",
    "--model.dropout",
    "0",
    "--model.layers",
    "1",
    "--model.d_model",
    "32",
    "--model.d_ff",
    "64",
    "--model.heads",
    "2",
    "--text.vocabulary",
    "300",
    "--batch.tokens",
    "300",
    "--batch.accumulate",
    "3",
    "--optimizer.schedule",
    "constant",  # cosine would depend on the number of steps
    "--optimizer.rate",
    "3e-3",
    "--optimizer.warmup",
    "5",
    "--training.log_every",
    "1",
    "--training.validate_every",
    "10",
    "--training.bleu_lines",
    "9",
    "--training.guided_alignment",
    "0.5",
]
ROOT = Path(__file__).parent.parent


def command(run: str, *more: str, processes: int, restarts: int = 0) -> list[str]:
    together = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    return [*together, "--max-restarts", str(restarts), "-m", "transduce", "train", run, *SETTINGS, *more]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name, pairs in (("t", bundled_pairs(400)), ("v", bundled_pairs(21, seed=2))):
        for side, end in enumerate(("de", "en")):
            (tmp_path / f"{name}.{end}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return tmp_path


def ends(here: Path, *words: str, processes: int) -> list[subprocess.CompletedProcess[str]]:
    """Of so many processes with what torchrun would tell them; they are forks, which start sooner."""

    def train() -> int:
        os.chdir(here)
        return cli.main(["train", *words])

    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "forks"}
    sizes = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
    alone = processes == 1
    ranks = [{} if alone else {"RANK": str(n), "LOCAL_RANK": str(n), **place, **sizes} for n in range(processes)]
    started = [Fork(train, **rank) for rank in ranks]
    return [fork.wait() for fork in started]


def go(here: Path, run: str, *words: str, processes: int = 1) -> str:
    done = ends(here, run, *SETTINGS, *words, processes=processes)
    told = "".join(one.stderr for one in done)
    assert [one.returncode for one in done] == [0] * processes, told
    return told


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def losses(here: Path, run: str) -> list[tuple[str, int, float]]:
    return [(r["kind"], r["step"], r["loss"]) for r in metrics.read(here / run / "metrics.jsonl") if "loss" in r]


def same(one: list[tuple[str, int, float]], two: list[tuple[str, int, float]]) -> bool:
    return [a[:2] for a in one] == [b[:2] for b in two] and np.allclose(
        [a[2] for a in one], [b[2] for b in two], rtol=0, atol=1e-5
    )


def test_two_processes_train_the_run_of_one(here: Path) -> None:
    """Accumulated batches of uneven lengths; also when it goes on with another number of processes."""
    steps = ("--training.steps", "30")
    go(here, "one", *steps)
    told = go(here, "two", *steps, processes=2)
    assert "2 processes, 50% of each batch for each" in told
    assert told.count("all steps done: step 30") == 1  # the first speaks for all
    assert len(losses(here, "one")) >= 33
    assert same(losses(here, "one"), losses(here, "two"))
    for name in ("best", "last", "averaged"):
        one, two = (read_tensors(here / run / f"weights/{name}.safetensors") for run in ("one", "two"))
        for weight in one:
            if not weight.endswith("key.bias"):
                torch.testing.assert_close(one[weight], two[weight], atol=2e-4, rtol=1e-2, msg=f"{name} {weight}")

    go(here, "mixed", "--training.steps", "17", processes=2)
    go(here, "mixed", *steps)

    def course(run: str) -> list[tuple[str, int, float]]:
        return [loss for loss in losses(here, run) if loss[0] != "averaged" and loss[:2] != ("valid", 17)]

    assert same(course("one"), course("mixed"))


@pytest.fixture
def started(here: Path) -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        for pid in workers(process.pid) if process.poll() is None else []:  # torchrun's end would not end them
            os.kill(pid, signal.SIGKILL)
        process.kill()


def start(here: Path, run: str, restarts: int) -> subprocess.Popen[str]:
    steps = ("--training.steps", "100000", "--training.validate_every", "20")
    words = command(run, *steps, processes=2, restarts=restarts)
    return subprocess.Popen(words, cwd=here, env=environment(), stderr=subprocess.PIPE, text=True)


def workers(parent: int) -> list[int]:
    """Processes that torchrun has started, by rank."""
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False).stdout.split()

    def rank(pid: str) -> int:
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return -1  # gone meanwhile
        return next((int(word.removeprefix(b"RANK=")) for word in words if word.startswith(b"RANK=")), -1)

    return [int(pid) for pid in sorted(found, key=rank) if rank(pid) >= 0]


def wait_for(there: Path, after: float = 0.0) -> None:
    until = time.monotonic() + 120
    while not (there.exists() and there.stat().st_mtime > after):
        assert time.monotonic() < until, f"{there} does not come"
        time.sleep(0.1)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_dead_worker_ends_the_others_with_a_message(here: Path, started: list[subprocess.Popen[str]]) -> None:
    process = start(here, "r", restarts=0)
    started.append(process)
    wait_for(here / "r/model.safetensors")
    os.kill(workers(process.pid)[1], signal.SIGKILL)
    _, told = process.communicate(timeout=60)  # no hang
    assert process.returncode != 0
    assert told.count("transduce: another process of this run has ended, so this one ends too") == 1
    steps = [r[1] for r in losses(here, "r") if r[0] == "valid"]
    more = ("--training.steps", str(steps[-1] + 20), "--training.validate_every", "20")
    assert "going on from step" in go(here, "r", *more, processes=2)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_torchrun_restarts_a_run_from_its_last_checkpoint(here: Path, started: list[subprocess.Popen[str]]) -> None:
    process = start(here, "r", restarts=1)
    started.append(process)
    wait_for(here / "r/model.safetensors")
    first = workers(process.pid)
    os.kill(first[1], signal.SIGKILL)
    until, began = time.monotonic() + 120, None
    while began is None or not any(path.stat().st_mtime > began for path in (here / "r/training").glob("step-*0")):
        now = workers(process.pid)
        began = began or (time.time() if now and not set(now) & set(first) else None)
        assert time.monotonic() < until
        time.sleep(0.2)
    for pid in now:
        os.kill(pid, signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert "going on from step" in told
    step = int(told.partition("stopped at step ")[2].partition(";")[0].replace(",", ""))
    assert (here / f"r/training/step-{step}/manifest.json").exists()


SLOW = """
import time
from transduce import cli
from transduce.training import checkpoint

write = checkpoint.write_folder
checkpoint.write_folder = lambda *given: (time.sleep(2), write(*given))
raise SystemExit(cli.main())
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
@pytest.mark.parametrize(("ranks", "restarts"), [((0, 1), 0), ((1,), 2)])
def test_a_stop_waits_until_all_is_written_and_is_one(
    here: Path, started: list[subprocess.Popen[str]], ranks: tuple[int, ...], restarts: int
) -> None:
    """torchrun must not take it for a failure after which it starts all again."""
    (here / "slow.py").write_text(SLOW)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    torchrun += ["--max-restarts", str(restarts), "slow.py"]
    words = [*torchrun, "train", "r", *SETTINGS, "--training.steps", "100000", "--training.validate_every", "100000"]
    process = subprocess.Popen(words, cwd=here, env=environment(), stderr=subprocess.PIPE, text=True)
    started.append(process)
    wait_for(here / "r/metrics.jsonl")
    for rank in ranks:
        os.kill(workers(process.pid)[rank], signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    step = int(told.partition("stopped at step ")[2].partition(";")[0].replace(",", ""))
    assert (here / f"r/training/step-{step}/manifest.json").exists()
    assert (process.returncode == 0) == (restarts > 0)
    assert told.count("stopped at step") == 1
    assert "going on from" not in told


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_two_machines_restart_together(here: Path, started: list[subprocess.Popen[str]]) -> None:
    """Two agents of torchrun on one machine; a worker of the second dies."""
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
        "--max-restarts",
        "3",
    ]
    torchrun += [
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"localhost:{free_port()}",
        "--rdzv-id",
        "x",
        "-m",
        "transduce",
    ]
    words = [*torchrun, "train", "r", *SETTINGS, "--training.steps", "100000", "--training.validate_every", "20"]
    for number in range(2):
        with open(here / f"log.{number}", "w") as log:
            started.append(subprocess.Popen(words, cwd=here, env=environment(), stderr=log, text=True))
    wait_for(here / "r/model.safetensors")
    os.kill(workers(started[1].pid)[0], signal.SIGKILL)
    killed = time.time()
    wait_for(here / "r/model.safetensors", killed + 1)
    told = "".join((here / f"log.{number}").read_text() for number in range(2))
    assert "going on from step" in told


# ---- shares


@pytest.mark.parametrize(
    "layout", [{"layout": "buckets", "tokens": 256}, {"layout": "packed", "tokens": 500, "row": 64}]
)
@pytest.mark.parametrize("count", [2, 3])
def test_shares_of_a_batch_are_the_batch(tmp_path: Path, layout: dict, count: int) -> None:
    pairs = ListCorpus(bundled_pairs(150))
    tokenizers = Tokenizers.train(bundled_pairs(150), TextSettings(vocabulary=300, coverage=1.0))
    built = build_store(pairs, tokenizers, DataSettings(), tmp_path)
    whole = Batches(built, BatchSettings(**layout), seed=1)
    shares = [Batches(built, BatchSettings(**layout), seed=1, share=(rank, count)) for rank in range(count)]
    for batch, *parts in zip(whole.epoch(0), *(share.epoch(0) for share in shares), strict=True):
        assert {part.tokens for part in parts} == {batch.tokens}
        assert all(part.pairs.tolist() == batch.pairs.tolist() for part in parts)
        if layout["layout"] == "packed":
            assert len({part.target_out.shape for part in parts}) == 1

        def sentences(rows: torch.Tensor) -> list[tuple[int, ...]]:
            return sorted(tuple(row[row != PAD].tolist()) for row in rows if (row != PAD).any())

        together = sorted(row for part in parts for row in sentences(part.target_out))
        assert together == sentences(batch.target_out)


ENDS = """
import os
from transduce.training.distributed import process_group

with process_group("cpu") as processes:
    assert processes.maximum(processes.rank) == [1] and processes.gather("a") == ["a", "a"]
names = [open(f"/proc/self/task/{thread}/comm").read() for thread in os.listdir("/proc/self/task")]
assert not any("gloo" in name for name in names), names
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed by Linux alone")
def test_no_thread_outlives_the_processes(tmp_path: Path) -> None:
    """One that lets go of a tensor while Python ends aborts the process, after all was written. Seen once in hundreds
    of runs: `processes` is still held, and with it was the group."""
    (tmp_path / "ends.py").write_text(ENDS, encoding="utf-8")
    together = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "ends.py"]
    done = subprocess.run(together, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.heads", "3"], "model.d_model=32 must be a multiple of model.heads=3"),  # before the processes meet
        (["--batch.tokens", "5"], "does not fit: raise batch.tokens=5 or lower data.max_tokens"),  # after
    ],
)
def test_what_all_processes_complain_of_is_said_once(here: Path, words: list[str], message: str) -> None:
    words = command("r", *words, processes=2)
    done = subprocess.run(words, cwd=here, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert done.stderr.replace("\n", " ").count(message) == 1, done.stderr


def test_a_restart_does_not_begin_the_minutes_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.training.setup import _deadline, _remember_deadline

    run = RunFolder(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    first = _deadline(run, 5.0)
    assert first is not None
    _remember_deadline(run, first)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert _deadline(run, 5.0) == first
    assert _deadline(run, None) is None
    run.session.write_text("{")
    assert (_deadline(run, 5.0) or 0) >= first  # a damaged note: this session begins anew
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "two")
    _remember_deadline(run, first + 99)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    assert _deadline(run, 5.0) != first + 99  # another session's


class Recorder:
    """Stands for torch.distributed: two processes with the same gradients, of which this is one."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def all_reduce(self, tensor: torch.Tensor, async_op: bool = False) -> Recorder:
        self.sizes.append(tensor.numel())
        tensor.mul_(2)
        return self

    def wait(self) -> None:
        pass


def test_gradients_are_summed_in_buckets_while_backward_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one order, whoever has a part in the batch; and the sum is that of one call."""
    recorder = Recorder()
    monkeypatch.setattr(overlap, "dist", recorder)
    monkeypatch.setattr(overlap, "BUCKET", 3000)
    monkeypatch.setattr(Processes, "sum", lambda self, tensor: tensor.mul_(2))
    model = small_model().train()
    flat = FlatWeights(model)
    gradients = PlainGradients(model, 0.1, flat)
    total = overlap.GradientSum(model, flat, Processes(0, 2), overlap=True)
    source, target = source_rows([4, 5, 6], [7, 8]), target_rows([5, 6], [8, 9, 10])

    def backward() -> None:
        logits = model(source, target)
        (cross_entropy(logits, target.tokens).total / 7).backward()

    backward()
    expected = 2 * flat.gradient.clone()
    gradients.clear()
    total.begin()
    total.missing[-1] -= 1  # type: ignore[index]  (half of a backward pass that ran out of memory)
    total.forget()
    backward()
    assert not recorder.sizes  # gradients of a half are not complete
    gradients.clear()
    total.begin()
    backward()
    assert len(recorder.sizes) == len(total.buckets) > 3  # all were sent before anybody asked
    total.finish(torch.zeros(()))
    torch.testing.assert_close(flat.gradient, expected)
    order = list(recorder.sizes)
    gradients.clear()
    total.finish(torch.zeros(()))  # no part in this batch
    assert recorder.sizes[len(order) :] == order
    assert not flat.gradient.any()
