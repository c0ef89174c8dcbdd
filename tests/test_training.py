"""Training: loss and schedules are the formulas, batches add up, runs resume, saved states are whole."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import Notes, bundled_pairs, quick_settings, small_model

from transduce.core import schedule
from transduce.core.loss import cross_entropy
from transduce.core.special import PAD
from transduce.data.corpus import ListCorpus
from transduce.errors import ModelError, SettingsError, Stopped, UserError
from transduce.files import metrics
from transduce.files.lock import locked
from transduce.files.manifest import write_folder
from transduce.files.run_folder import RunFolder
from transduce.inspect.curve import curve_at_the_end
from transduce.inspect.plots import learning_curve
from transduce.models.load import load
from transduce.models.weights import read_tensors, restore, weights_of
from transduce.report import Progress, Report
from transduce.settings.sections import OptimizerSettings, Settings
from transduce.training import checkpoint, trainer
from transduce.training.setup import fit
from transduce.training.validation import Validation

ROOT = Path(__file__).parent.parent


def run(path: Path, settings: Settings, pairs: int = 150, report: Report | None = None) -> trainer.Outcome:
    validation = ListCorpus(bundled_pairs(20, seed=2))
    return fit(path, ListCorpus(bundled_pairs(pairs)), validation, settings, report or Report())


def weights(path: Path) -> dict[str, torch.Tensor]:
    return read_tensors(path)


# ---- formulas


def test_label_smoothing_is_the_formula() -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(2, 3, 7), torch.tensor([[4, 5, PAD], [6, PAD, PAD]])
    loss = cross_entropy(logits, target, 0.1)
    expected = 0.0
    for r, t in ((0, 0), (0, 1), (1, 0)):
        log_p = logits[r, t].log_softmax(-1)
        expected -= sum((0.1 / 7 + (0.9 if k == target[r, t] else 0.0)) * float(log_p[k]) for k in range(7))
    assert float(loss.total) == pytest.approx(expected, rel=1e-5)
    assert int(loss.tokens) == 3


def test_schedules() -> None:
    assert schedule.noam(100, 512, 4000) == pytest.approx(512**-0.5 * 100 * 4000**-1.5)
    assert schedule.noam(9000, 512, 4000, 2.0) == pytest.approx(2 * 512**-0.5 * 9000**-0.5)
    peak = schedule.noam(4000, 512, 4000)
    assert schedule.inverse_sqrt(9000, peak, 4000) == pytest.approx(schedule.noam(9000, 512, 4000))
    assert schedule.cosine(10, 1.0, 20, 100) == 0.5
    assert schedule.cosine(60, 1.0, 20, 100) == pytest.approx(0.5)
    assert schedule.cosine(100, 1.0, 20, 100) == pytest.approx(0.0, abs=1e-12)
    assert schedule.constant(5, 1.0, 10) == 0.5
    assert schedule.constant(500, 1.0, 10) == 1.0
    for name in ("noam", "inverse_sqrt", "cosine", "constant"):
        o = OptimizerSettings(schedule=name, warmup=10)  # type: ignore[arg-type]
        rates = [schedule.learning_rate(step, o, 64, 100) for step in range(1, 11)]
        assert rates == sorted(rates), name
        assert rates[0] == pytest.approx(rates[-1] / 10), name


# ---- updates


def test_accumulated_batches_equal_one_large_batch(tmp_path: Path) -> None:
    """Four batches of different token counts, summed, against the same sentences in one."""
    model = {"dropout": 0.0}
    found = {}
    for name, tokens, accumulate in (("small", 96, 4), ("large", 4096, 1)):
        batch = {"tokens": tokens, "accumulate": accumulate}
        settings = quick_settings(model=model, batch=batch, training={"steps": 1, "epochs": None})
        run(tmp_path / name, settings, pairs=20)
        found[name] = weights(tmp_path / name / "weights" / "last.safetensors")
    used = [json.loads((tmp_path / name / "training/step-1/state.json").read_text()) for name in found]
    assert used[0]["target_tokens"] == used[1]["target_tokens"]
    assert (used[0]["batch"], used[1]["batch"]) == (4, 1)
    for name, weight in found["small"].items():
        if name.endswith("key.bias"):
            continue  # adds the same to every score: its gradient is nothing but rounding, which Adam blows up
        torch.testing.assert_close(weight, found["large"][name], atol=2e-5, rtol=1e-3, msg=name)


def test_clipping_and_weight_decay_change_the_update(tmp_path: Path) -> None:
    one = {"training": {"steps": 3}}
    run(tmp_path / "a", quick_settings(**one))
    run(tmp_path / "b", quick_settings(**one, optimizer={"clip": 1e-4}))
    run(tmp_path / "c", quick_settings(**one, optimizer={"name": "adamw", "weight_decay": 0.5}))
    a, b, c = (weights(tmp_path / name / "weights" / "last.safetensors") for name in "abc")
    name = "encoder.0.feed_forward.inner.weight"
    assert not torch.equal(a[name], b[name])
    assert not torch.equal(a[name], c[name])


def test_it_learns_to_reverse(tmp_path: Path) -> None:
    """Digits backwards: solved after a few hundred steps, and not by luck."""
    import random

    rng = random.Random(0)
    texts = {" ".join(rng.choices("0123456789", k=rng.randint(3, 4))) for _ in range(2500)}
    pairs = [(text, text[::-1]) for text in sorted(texts)]
    rng.shuffle(pairs)
    settings = quick_settings(
        model={"d_model": 48, "d_ff": 96, "heads": 4, "norm": "before", "dropout": 0.0, "layers": 2},
        text={"tokenizer": "words"},
        batch={"tokens": 500},
        optimizer={"rate": 5e-3, "warmup": 50, "clip": 1.0, "schedule": "cosine"},
        training={"steps": 300, "validate_every": 300, "bleu_lines": 100},
    )
    outcome = fit(tmp_path / "r", ListCorpus(pairs[100:]), ListCorpus(pairs[:100]), settings)
    assert outcome.score is not None
    assert outcome.score > 95


# ---- limits, best weights, averages


def test_stopping_by_epochs_minutes_and_patience(tmp_path: Path) -> None:
    by_epochs = run(tmp_path / "e", quick_settings(training={"steps": None, "epochs": 2}))
    assert by_epochs.reason == "all 2 epochs done"
    batches = by_epochs.step
    assert batches % 2 == 0
    by_time = run(tmp_path / "m", quick_settings(training={"steps": None, "minutes": 0.005}))
    assert by_time.reason == "0.005 minutes are over"
    bad = {"training": {"steps": 100, "patience": 2, "validate_every": 1}, "optimizer": {"rate": 1e-9}}
    impatient = run(tmp_path / "p", quick_settings(**bad))
    assert impatient.reason == "no better validation in the last 2"
    assert impatient.step < 20


def test_averaged_weights_are_the_mean_of_the_last(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings(training={"steps": 10, "validate_every": 2, "average": 3}))
    kept = sorted((tmp_path / "r/training/weights").glob("step-*"))
    assert [path.stem for path in kept] == ["step-10", "step-6", "step-8"]
    mean = weights(tmp_path / "r/weights/averaged.safetensors")
    for name, value in mean.items():
        expected = torch.stack([weights(path)[name] for path in kept]).double().mean(0).float()
        torch.testing.assert_close(value, expected, atol=1e-7, rtol=0)
    assert sorted(path.name for path in (tmp_path / "r/training").glob("step-*")) == ["step-10", "step-8"]


def test_the_best_weights_become_the_model(tmp_path: Path) -> None:
    settings = quick_settings(training={"steps": 12, "validate_every": 3, "bleu_lines": 0, "average": 1})
    outcome = run(tmp_path / "r", settings)
    records = metrics.read(tmp_path / "r/metrics.jsonl")
    best = min((r for r in records if r["kind"] == "valid"), key=lambda r: r["loss"])
    assert outcome.chosen == "best"
    assert outcome.score is None
    chosen = (tmp_path / "r/model.safetensors").read_bytes()
    assert chosen == (tmp_path / "r/weights/best.safetensors").read_bytes()
    if best["step"] == 12:
        assert chosen == (tmp_path / "r/weights/last.safetensors").read_bytes()


def test_without_validation_the_last_weights_are_the_model(tmp_path: Path) -> None:
    settings = quick_settings(data={"hold_out": 0}, training={"steps": 6, "validate_every": 2})
    with pytest.raises(Stopped):
        fit(tmp_path / "r", ListCorpus(bundled_pairs(30)), None, settings, Kill(signal.SIGINT))
    load(tmp_path / "r")  # a model from the first checkpoint on
    outcome = fit(tmp_path / "r", ListCorpus(bundled_pairs(30)), None, settings)
    assert outcome.chosen == "last"


# ---- resuming


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    """Across an epoch's end, with dropout, accumulation and subword sampling; weights and metrics."""
    text = {"sampling": 0.1}
    common = {"text": text, "batch": {"tokens": 256, "accumulate": 2}}

    def settings(steps: int) -> Settings:
        return quick_settings(**common, training={"steps": steps, "validate_every": 7, "log_every": 1})

    run(tmp_path / "straight", settings(13))
    run(tmp_path / "halves", settings(6))
    run(tmp_path / "halves", settings(13))
    one, two = (weights(tmp_path / name / "weights/last.safetensors") for name in ("straight", "halves"))
    for name in one:
        assert torch.equal(one[name], two[name]), name

    def losses(name: str) -> dict[int, float]:
        return {r["step"]: r["loss"] for r in metrics.read(tmp_path / name / "metrics.jsonl") if r["kind"] == "train"}

    assert losses("straight") == losses("halves")


def test_a_damaged_checkpoint_is_passed_over_and_written_again(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings())
    straight = (tmp_path / "r/training/step-8/model.safetensors").read_bytes()
    (tmp_path / "r/training/step-8/model.safetensors").write_bytes(b"x")
    (tmp_path / "r/training/step-99.part").mkdir()
    found, complaints = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert found is not None
    assert found.name == "step-4"
    assert "model.safetensors was cut short or altered" in complaints[0]
    assert run(tmp_path / "r", quick_settings()).step == 8
    assert (tmp_path / "r/training/step-8/model.safetensors").read_bytes() == straight


def test_damaged_weights_are_left_out_of_the_average(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings(training={"steps": 6, "validate_every": 2}))
    kept = tmp_path / "r/training/weights"
    (kept / "step-2.safetensors").write_bytes(b"x")
    run(tmp_path / "r", quick_settings(training={"steps": 6, "validate_every": 2}))  # concludes again
    mean = weights(tmp_path / "r/weights/averaged.safetensors")
    name = "encoder.0.feed_forward.inner.weight"
    expected = (weights(kept / "step-4.safetensors")[name] + weights(kept / "step-6.safetensors")[name]) / 2
    torch.testing.assert_close(mean[name], expected)


def test_a_stop_does_not_change_the_average(tmp_path: Path) -> None:
    run(tmp_path / "straight", quick_settings())
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", quick_settings(), report=Kill(signal.SIGINT))
    run(tmp_path / "stopped", quick_settings())
    one, two = ((tmp_path / name / "weights/averaged.safetensors").read_bytes() for name in ("straight", "stopped"))
    assert one == two


def test_other_text_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings())
    with pytest.raises(UserError, match="r was trained on other text, or with other filters, than is given now"):
        run(tmp_path / "r", quick_settings(training={"steps": 9}), pairs=140)


@pytest.mark.parametrize("gone", ["training", "training/step-*"])
def test_a_model_without_checkpoint_is_not_written_over(tmp_path: Path, gone: str) -> None:
    run(tmp_path / "r", quick_settings())
    for path in (tmp_path / "r").glob(gone):
        shutil.rmtree(path)
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    with pytest.raises(
        ModelError, match="holds a model but no checkpoint to go on from, and training would replace it"
    ):
        run(tmp_path / "r", quick_settings(text={"vocabulary": 120}))
    assert before == {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}


def test_other_validation_text_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings())
    other = ListCorpus(bundled_pairs(20, seed=5))
    with pytest.raises(UserError, match="r was validated on other text, or with other filters, than is given now"):
        fit(tmp_path / "r", ListCorpus(bundled_pairs(150)), other, quick_settings(training={"steps": 9}))


def test_a_validation_does_not_change_the_losses(tmp_path: Path) -> None:
    """A line of metrics.jsonl is the mean since the line before, whether or not there was a validation in between."""
    losses = []
    for every in (100, 4):
        here = tmp_path / str(every)
        run(here, quick_settings(training={"steps": 9, "log_every": 3, "validate_every": every}))
        records = metrics.read(here / "metrics.jsonl")
        losses.append([(record["step"], record["loss"]) for record in records if record["kind"] == "train"])
    assert losses[0] == losses[1]
    assert [step for step, _ in losses[0]] == [3, 6, 9]


def test_one_folder_takes_one_training(tmp_path: Path) -> None:
    with locked(tmp_path / "r"), pytest.raises(UserError, match="another process is training in .*r; wait until"):
        run(tmp_path / "r", quick_settings())
    run(tmp_path / "r", quick_settings())


def test_lines_that_a_resumed_run_writes_again_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for kind, step in (("train", 10), ("valid", 10), ("train", 14), ("valid", 14), ("averaged", 14), ("finished", 14)):
        metrics.append(path, {"kind": kind, "step": step, "seconds": 1.0, "loss": 1.0, "rate": 0.1})
    metrics.forget_after(path, 14, validated=10)
    assert [(r["kind"], r["step"]) for r in metrics.read(path)] == [("train", 10), ("valid", 10), ("train", 14)]


def test_a_finished_run_restores_its_model(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings())
    whole = (tmp_path / "r/model.safetensors").read_bytes()
    (tmp_path / "r/model.safetensors").unlink()
    run(tmp_path / "r", quick_settings())
    assert (tmp_path / "r/model.safetensors").read_bytes() == whole
    load(tmp_path / "r")


def test_a_damaged_tokenizer_is_not_blessed(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings(text={"tokenizer": "words"}))
    with (tmp_path / "r/tokenizer.txt").open("a") as stream:
        stream.write("\nmore")
    with pytest.raises(ModelError, match=r"tokenizer.txt was cut short or altered"):
        run(tmp_path / "r", quick_settings(text={"tokenizer": "words"}))


def test_better_is_by_bleu_then_by_loss() -> None:
    v = Validation
    assert v(1.0, 5.0).better_than(None)
    assert v(2.0, 6.0).better_than(v(1.0, 5.0))
    assert v(0.9, 5.0).better_than(v(1.0, 5.0))
    assert not v(1.0, 5.0).better_than(v(1.0, 5.0))
    assert v(0.9, None).better_than(v(1.0, 5.0))


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    run(tmp_path / "r", quick_settings())
    with pytest.raises(
        UserError, match=r"10 batches in a row gave no number, up to step 1\d; go on from the checkpoint of step 8"
    ):
        run(tmp_path / "r", quick_settings(training={"steps": 50}, optimizer={"rate": 1e30}))
    found, _ = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert found is not None
    assert all(weight.isfinite().all() for weight in weights(found / "model.safetensors").values())


def test_a_checkpoint_of_an_older_version(tmp_path: Path) -> None:
    """It says less about where it stands."""
    run(tmp_path / "r", quick_settings(training={"steps": 4}))
    path = tmp_path / "r/training/step-4"
    state = json.loads((path / "state.json").read_text())
    del state["rate_squares"], state["layout"]
    write_folder(path, {"state.json": json.dumps(state).encode()})
    assert run(tmp_path / "r", quick_settings(training={"steps": 6})).step == 6


def test_the_layout_stays_that_of_the_run(tmp_path: Path) -> None:
    """`auto` depends on the device, but a run that goes on elsewhere counts batches as it did."""
    run(tmp_path / "r", quick_settings(batch={"layout": "packed", "row": 64}, training={"steps": 4}))
    run(tmp_path / "r", quick_settings(batch={"layout": "auto", "row": 64}, training={"steps": 6}))
    assert json.loads((tmp_path / "r/training/step-6/state.json").read_text())["layout"] == "packed"
    run(tmp_path / "new", quick_settings(batch={"layout": "auto"}, training={"steps": 2}))
    assert json.loads((tmp_path / "new/training/step-2/state.json").read_text())["layout"] == "buckets"


def test_lower_case_models_are_scored_without_case(tmp_path: Path) -> None:
    settings = quick_settings(text={"lowercase": True}, training={"steps": 2, "validate_every": 2})
    pairs = [(source.upper(), target.upper()) for source, target in bundled_pairs(60)]
    fit(tmp_path / "r", ListCorpus(pairs), ListCorpus(pairs[:10]), settings)
    from transduce.commands.evaluate import evaluate

    for name, side in (("a", 0), ("b", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs[:10]), encoding="utf-8")
    found = evaluate(tmp_path / "r", source=str(tmp_path / "a"), reference=str(tmp_path / "b"), device="cpu", json=True)
    assert isinstance(found, dict)
    assert "case:lc" in found["scores"]["BLEU"]["signature"]


def test_a_run_goes_on_only_as_what_it_is(tmp_path: Path) -> None:
    from transduce.training.resolve import resolve

    run(tmp_path / "r", quick_settings(training={"steps": 2}))
    assert resolve(tmp_path / "r", None, None, {"training": {"steps": 5}}).training.steps == 5
    assert resolve(tmp_path / "r", None, None, {"data": {"source": "moved.de"}}).data.source == "moved.de"
    with pytest.raises(SettingsError, match=r"was started with model.layers=1, not 3; leave that out"):
        resolve(tmp_path / "r", None, None, {"model": {"layers": 3}})
    with pytest.raises(SettingsError, match=r"was started with optimizer.name=adam, not muon"):
        resolve(tmp_path / "r", None, None, {"optimizer": {"name": "muon"}})
    assert resolve(tmp_path / "r", None, None, {"optimizer": {"name": "adamw"}}).optimizer.name == "adamw"
    more = resolve(tmp_path / "r", None, None, {"training": {"steps": 4}, "model": {"dropout": 0.5}})
    assert isinstance(more, Settings)
    run(tmp_path / "r", more)  # who goes longer through the same text needs more of it
    assert "dropout: 0.5" in (tmp_path / "r/config.yaml").read_text()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("x")
    with pytest.raises(SettingsError, match="other exists and is not a run folder; choose another name"):
        resolve(tmp_path / "other", None, None, {})


# ---- faults


class Kill(Report):
    """Sends a signal at a step, as Ctrl-C or a scheduler would."""

    def __init__(self, number: int) -> None:
        self.number = number

    def progress(self, title: str, total: float | None = None):  # type: ignore[override, no-untyped-def]
        from contextlib import nullcontext

        class Bar(Progress):
            def update(bar, done: float, **facts: str) -> None:  # noqa: N805
                if facts.get("step") == "3":
                    os.kill(os.getpid(), self.number)

        return nullcontext(Bar())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_saves(tmp_path: Path, number: int) -> None:
    with pytest.raises(Stopped, match="stopped at step 3; the run is saved") as caught:
        run(tmp_path / "r", quick_settings(), report=Kill(number))
    assert caught.value.signal == number
    found, _ = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert found is not None
    assert found.name == "step-3"
    assert load(tmp_path / "r").model is not None  # what it has learned so far can be used
    assert run(tmp_path / "r", quick_settings()).step == 8


def test_a_stop_before_the_first_validation_changes_nothing_in_the_end(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", quick_settings(), report=Kill(signal.SIGINT))
    outcomes = [run(tmp_path / name, quick_settings()) for name in ("stopped", "straight")]
    assert outcomes[0].score == outcomes[1].score
    for name in ("model.safetensors", "weights/last.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("second", ["SIGINT", "SIGTERM"])
def test_a_second_signal_ends_it_at_once(first: str, second: str) -> None:
    program = f"""
import os, signal, time
from transduce.signals import catch_signals
from transduce.training.writer import Writer
with catch_signals() as noted:
    writer = Writer()
    writer.begin(lambda: time.sleep(60))  # a slow disk, which must not be waited for
    os.kill(os.getpid(), signal.{first})
    assert noted.stop == signal.{first}
    os.kill(os.getpid(), signal.{second})
    writer.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=50, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 128 + getattr(signal, second)


def test_a_full_disk_leaves_the_old_checkpoint_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "r", quick_settings(training={"steps": 4}))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            UserError, match=r"cannot write .*: No space left on device \(.* MB are needed; what was saved"
        ):
            run(tmp_path / "r", quick_settings(training={"steps": 8}))
    found, complaints = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert found is not None
    assert (found.name, complaints) == ("step-4", [])
    load(tmp_path / "r")
    assert run(tmp_path / "r", quick_settings(training={"steps": 8})).step == 8


def test_everything_filtered_out(tmp_path: Path) -> None:
    settings = quick_settings(data={"max_tokens": 2})
    with pytest.raises(
        UserError, match=r"every pair of the given pairs was left out \(0 of 150 pairs kept .*150 too long"
    ):
        run(tmp_path / "r", settings)
    assert run(tmp_path / "r", quick_settings()).step == 8  # nothing is frozen before there is a checkpoint


# ---- what is watched


def test_a_run_that_is_refused_keeps_its_curve(tmp_path: Path) -> None:
    run, notes = tmp_path / "r", Notes()
    run.mkdir()
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(SettingsError), curve_at_the_end(run, notes):
        raise SettingsError("refused")
    assert notes.said == []
    with pytest.raises(SettingsError), curve_at_the_end(run, notes):
        (run / "metrics.jsonl").write_text("{}\n")
        raise SettingsError("refused later")
    assert len(notes.said) == 1


def test_metrics_and_curve(tmp_path: Path) -> None:
    with curve_at_the_end(tmp_path / "r", Report()):
        run(tmp_path / "r", quick_settings())
    records = metrics.read(tmp_path / "r/metrics.jsonl")
    train = [r for r in records if r["kind"] == "train"]
    assert [r["step"] for r in train] == [2, 4, 6, 8]
    assert {"loss", "rate", "gradient", "tokens_per_second", "target_tokens", "epoch", "seconds"} <= train[0].keys()
    valid = [r for r in records if r["kind"] == "valid"]
    assert [r["step"] for r in valid] == [4, 8]
    assert valid[0]["perplexity"] == pytest.approx(math.exp(valid[0]["loss"]))
    assert (tmp_path / "r/curve.png").read_bytes().startswith(b"\x89PNG")
    learning_curve(tmp_path / "r", tmp_path / "c.svg")
    assert "validation BLEU" in (tmp_path / "c.svg").read_text() or (tmp_path / "c.svg").stat().st_size > 5000
    with (tmp_path / "r/metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "tra')
    assert len(metrics.read(tmp_path / "r/metrics.jsonl")) == len(records)
    with pytest.raises(UserError, match="has no metrics.jsonl: nothing has been trained there yet"):
        learning_curve(tmp_path, tmp_path / "x.png")
    with pytest.raises(UserError, match="cannot draw .*x.nothing: end its name in .png, .svg or .pdf"):
        learning_curve(tmp_path / "r", tmp_path / "x.nothing")
    (tmp_path / "r/metrics.jsonl").write_bytes(b'5\n{"step": 1}\n\xff')
    with pytest.raises(UserError, match="metrics.jsonl is empty: nothing has been trained there yet"):
        learning_curve(tmp_path / "r", tmp_path / "x.png")


def test_a_checkpoint_of_another_shape(tmp_path: Path) -> None:
    one, two = small_model(), small_model(d_ff=41)
    with pytest.raises(ModelError, match=r"does not fit config.yaml: encoder.0.feed_forward.inner.weight has shape"):
        restore(two, weights_of(one), tmp_path)
    some = {name: weight for name, weight in weights_of(one).items() if "projection" not in name}
    with pytest.raises(ModelError, match="does not fit config.yaml: source.tokens.weight is on one side only"):
        restore(one, {k: v for k, v in some.items() if k != "source.tokens.weight"}, tmp_path)
