"""Runs that are stopped, killed, starved of disk or fed with nonsense: nothing is lost, nothing differs."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from conftest import bundled_pairs, quick_settings
from survival import contents, differences

from transduce.data.corpus import ListCorpus
from transduce.errors import Stopped, UserError
from transduce.files import metrics
from transduce.files.manifest import verify, write_folder
from transduce.files.run_folder import MODEL, RunFolder
from transduce.models.kinds import new_model
from transduce.models.load import load
from transduce.models.weights import read_tensors
from transduce.report import Progress, Report
from transduce.settings.sections import Settings
from transduce.text.tokenizers import Tokenizers
from transduce.training import checkpoint
from transduce.training.distributed import ALONE
from transduce.training.gradients import PlainGradients
from transduce.training.journal import Journal
from transduce.training.keeper import Keeper
from transduce.training.prepare import Text
from transduce.training.setup import Setup, fit
from transduce.training.state import RunState, read_state
from transduce.training.trainer import Outcome
from transduce.training.updater import Updater
from transduce.training.validate import Validator


class At(Report):
    """Does something at a step, and remembers what was said."""

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        self.step, self.act, self.said = step, act, list[str]()

    def say(self, text: str) -> None:
        self.said.append(text)

    warn = say

    def progress(self, title: str, total: float | None = None):  # type: ignore[override, no-untyped-def]
        class Bar(Progress):
            def update(bar, done: float, **facts: str) -> None:  # noqa: N805
                if facts.get("step") == str(self.step):
                    self.act()

        return nullcontext(Bar())


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def run(path: Path, settings: Settings, report: Report | None = None, pairs: int = 100) -> Outcome:
    validation = ListCorpus(bundled_pairs(12, seed=2))
    return fit(path, ListCorpus(bundled_pairs(pairs)), validation, settings, report or Report())


# ---- the same run, however often it was stopped

N = 14  # crosses an epoch's end, validations and checkpoints
EVERYTHING = {
    "text": {"vocabulary": 300, "sampling": 0.1, "variants": 3},
    "batch": {"tokens": 256, "accumulate": 2},
    "training": {
        **{"steps": N, "validate_every": 5, "log_every": 3, "bleu_lines": 4, "device": "cpu"},
        **{"ema": 0.9, "average": 2, "keep_best": 2, "keep": 99},  # 99: a stop adds a checkpoint, none gives way to it
    },
}
KINDS = {
    "transformer": {"dropout": 0.1, "attention_dropout": 0.1, "token_dropout": 0.1},
    "rnn": {"kind": "rnn", "dropout": 0.1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_after_any_step_it_goes_on_as_if_nothing_had_happened(tmp_path: Path, kind: str) -> None:
    """Byte for byte: weights, optimizer, averages, random states, where it stands, metrics but for times; also after it
    was stopped before."""
    optimizer = {"schedule": "wsd" if kind == "transformer" else "constant"}  # and a decay that is decided on the way
    settings = quick_settings(**EVERYTHING, model=KINDS[kind], optimizer=optimizer)
    run(tmp_path / "straight", settings)
    expected = contents(tmp_path / "straight")
    assert {"weights/averaged_best.safetensors", f"training/step-{N}/average.safetensors"} <= expected.keys()
    stopped, left = tmp_path / "stopped", set[str]()
    for step in range(1, N + 1):  # of one run, that goes on for one step each time, a copy goes on to the end
        with pytest.raises(Stopped, match=f"stopped at step {step}; the run is saved"):
            run(stopped, settings, At(step, send(signal.SIGTERM)))
        resumed = shutil.copytree(stopped, tmp_path / f"resumed-{step}")
        run(resumed, settings)
        left |= {*extra(step)} - expected.keys()
        assert differences(tmp_path / "straight", resumed) == sorted(left), step
    assert json_steps(tmp_path / "straight", "train") == [3, 6, 9, 12]
    epochs = {record["epoch"] for record in metrics.read(tmp_path / "straight/metrics.jsonl") if "epoch" in record}
    assert len(epochs) > 1


def extra(step: int) -> list[str]:
    """The checkpoint that a stop leaves."""
    names = ("average.safetensors", "model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json")
    return [f"training/step-{step}/{name}" for name in names]


def json_steps(path: Path, kind: str) -> list[int]:
    return [record["step"] for record in metrics.read(path / "metrics.jsonl") if record["kind"] == kind]


def test_a_session_of_some_minutes_ends_well_and_goes_on(tmp_path: Path, straight: Path) -> None:
    settings, text = quick_settings(**EVERYTHING), ListCorpus(bundled_pairs(100))
    valid = ListCorpus(bundled_pairs(12, seed=2))
    sessions = []
    while not sessions or not sessions[-1].complete:
        sessions.append(fit(tmp_path / "parts", text, valid, settings, pause_after=1e-6))
    assert len(sessions) == N + 1  # one update each; the last finds that all is done
    assert "minutes of --pause-after are over; the same command goes on" in sessions[0].reason
    left = [name for step in range(1, N) if step % 5 for name in extra(step)]
    assert differences(straight, tmp_path / "parts") == sorted(left)


def test_a_signal_for_a_checkpoint(tmp_path: Path) -> None:
    report = At(3, send(signal.SIGUSR1))
    run(tmp_path / "r", quick_settings(training={"keep": 9}), report)
    assert (tmp_path / "r/training/step-3").is_dir()
    assert "step 3: a checkpoint, as SIGUSR1 asked" in report.said
    run(tmp_path / "straight", quick_settings(training={"keep": 9}))
    assert {name.split("/")[1] for name in differences(tmp_path / "straight", tmp_path / "r")} == {"step-3"}


# ---- batches that give no number


def planted(monkeypatch: pytest.MonkeyPatch, bad: Callable[[int], bool]) -> None:
    """Gradients of some updates become NaN, as a broken sentence or a jump too far would make them."""
    add = PlainGradients.add
    count = iter(range(1, 10_000))

    def spoiled(self: PlainGradients, batch, share):  # type: ignore[no-untyped-def]
        total = add(self, batch, share)
        if bad(next(count)):
            self.flat.gradient[:5] = math.nan
        return total

    monkeypatch.setattr(PlainGradients, "add", spoiled)


@pytest.mark.parametrize("name", ["adam", "schedule_free", "muon"])
def test_a_batch_that_gives_no_number_is_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    planted(monkeypatch, lambda update: update == 5)
    report = At(0, lambda: None)
    seen: list[torch.Tensor] = []
    update, observe = Updater.update, Journal.observe

    def watched(self: Updater, batches, state):  # type: ignore[no-untyped-def]
        before = self.flat.weights.detach().clone()
        made = update(self, batches, state)
        if state.step == 5:
            seen.extend([before, self.flat.weights.detach().clone()])
        return made

    def observed(self: Journal, made, *given):  # type: ignore[no-untyped-def]
        if made.step == 5:
            lines[:] = sorted(self.line_names(made.places))
        observe(self, made, *given)

    lines: list[int] = []
    monkeypatch.setattr(Updater, "update", watched)
    monkeypatch.setattr(Journal, "observe", observed)
    assert run(tmp_path / "r", quick_settings(optimizer={"name": name}), report).step == 8
    assert torch.equal(*seen)
    (record,) = (record for record in metrics.read(tmp_path / "r/metrics.jsonl") if record["kind"] == "skipped")
    assert (record["step"], record["lines"]) == (5, lines)
    (told,) = (text for text in report.said if "the batch was skipped" in text)
    assert told.startswith(f"step 5: loss or gradient is no number; the batch was skipped (lines {lines[0]}, ")
    found, _ = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert found is not None
    assert read_state(found).skipped == 1
    assert all(weight.isfinite().all() for weight in read_tensors(found / "optimizer.safetensors").values())
    assert all(
        math.isfinite(record["loss"]) for record in metrics.read(tmp_path / "r/metrics.jsonl") if "loss" in record
    )


def test_many_in_a_row_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, lambda update: update in (2, 3) or update > 5)
    steps = {"training": {"steps": 40, "max_skipped": 10, "validate_every": 4}}
    with pytest.raises(
        UserError, match="10 batches in a row gave no number, up to step 15; go on from the checkpoint of step 4 with"
    ):
        run(tmp_path / "r", quick_settings(**steps))
    found, complaints = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert found is not None
    assert not complaints
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert all(weight.isfinite().all() for weight in read_tensors(found / name).values())
    load(tmp_path / "r")


def test_a_jump_of_the_loss_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = PlainGradients.add
    monkeypatch.setattr(
        PlainGradients, "add", lambda self, b, share: add(self, b, share) * (3 if next(count) == 10 else 1)
    )
    count = iter(range(1, 100))
    report = At(0, lambda: None)
    run(tmp_path / "r", quick_settings(training={"steps": 12, "log_every": 1}), report)
    assert json_steps(tmp_path / "r", "spike") == [10]
    assert any(text.startswith("step 10: the loss jumped to ") for text in report.said)


# ---- memory


def test_out_of_memory_is_tried_once_in_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add, heights, failed = PlainGradients.add, list[int](), list[int]()

    def scarce(self: PlainGradients, batch, share):  # type: ignore[no-untyped-def]
        heights.append(len(batch.target_out))
        if len(heights) > 2 and heights[-1] > 3 and not failed:
            failed.append(len(heights) - 1)
            self.flat.gradient.fill_(7.0)  # half of a backward pass
            large = torch.zeros(9)
            held.append(weakref.ref(large))
            raise torch.OutOfMemoryError("none left")
        assert not held or held[0]() is None, "the failed attempt still holds its memory"
        return add(self, batch, share)

    held: list[weakref.ref[torch.Tensor]] = []
    settings = quick_settings(model={"dropout": 0.0}, training={"average": 1})
    run(tmp_path / "plenty", settings)
    monkeypatch.setattr(PlainGradients, "add", scarce)
    report = At(0, lambda: None)
    run(tmp_path / "scarce", settings, report)
    assert f"step {failed[0] + 1}: out of memory; trying again in halves" in report.said
    whole, one_half, other_half = heights[failed[0] : failed[0] + 3]
    assert one_half == other_half == -(-whole // 2)
    one, two = (read_tensors(tmp_path / name / "weights/last.safetensors") for name in ("plenty", "scarce"))
    for name in one:
        if not name.endswith("key.bias"):  # whose gradient is nothing but rounding
            torch.testing.assert_close(one[name], two[name], atol=1e-4, rtol=1e-3)

    def none(self: PlainGradients, batch, share):  # type: ignore[no-untyped-def]
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(PlainGradients, "add", none)
    with pytest.raises(UserError, match=r"out of memory at step 1, in halves too; .* with batch.split=4: the same"):
        run(tmp_path / "none", settings)


def test_out_of_memory_beside_the_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*given: object) -> None:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(Validator, "validate", none)
    with pytest.raises(UserError, match=r"out of memory beside the updates, at step 6; let nothing else use this GPU"):
        run(tmp_path / "r", quick_settings(training={"steps": 12, "validate_every": 6}))


@pytest.mark.parametrize("layout", ["buckets", "packed"])
def test_a_batch_in_parts_is_the_same_update(tmp_path: Path, layout: str) -> None:
    for name, parts in (("whole", 1), ("parts", 3)):
        batch = {"layout": layout, "row": 64, "split": parts}
        run(tmp_path / name, quick_settings(model={"dropout": 0.0}, batch=batch, training={"steps": 3}))
    one, two = (read_tensors(tmp_path / name / "weights/last.safetensors") for name in ("whole", "parts"))
    for name in one:
        if not name.endswith("key.bias"):
            torch.testing.assert_close(one[name], two[name], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("free", "expected"), [(30e6, 5120), (1e12, 65_536), (1e6, 1024)])
def test_how_many_tokens_fit(monkeypatch: pytest.MonkeyPatch, free: float, expected: int) -> None:
    """A pretended GPU, on which an update takes 1 MB and 4 kB a slot."""
    from transduce.training.memory import find_budget

    tried: list[int] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(free), int(free)))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 1_000_000 + 4000 * tried[-1])
    for nothing in ("empty_cache", "reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, nothing, lambda: None)
    assert find_budget(tried.append) == expected
    assert tried == [4096, 8192]


def test_tokens_of_a_batch_are_found_once(tmp_path: Path) -> None:
    report = At(0, lambda: None)
    run(tmp_path / "r", quick_settings(batch={"tokens": "auto"}, training={"steps": 2}), report)
    assert "batch.tokens=auto: 4,096, since without a GPU larger batches are no faster" in report.said
    assert read_state(tmp_path / "r/training/step-2").batch_tokens == 4096
    with pytest.raises(UserError, match="batch.tokens=many must be a whole number or auto"):
        quick_settings(batch={"tokens": "many"})


def test_the_largest_batch_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.training.memory import BatchGradients

    class Batch:
        tokens, target_out = 5, torch.zeros(2, 3)

        def split(self, parts: int) -> list:
            raise torch.OutOfMemoryError("none left")

    gradients = PlainGradients.__new__(PlainGradients)
    monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
    taken: list[int] = []  # there is no GPU to take it from
    monkeypatch.setattr(torch, "empty", lambda size, **named: taken.append(size))
    with pytest.raises(
        UserError, match=r"the largest batch \(6 target slots\) does not fit into memory; go on with batch.s"
    ):
        BatchGradients(gradients, 3, "cuda", Report()).try_first(Batch, 123)  # type: ignore[arg-type]
    assert taken == [123]
    BatchGradients(gradients, 3, "cpu", Report()).try_first(Batch, 0)  # type: ignore[arg-type]


class PretendedGPU:
    """A GPU's random generator, whose state is the seed it was given last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        module = getattr(torch, kind)
        self.seed(0)
        monkeypatch.setattr(torch.backends.mps if kind == "mps" else module, "is_available", lambda: True)
        monkeypatch.setattr(module, "get_rng_state", lambda: self.state.clone())
        monkeypatch.setattr(module, "set_rng_state", lambda state: setattr(self, "state", state.clone()))
        monkeypatch.setattr(module, "manual_seed_all" if kind == "cuda" else "manual_seed", self.seed)

    def seed(self, number: int) -> None:
        self.state = torch.tensor([number % 256, 7], dtype=torch.uint8)


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_model_of_the_beginning_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    """It is drawn by the seed that all processes share; their dropout would be one from then on."""
    settings = quick_settings()
    tokenizers = Tokenizers.train(bundled_pairs(), settings.text)
    setup = Setup(RunFolder(tmp_path), Text(settings, tokenizers, None, None), settings, "cpu", Report(), ALONE)  # type: ignore[arg-type]
    gpu = PretendedGPU(monkeypatch, kind)
    torch.manual_seed(123)
    before, on_cpu = gpu.state.clone(), torch.get_rng_state()
    first = setup._model_of_the_beginning()
    assert torch.equal(gpu.state, before)
    assert torch.equal(torch.get_rng_state(), on_cpu)
    again = setup._model_of_the_beginning()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_checkpoint_has_the_random_state_of_a_gpu(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    gpu = PretendedGPU(monkeypatch, kind)
    updater = Updater(new_model(quick_settings().model, 20, 20), quick_settings(), "cpu")
    gpu.seed(99)
    now = checkpoint.snapshot(updater, RunState(), ALONE)
    assert now is not None
    assert now.random[f"{kind}/0"].tolist() == [99, 7]
    gpu.seed(1)
    checkpoint._restore_random(now.random, 1, Path())  # of another process there is none
    assert gpu.state.tolist() == [1, 7]
    checkpoint._restore_random(now.random, 0, Path())
    assert gpu.state.tolist() == [99, 7]


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = Updater.update

    def ruined(self: Updater, batches, state):  # type: ignore[no-untyped-def]
        made = update(self, batches, state)
        if state.step == 8:
            self.flat.weights.data[3] = math.inf
        return made

    monkeypatch.setattr(Updater, "update", ruined)
    with pytest.raises(
        UserError, match="the weights are no longer numbers at step 8; go on from the checkpoint of step 4"
    ):
        run(tmp_path / "r", quick_settings())
    found, _ = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert found is not None
    assert found.name == "step-4"


def test_a_damaged_average_is_passed_over_too(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings(training={"ema": 0.9}))
    path = tmp_path / "r/training/step-8/average.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    found, complaints = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert found is not None
    assert found.name == "step-4"
    assert "average.safetensors was cut short or altered" in complaints[0]


# ---- disks


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Five megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", disk], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("mounting a small disk is not allowed here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_disk_that_fills_up(small_disk: Path, tmp_path: Path) -> None:
    settings = {"model": {"d_model": 64, "d_ff": 128}, "data": {"cache": str(tmp_path / "cache")}}
    here = small_disk / "r"
    run(here, quick_settings(**settings, training={"steps": 4}))
    with pytest.raises(
        UserError, match=r"cannot write .*: No space left on device \(\d.* MB are needed; what was saved"
    ):
        run(here, quick_settings(**settings, training={"steps": 400, "keep": 99, "average": 99}))
    found, complaints = checkpoint.latest(RunFolder(here))
    assert found is not None
    assert not complaints
    load(here)
    for old in list((here / "training").glob("step-*"))[:-1]:
        subprocess.run(["rm", "-r", old], check=True)
    subprocess.run(["rm", "-r", here / "training/weights"], check=True)
    step = read_state(checkpoint.latest(RunFolder(here))[0]).step  # type: ignore[arg-type]
    assert run(here, quick_settings(**settings, training={"steps": step + 4, "keep": 1, "average": 1})).step == step + 4


def test_files_have_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run(tmp_path / "r", quick_settings())
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "r").rglob("*") if path.is_file()}
    assert modes == {0o644}


# ---- kill -9

STAGES = {  # of writing a checkpoint: the function before or after which the process dies
    "before all": ("transduce.training.keeper.Keeper.keep_weights", "before"),
    "kept weights are there": ("transduce.training.keeper.Keeper.keep_weights", "after"),
    "in the middle of the folder": ("transduce.training.checkpoint.write_folder", "before"),
    "before the rename": ("transduce.training.checkpoint.write_folder", "after"),
    "before old ones go": ("transduce.training.checkpoint.flush", "after"),
    "the checkpoint is there": ("transduce.training.checkpoint.write", "after"),
    "before the weights to be used": ("transduce.training.keeper.Keeper.publish", "before"),
    "the weights to be used are there": ("transduce.training.keeper.Keeper.publish", "after"),
    "before unwanted weights go": ("transduce.training.keeper.Keeper._remove_unwanted", "before"),
    "the run is about to end": ("transduce.training.journal.Journal.validated", "after"),
}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody disturbs."""
    path = tmp_path_factory.mktemp("undisturbed") / "straight"
    run(path, quick_settings(**EVERYTHING))
    return path


# At the first, the second and the last checkpoint; the run's own end validates a fourth time, its average.
@pytest.mark.parametrize(
    ("stage", "validation"),
    [*itertools.product(STAGES, [1, 2, 3]), ("the run is about to end", 4)],
)
def test_killed_at_every_stage_of_a_checkpoint(tmp_path: Path, straight: Path, stage: str, validation: int) -> None:
    settings = quick_settings(**EVERYTHING)
    name, when = STAGES[stage]
    child = os.fork()
    if child == 0:  # ends by its own hand
        try:
            owner, _, function = name.rpartition(".")
            module, _, last = owner.rpartition(".")
            place = (
                getattr(sys.modules[module], last)
                if module in sys.modules and last[0].isupper()
                else sys.modules[owner]
            )
            original, times = getattr(place, function), iter(range(1, 99))

            def deadly(*given, **named):  # type: ignore[no-untyped-def]
                if function == "_remove_unwanted" and threading.current_thread() is threading.main_thread():
                    return original(*given, **named)  # of a run's beginning
                now = next(times) == validation
                if now and when == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                found = original(*given, **named)
                if now:
                    os.kill(os.getpid(), signal.SIGKILL)
                return found

            setattr(place, function, deadly)
            run(tmp_path / "killed", settings)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it was not killed"
    run(tmp_path / "killed", settings)
    assert differences(straight, tmp_path / "killed") == []
    assert not list((tmp_path / "killed").rglob("*.part"))


def test_killed_between_two_checkpoints_of_one_step(tmp_path: Path) -> None:
    """A stop saves a step that is saved again at the end: at no moment is there none of them."""
    settings = quick_settings(training={"keep": 1})
    run(tmp_path / "straight", settings)
    run(tmp_path / "r", quick_settings(training={"keep": 1, "steps": 4}))
    os.rename(tmp_path / "r/training/step-4", tmp_path / "r/training/step-4.replaced")
    report = At(0, lambda: None)
    run(tmp_path / "r", settings, report)
    assert "going on from step 4" in report.said
    assert differences(tmp_path / "straight", tmp_path / "r") == []


def test_weights_whose_checkpoint_was_lost_give_way(tmp_path: Path) -> None:
    """Best weights of a step after the checkpoint: the run may go on otherwise, with another rate, and never be there."""
    run(tmp_path / "r", quick_settings(training={"steps": 4}))
    best = (tmp_path / "r/weights/best.safetensors").read_bytes()
    run(tmp_path / "other", quick_settings(training={"steps": 4, "seed": 5}))
    other = (tmp_path / "other/weights/best.safetensors").read_bytes()
    write_folder(tmp_path / "r", dict.fromkeys(["weights/best.safetensors", MODEL], other))
    run(tmp_path / "r", quick_settings(training={"steps": 4}))
    assert (tmp_path / "r/weights/best.safetensors").read_bytes() == best != other

    # Killed between the renames of one writing: the weights are there already, the manifest speaks of those before.
    manifest = tmp_path / "r/manifest.json"
    manifest.write_text(
        manifest.read_text().replace(hashlib.sha256(best).hexdigest(), hashlib.sha256(other).hexdigest())
    )
    run(tmp_path / "r", quick_settings(training={"steps": 4}))
    verify(tmp_path / "r", ["weights/best.safetensors", MODEL])


def test_a_checkpoint_that_does_not_say_what_it_was_validated_on(tmp_path: Path) -> None:
    """Of an older version."""
    here = tmp_path / "r"
    run(here, quick_settings(training={"steps": 4}))
    state = json.loads((here / "training/step-4/state.json").read_text())
    del state["valid_data"]
    write_folder(here / "training/step-4", {"state.json": json.dumps(state).encode()})
    assert run(here, quick_settings(training={"steps": 6})).step == 6


def test_a_stop_in_the_last_validation_is_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    validate, times = Validator.validate, iter(range(1, 99))

    def interrupted(self: Validator, model):  # type: ignore[no-untyped-def]
        if next(times) == 2:  # at step 8
            send(signal.SIGTERM)()
        return validate(self, model)

    monkeypatch.setattr(Validator, "validate", interrupted)
    with pytest.raises(Stopped, match="stopped at step 8"):
        run(tmp_path / "r", quick_settings(training={"steps": 8, "validate_every": 4}))


def test_killed_while_the_vocabulary_is_written(tmp_path: Path) -> None:
    from transduce.cli import main

    (tmp_path / "r").mkdir()
    (tmp_path / "r/tokenizer.model.part").write_text("half of")
    for side, end in enumerate(("de", "en")):
        (tmp_path / f"t.{end}").write_text("".join(f"{pair[side]}\n" for pair in bundled_pairs(100)), encoding="utf-8")
    text = ["--source", str(tmp_path / "t.de"), "--target", str(tmp_path / "t.en")]
    quick = "--preset tiny --text.vocabulary 300 --training.steps 2 --training.bleu_lines 0 --training.device cpu"
    assert main(["train", str(tmp_path / "r"), *text, *quick.split()]) == 0


def test_killed_while_writing(tmp_path: Path) -> None:
    """A few of the kills of `make chaos`."""
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "chaos.py", "--kills", "3", "--steps", "60"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kills in " in done.stdout


def test_what_others_put_into_the_folder_is_left_alone(tmp_path: Path) -> None:
    here = tmp_path / "r"
    run(here, quick_settings(training={"steps": 4}))
    for name in ("step-abc", "step-4-backup"):
        (here / "training" / name).mkdir()
    (here / "training/step-9").write_text("a file")
    (here / "training/weights/step-abc.safetensors").write_text("x")
    with (here / "metrics.jsonl").open("a") as stream:
        stream.write(
            '{"kind": "train", "step": 2, "seconds": 1}\n{"kind": "train", "step": "x", "seconds": 1, "loss": 1}\n'
        )
    assert run(here, quick_settings()).step == 8
    assert (here / "training/step-4-backup").is_dir()


def test_no_signal_for_a_checkpoint_ends_a_run_that_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGUSR1 ends a process that does not handle it."""
    resume = Keeper.resume
    monkeypatch.setattr(Keeper, "resume", lambda *given: (send(signal.SIGUSR1)(), resume(*given))[1])
    assert run(tmp_path / "r", quick_settings()).step == 8


# ---- averages


def test_averages_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transduce.cli import main

    here = tmp_path / "r"
    settings = {"steps": 12, "validate_every": 2, "average": 2, "keep_best": 3, "bleu_lines": 0}
    run(here, quick_settings(training=settings))
    kept = RunFolder(here).kept_weights()
    state = read_state(here / "training/step-12")
    by_loss = [step for step, _, _ in sorted(state.validations, key=lambda found: found[1] or 0.0)]
    assert state.best_steps() == by_loss
    assert set(kept) == {10, 12, *by_loss[:3]}
    steps = [str(step) for step in sorted(kept)[-2:]]
    assert main(["average", str(here), "--last", "2", "--output", str(tmp_path / "last")]) == 0
    assert main(["average", str(here), "--best", "3", "--output", str(tmp_path / "best")]) == 0
    chosen = ["--steps", steps[0], "--steps", steps[1]]
    assert main(["average", str(here), *chosen, "--output", str(tmp_path / "steps")]) == 0
    for name, ours in (("last", "averaged"), ("best", "averaged_best"), ("steps", "averaged")):
        one = read_tensors(tmp_path / name / "model.safetensors")
        two = read_tensors(here / f"weights/{ours}.safetensors")
        assert all(torch.equal(one[weight], two[weight]) for weight in one), name
        load(tmp_path / name)
    capsys.readouterr()
    for words, told in (
        (["--last", "9"], "keeps weights of"),
        (["--best", "1"], "an average needs the weights of at least two steps"),
        (["--steps", "12", "--steps", "99"], "step 99 is not kept, or named twice; kept are"),
        (["--steps", "12", "--steps", "12"], "step 12 is not kept, or named twice; kept are"),
        ([], "say which weights: one of --last N, --best N and --steps N"),
    ):
        assert main(["average", str(here), *words, "--output", str(tmp_path / "x")]) == 2
        assert told in capsys.readouterr().err.replace("\n", " ")
    assert main(["average", str(here), "--last", "2", "--output", str(tmp_path / "last")]) == 2
    assert "is there already; choose another --output" in capsys.readouterr().err.replace("\n", " ")


def test_the_moving_average_is_the_formula(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []
    update = Updater.update

    def watched(self: Updater, batches, state):  # type: ignore[no-untyped-def]
        if not seen:
            seen.append(self.flat.weights.detach().clone())
        made = update(self, batches, state)
        seen.append(self.flat.weights.detach().clone())
        updaters.append(self)
        return made

    updaters: list[Updater] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Updater, "update", watched)
        run(tmp_path / "r", quick_settings(training={"ema": 0.5, "steps": 6, "validate_every": 6, "average": 1}))
    mean = seen[0]
    for step, weights in enumerate(seen[1:], 1):
        decay = min(0.5, (1 + step) / (10 + step))
        mean = decay * mean + (1 - decay) * weights
    average = updaters[0].average
    assert average is not None
    torch.testing.assert_close(average.weights, mean)
    model = read_tensors(tmp_path / "r/model.safetensors")  # it is what is used
    for name, weight in updaters[0].flat.by_name(average.weights).items():
        assert torch.equal(model[name], weight)


# ---- TensorBoard


def test_the_same_numbers_for_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(tmp_path / "r", quick_settings(training={"tensorboard": True}))
    events = loading.EventAccumulator(str(tmp_path / "r/tensorboard"))
    events.Reload()
    shown = {event.step: event.value for event in events.Scalars("train/loss")}
    written = {r["step"]: r["loss"] for r in metrics.read(tmp_path / "r/metrics.jsonl") if r["kind"] == "train"}
    assert shown == pytest.approx(written)
    assert "valid/bleu" in events.Tags()["scalars"]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match="training.tensorboard=true needs TensorBoard: pip install 'transduce\\[tens"):
        run(tmp_path / "none", quick_settings(training={"tensorboard": True}))
