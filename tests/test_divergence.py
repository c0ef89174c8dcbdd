"""When a run is taken for diverged: never for what is logged, for text that is noisy, or for other dropout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Notes, bundled_pairs, quick_settings

from transduce.data.corpus import ListCorpus
from transduce.files import metrics
from transduce.files.run_folder import RunFolder
from transduce.settings.compose import compose
from transduce.settings.sections import ModelSettings
from transduce.training import checkpoint, divergence
from transduce.training.divergence import LossWindow, has_diverged, loss_conditions
from transduce.training.setup import fit
from transduce.training.state import RunState, read_state
from transduce.training.updater import Update


def watch(state: RunState, losses: np.ndarray, tokens: int) -> int | None:
    """The step at which a run with these mean losses a batch, each of so many tokens, is taken for diverged."""
    window, good = LossWindow(), torch.tensor(0.0)
    window.resume(state)
    for loss in losses:
        state.step += 1
        window.observe(Update(state.step, torch.tensor(loss * tokens), tokens, 1e-3, good, good, np.empty(0)), state)
        if has_diverged(state):
            return state.step
    return None


@pytest.mark.parametrize("tokens", [5, 40, 500])
def test_noisy_losses_of_small_batches_are_no_divergence(tokens: int) -> None:
    """A token's loss varies by some 2.5 nats, so that of one short sentence may be thrice another's."""
    draw = np.random.default_rng(tokens)
    falling = 2 + 5 * np.exp(-np.arange(6000) / 800)
    losses = falling + 2.5 * draw.standard_normal(6000) / np.sqrt(tokens)
    assert watch(RunState(), losses, tokens) is None
    losses[3000:] += 1.5
    assert 3000 < (watch(RunState(), losses, tokens) or 0) < 3000 + 3 * max(50, 2000 // tokens + 50)


def test_a_window_goes_on_after_a_stop_where_it_was() -> None:
    losses = np.random.default_rng(1).uniform(2, 6, 180)
    whole, stopped, window = RunState(), RunState(), LossWindow()
    watch(whole, losses, 100)
    good = torch.tensor(0.0)
    for place, loss in enumerate(losses):
        if place in (33, 130):  # what a checkpoint keeps is all that the next session knows
            window.note(stopped)
            window = LossWindow()
            window.resume(stopped)
        stopped.step += 1
        window.observe(Update(stopped.step, torch.tensor(loss * 100), 100, 1e-3, good, good, np.empty(0)), stopped)
    assert stopped.comparable_loss == pytest.approx(whole.comparable_loss, rel=1e-6)
    assert stopped.window_begin == whole.window_begin == 150


def test_skipped_updates_are_not_judged() -> None:
    state, window = RunState(), LossWindow()
    for step in range(1, 121):
        state.step, bad = step, torch.tensor(float(step > 20))
        window.observe(Update(step, torch.tensor(300.0), 100, 1e-3, bad, bad, np.empty(0)), state)
    assert state.comparable_loss == pytest.approx(3.0)
    assert (state.window_begin, state.worse_windows) == (50, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (loss_conditions(ModelSettings(dropout=0.1), None), loss_conditions(ModelSettings(dropout=0.3), None)),
        (loss_conditions(ModelSettings(), None), loss_conditions(ModelSettings(attention_dropout=0.2), None)),
        (loss_conditions(ModelSettings(), torch.bfloat16), loss_conditions(ModelSettings(), None)),
        ("", loss_conditions(ModelSettings(), None)),  # a checkpoint of an older version, whose verdict may be wrong
    ],
)
def test_other_dropout_or_precision_is_judged_anew(before: str, after: str) -> None:
    state = RunState(step=110, data="a", loss_conditions=before, comparable_loss=2.0, lowest_loss=2.0, calm=0.04)
    state.worse_windows, state.window_begin, state.window_total, state.window_tokens = 1, 100, 20_000.0, 5_000
    state.go_on_as(RunState(data="a", loss_conditions=after))
    assert (state.comparable_loss, state.worse_windows, state.calm) == (None, 0, 1.0)
    assert (state.window_begin, state.window_total, state.window_tokens) == (110, 0.0, 0)
    assert state.lowest_loss == 2.0  # it has learned that all the same
    assert watch(state, np.full(300, 3.0), 500) is None
    assert watch(state, np.full(300, 9.0), 500) == 510


def test_the_same_conditions_change_nothing() -> None:
    state = RunState(step=110, data="a", loss_conditions="x", comparable_loss=2.0, worse_windows=1, calm=0.2)
    state.go_on_as(RunState(data="a", loss_conditions="x"))
    assert (state.comparable_loss, state.worse_windows, state.calm) == (2.0, 1, 0.2)


def test_a_run_goes_on_with_more_dropout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learned nearly by heart without any; with much of it the loss is several times as high, and falls from there."""
    monkeypatch.setattr(divergence, "WINDOW_UPDATES", 10)
    text = ListCorpus(bundled_pairs(40))
    plain = quick_settings(training={"steps": 160, "validate_every": 80}, model={"dropout": 0.0})
    fit(tmp_path / "r", text, None, plain)
    more = compose({"model": {"dropout": 0.6}, "training": {"steps": 260}}, base=plain)
    notes = Notes()
    fit(tmp_path / "r", text, None, more, notes)
    assert not any("diverges" in words for words in notes.said)
    losses = {
        line["step"]: line["loss"]
        for line in metrics.read(RunFolder(tmp_path / "r").metrics)
        if line["kind"] == "train"
    }
    at_least = max(divergence.WORSE * losses[160], losses[160] + divergence.AT_LEAST)
    assert min(loss for step, loss in losses.items() if 160 < step <= 190) > at_least  # it would have been stopped


def test_what_is_logged_decides_nothing(tmp_path: Path) -> None:
    """The same run by lines of one update and of a hundred: all that is kept of it is the same."""
    states = []
    for log_every in (1, 100):
        run = tmp_path / str(log_every)
        settings = quick_settings(training={"steps": 130, "validate_every": 65, "log_every": log_every})
        fit(run, ListCorpus(bundled_pairs(60)), None, settings)
        newest, _ = checkpoint.latest(RunFolder(run))
        assert newest is not None
        states.append(read_state(newest))
    one, hundred = (
        (s.comparable_loss, s.lowest_loss, s.worse_windows, s.window_begin, s.window_tokens) for s in states
    )
    assert one == hundred
    assert one[0] is not None
