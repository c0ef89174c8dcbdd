"""The automatic recipe chooses by text, machine and time; a run ends when it should, and says when it goes wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Notes, break_, bundled_pairs, quick_settings

from transduce import cli
from transduce.core import schedule
from transduce.data.build import Part, build_stores
from transduce.data.corpus import ListCorpus, Pair
from transduce.data.facts import facts
from transduce.data.store import Store
from transduce.data.survey import survey
from transduce.data.tokenize import Job
from transduce.errors import DataError, SettingsError, UserError
from transduce.files import metrics
from transduce.files.manifest import sha256
from transduce.files.run_folder import METRICS, RunFolder
from transduce.report import Report
from transduce.settings import config_file
from transduce.settings.compose import compose
from transduce.settings.sections import Overrides, Settings
from transduce.settings.task import TASKS
from transduce.text.scripts import script_of
from transduce.text.tokenizers import Tokenizers
from transduce.training import checkpoint, divergence, ending, trainer
from transduce.training.distributed import Processes
from transduce.training.limits import Limits
from transduce.training.prepare import open_corpora, prepare
from transduce.training.recipe import BASE, Machine, Recipe, _dropout, for_text, for_time, settings_of
from transduce.training.resolve import resolve
from transduce.training.setup import fit
from transduce.training.state import RunState, read_state
from transduce.training.trial import usual_batch
from transduce.training.validate import guess_loss
from transduce.training.validation import Validation

CHINESE = [Pair(f"我想喝{c}啤酒", f"i want to drink beer {c}", n) for n, c in enumerate("一二三四五六七八九十", 1)]


def machine(seconds: float, device: str = "cpu") -> Machine:
    """One whose updates take so long at a width of 128, and longer with wider models."""
    return Machine(device, lambda settings: seconds * settings.model.d_model / 128)


def chosen(pairs: int, minutes: float | None, seconds: float = 0.1, device: str = "cpu", **given: dict) -> Settings:
    recipe = Recipe({"training": {"minutes": minutes}} if minutes else {}, given)
    known = facts([Pair(s, t) for s, t in bundled_pairs(200)], pairs)
    list(recipe.choose(for_text(known, recipe, device)))
    list(for_time(known, 10.0, machine(seconds, device), recipe))
    return recipe.settings


# ---- the text


def test_scripts() -> None:
    assert script_of("ich möchte ein Bier") == "Latin"
    assert script_of("я хочу пива") == "Cyrillic"
    assert script_of("我想喝啤酒 OK") == "Chinese"
    assert script_of("ビールを飲みたい") == "Japanese"
    assert script_of("12 ! 3") == ""
    assert script_of("எனக்கு ஒரு பீர் OK") == "Tamil"
    assert script_of("আমি একটি বিয়ার চাই।") == "Bengali"
    assert script_of("ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ") == "another script"


def test_sides_of_different_scripts_have_their_own_vocabularies() -> None:
    recipe = Recipe({})
    said = list(recipe.choose(for_text(facts(CHINESE, 100_000), recipe, "cpu")))
    text = recipe.settings.text
    assert not text.joint
    assert not recipe.settings.model.tie_source
    assert text.target_vocabulary
    assert text.coverage < 0.9999
    assert "text.joint=false: Chinese and Latin share no words" in said
    backwards = Recipe({})
    swapped = facts([Pair(p.target, p.source, p.line) for p in CHINESE], 100_000)
    list(backwards.choose(for_text(swapped, backwards, "cpu")))
    assert backwards.settings.training.bleu_tokenizer == "zh"


@pytest.mark.parametrize(("given", "device"), [({"text": {"joint": True}}, "cpu"), ({}, "cuda")])
def test_one_vocabulary_for_two_scripts_where_it_is_asked_for_and_on_a_gpu(given: Overrides, device: str) -> None:
    recipe, apart = Recipe(given), Recipe({"text": {"joint": False}})
    list(recipe.choose(for_text(facts(CHINESE, 100_000), recipe, device)))
    list(apart.choose(for_text(facts(CHINESE, 100_000), apart, device)))
    text = recipe.settings.text
    two = apart.settings.text
    sides = two.vocabulary, two.target_vocabulary or 0
    assert max(sides) < text.vocabulary < sum(sides)
    assert device == "cpu" or not any(size % 64 for size in (text.vocabulary, *sides))
    assert text.joint
    assert recipe.settings.model.tie_source
    assert text.target_vocabulary is None
    assert text.vocabulary > facts(CHINESE, 100_000).source.characters


@pytest.mark.parametrize("joint", [False, "false"])
def test_two_vocabularies_for_one_script_where_they_are_asked_for(joint: bool | str) -> None:
    recipe = Recipe({"text": {"joint": joint}})  # a flag's value is text
    list(recipe.choose(for_text(facts([Pair(s, t) for s, t in bundled_pairs(20)], 9_000), recipe, "cpu")))
    assert recipe.settings.text.target_vocabulary


def test_a_classifier_has_room_for_the_characters_of_its_text() -> None:
    """A vocabulary of 4,000, as a preset has, is too small for Chinese; labels are no second language."""
    labelled = [Pair(pair.source, str(pair.line % 3), pair.line) for pair in CHINESE]
    recipe = Recipe(TASKS["classify"].settings)
    said = list(recipe.choose(for_text(facts(labelled, 100_000), recipe, "cpu")))
    text = recipe.settings.text
    assert text.vocabulary > facts(labelled, 100_000).source.characters
    assert text.coverage < 0.9999
    assert text.protect is None
    assert not any("share no words" in words for words in said)


def test_vocabulary_grows_with_the_text() -> None:
    sizes = [chosen(pairs, None).text.vocabulary for pairs in (1000, 10_000, 100_000, 1_000_000, 10**9)]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == 32_000
    assert chosen(100_000, 2).text.vocabulary < chosen(100_000, 60).text.vocabulary
    assert chosen(1000, 10).text.joint


def test_facts_know_lines_that_do_not_belong_together() -> None:
    pairs = [Pair("wort " * (n % 9 + 1), "word " * (n % 9 + 1), n) for n in range(1, 500)]
    slipped = [pair._replace(target=pairs[(n * 7 + 3) % 499].target) for n, pair in enumerate(pairs)]
    assert facts(pairs, 499).correlation > 0.99
    assert facts(slipped, 499).correlation < 0.6
    assert facts([*pairs[:3]] * 5, 15).distinct == pytest.approx(0.2)
    notes = Notes()
    fit_quickly(notes, [(pair.source, pair.target) for pair in slipped])
    assert any("the lengths of the two sides hardly go together" in words for words in notes.said)
    fit_quickly(notes, [(pair.source, pair.source) for pair in pairs])
    assert any("have the same text on both sides" in words for words in notes.said)


def fit_quickly(report: Report, pairs: list[tuple[str, str]], path: Path | None = None, **given: dict) -> None:
    import tempfile

    small = {
        "model": {"layers": 1, "d_model": 32, "d_ff": 48, "heads": 2},
        "training": {"steps": 6, "minutes": 5, "device": "cpu"},
    }
    with tempfile.TemporaryDirectory() as folder:
        fit(path or Path(folder) / "run", ListCorpus(pairs), None, Recipe(small, given), report)


# ---- the machine and the time


def test_more_time_and_more_text_allow_a_larger_model() -> None:
    widths = [chosen(200_000, minutes).model.d_model for minutes in (1, 20, 200)]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    assert chosen(2_000, 600).model.d_model < chosen(200_000, 600).model.d_model
    assert chosen(200_000, 60, seconds=1.0).model.d_model < chosen(200_000, 60, seconds=0.01).model.d_model


def test_dropout_grows_with_the_passes() -> None:
    """A narrow model has less to learn by heart with."""
    wide, narrow = (
        [_dropout(passes, 20_000, width) for passes in (5, 7, 14, 16, 39, 41, 99, 101)] for width in (256, 192)
    )
    assert wide == [0.0, 0.1, 0.1, 0.2, 0.2, 0.4, 0.4, 0.4]
    assert narrow == [0.0, 0.1, 0.1, 0.2, 0.2, 0.2, 0.2, 0.4]
    assert _dropout(41, 40_000, 256) == 0.3


def test_a_gpu_needs_longer_to_finish() -> None:
    settings = compose({"optimizer": {"schedule": "wsd"}, "training": {"minutes": 2.0, "steps": None}})
    cpu, gpu = (ending.Ending.of(settings, 100, on_gpu) for on_gpu in (False, True))
    assert cpu is not None
    assert gpu is not None
    assert cpu.finishing < gpu.finishing
    slow = RunState(validation_seconds=8.0)  # beside neighbours, of which lines for trust suffer less
    assert gpu._seconds_left(slow, 0.0) > cpu._seconds_left(slow, 0.0)
    short = dataclasses.replace(gpu, seconds=10.0)  # of which six hundredths are all that is set aside
    assert short._seconds_left(RunState(), 0.0) == pytest.approx(10 * 0.94)


def test_what_is_read_once_needs_no_dropout() -> None:
    assert chosen(10**7, 5).model.dropout == 0
    assert chosen(1_000, 60).model.dropout >= 0.3
    assert chosen(1_000, 60).text.sampling == 0  # measured: it costs more than it brings


def test_a_time_is_proposed() -> None:
    settings = chosen(100_000, None)
    assert 2 <= settings.training.minutes <= 120
    assert chosen(100, None).training.minutes < settings.training.minutes
    usual = chosen(1_000_000, None, seconds=0.01)
    larger = chosen(1_000_000, None, seconds=0.08, batch={"tokens": 4096})  # eight times the batch, and the time for it
    assert larger.training.minutes == pytest.approx(usual.training.minutes, abs=1)


def test_a_gpu_is_not_tried() -> None:
    def never(settings: Settings) -> float:
        raise AssertionError

    recipe = Recipe({"training": {"minutes": 2}})
    list(for_time(facts(CHINESE, 100_000), 10.0, Machine("cuda", never), recipe))
    assert recipe.settings.batch.tokens > 1000


def test_the_number_of_processes_is_reckoned_with() -> None:
    """Each does its share of a batch: they make an update in a part of the time, and GPUs want a full batch each."""

    def of(processes: int, device: str, minutes: float | None, seconds: float = 0.1) -> Settings:
        recipe = Recipe({"training": {"minutes": minutes}} if minutes else {})
        known = facts([Pair(s, t) for s, t in bundled_pairs(200)], 1_000_000)
        list(recipe.choose(for_text(known, recipe, device, processes)))
        list(for_time(known, 10.0, machine(seconds, device)._replace(processes=processes), recipe))
        return recipe.settings

    assert of(4, "cuda", 10).batch.tokens == 4 * of(1, "cuda", 10).batch.tokens
    assert of(4, "cuda", 1).text.vocabulary > of(1, "cuda", 1).text.vocabulary  # it is read more often
    assert of(4, "cuda", None).training.minutes < of(1, "cuda", None).training.minutes
    alone, four = of(1, "cpu", 10), of(4, "cpu", 10)
    assert four.model.d_model > alone.model.d_model
    assert of(4, "cpu", None, 0.01).training.minutes < of(1, "cpu", None, 0.01).training.minutes


def test_a_recipe_is_told_how_many_processes_will_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Machine] = []

    def reckon(known: object, tokens: float, machine: Machine, recipe: Recipe) -> Iterator[str]:
        seen.append(machine)
        return iter(())

    monkeypatch.setattr("transduce.training.prepare.for_time", reckon)
    monkeypatch.setattr(Processes, "gather", lambda self, thing: [thing] * self.count)
    recipe = Recipe({"training": {"steps": 6, "device": "cpu"}})
    prepare(RunFolder(tmp_path / "run"), ListCorpus(bundled_pairs(60)), None, recipe, Report(), Processes(0, 3))
    assert [machine.processes for machine in seen] == [3]


def test_what_is_given_stays() -> None:
    given = {"model": {"layers": 5, "dropout": 0.25}, "optimizer": {"rate": 5e-4}, "batch": {"tokens": "auto"}}
    settings = chosen(100_000, 10, **given)
    assert (settings.model.layers, settings.model.dropout, settings.optimizer.rate) == (5, 0.25, 5e-4)
    assert settings.batch.tokens == "auto"
    assert settings.optimizer.schedule == "wsd"


def test_every_choice_is_told_with_its_reason_and_kept(tmp_path: Path) -> None:
    notes = Notes()
    fit_quickly(notes, bundled_pairs(60), tmp_path / "run")
    told = [words for words in notes.said if "=" in words.split(":")[0]]
    assert {words.split("=")[0] for words in told} >= {"text.joint", "model.dropout", "optimizer.rate"}
    kept = config_file.read_whole(RunFolder(tmp_path / "run").config)
    assert kept.optimizer.schedule == "wsd"
    assert kept.model.layers == 1
    before = config_file.write(kept)
    fit(tmp_path / "run", ListCorpus(bundled_pairs(60)), None, resolve(tmp_path / "run", None, None, {}))
    assert config_file.write(config_file.read_whole(RunFolder(tmp_path / "run").config)) == before


def test_who_is_asked(tmp_path: Path) -> None:
    own = {"data": {"source": "a.de", "target": "a.en"}}
    assert isinstance(resolve(tmp_path / "new", None, None, own), Recipe)
    assert isinstance(resolve(tmp_path / "new", "auto", None, {}), Recipe)
    assert isinstance(resolve(tmp_path / "new", "small", None, own), Settings)
    assert isinstance(resolve(tmp_path / "new", None, None, own, "classify"), Recipe)
    assert isinstance(resolve(tmp_path / "new", "auto", None, {}, "classify"), Recipe)
    with pytest.raises(SettingsError, match="unknown setting model.layer "):
        resolve(tmp_path / "new", None, None, {**own, "model": {"layer ": 3}})
    clocked = resolve(tmp_path / "new", "small", None, {**own, "training": {"minutes": 3}})
    assert isinstance(clocked, Settings)
    assert (clocked.optimizer.schedule, clocked.training.steps) == ("wsd", None)


def test_a_trial_uses_sentences_of_the_usual_length() -> None:
    pairs = [([5] * n, [6] * n) for n in range(1, 40)]
    batch = usual_batch(pairs, 200)
    assert batch.target_out.size(0) == 200 // 21
    assert 10 < batch.source.tokens.size(1) < 30


# ---- the end


def test_wsd_rises_stays_and_falls() -> None:
    rates = [schedule.wsd(step, 2.0, 10, schedule.Decay(50, 70)) for step in range(1, 71)]
    assert rates[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert rates[10:51] == [2.0] * 41
    assert rates[51:] == sorted(rates[51:], reverse=True)
    assert 0 < rates[-1] < 0.1
    assert schedule.wsd(5000, 2.0, 10, None) == 2.0


def test_the_decay_is_fitted_to_steps_and_to_the_clock() -> None:
    pace = ending.Pace()
    pace.updates, pace.spent = 100, 50.0  # half a second each
    by_steps = ending.Ending(0.25, steps=100, seconds=None, validate_every=10)
    assert by_steps.decide(RunState(step=74), 0.0, pace) is None
    assert by_steps.decide(RunState(step=75), 0.0, pace) == (75, 100)
    by_clock = ending.Ending(0.25, steps=None, seconds=400, validate_every=10)  # 5 of them finish it
    assert by_clock.decide(RunState(step=500), 296.0, pace) is None
    assert by_clock.decide(RunState(step=500), 297.0, pace) == (500, 500 + 196)
    slow = RunState(step=500, validation_seconds=5.0)  # an update and its share of a validation: one second
    assert by_clock.decide(slow, 297.0, pace) == (500, 500 + 73)  # five validations' worth is kept for the end
    late = RunState(step=500, before_updates=200.0)  # half of the time went by before the first update
    assert by_clock.decide(late, 344.0, pace) is None
    assert by_clock.decide(late, 347.0, pace) == (500, 500 + 96)
    both = ending.Ending(0.25, steps=520, seconds=400, validate_every=10)
    assert both.decide(RunState(step=100), 297.0, pace) == (100, 296)
    assert by_clock.decide(RunState(step=1), 394.0, ending.Pace()) is None
    decided = RunState(step=600, decay_begin=500, decay_end=698)
    assert by_clock.correct(decided, 375.0, pace) == 640
    assert by_clock.correct(decided, 375.0, ending.Pace()) == by_steps.correct(decided, 375.0, pace) == 698
    assert by_clock.correct(RunState(step=600), 100.0, pace) is None
    pace.pause()
    assert pace.an_update == 0.5
    for _ in range(9):  # validations that are few updates apart
        pace.pause()
        pace.updates, pace.spent = pace.updates + 9, pace.spent + 9
    assert pace.an_update == pytest.approx(1.0, abs=0.1)


def test_one_slow_validation_does_not_decide_how_long_the_end_takes() -> None:
    state = RunState()
    state.add_validation_time(0.5)
    assert state.validation_seconds == 0.5
    state.add_validation_time(8.5)  # others used the machine
    assert state.validation_seconds == 4.5
    for _ in range(4):
        state.add_validation_time(0.5)
    assert state.validation_seconds == pytest.approx(0.75)


def test_a_run_out_of_patience_is_decayed_before_it_ends(tmp_path: Path) -> None:
    pace = ending.Pace()
    by_steps = ending.Ending(0.25, steps=100, seconds=None, validate_every=10, patience=2)
    assert by_steps.decide(RunState(step=40, since_best=1), 0.0, pace) is None
    assert by_steps.decide(RunState(step=40, since_best=2), 0.0, pace) == (40, 50)
    assert by_steps.decide(RunState(step=72, since_best=2), 0.0, pace) == (72, 90)
    pace.updates, pace.spent = 100, 50.0
    by_clock = ending.Ending(0.25, steps=None, seconds=400, validate_every=10, patience=2)
    assert by_clock.decide(RunState(step=400, since_best=2), 100.0, pace) == (400, 500)
    decided = RunState(step=450, decay_begin=400, decay_end=500, impatient=1)
    assert by_clock.correct(decided, 150.0, pace) == 500  # never later, however much time there is
    assert by_clock.correct(decided, 385.0, pace) == 470
    settings = quick_settings(
        training={"steps": 400, "patience": 2, "validate_every": 4},
        optimizer={"schedule": "wsd", "rate": 1e-9, "decay": 0.5},
    )
    outcome = fit(tmp_path / "r", ListCorpus(bundled_pairs(60)), None, settings)
    assert outcome.reason == "no better validation in the last 2 at the full learning rate"
    assert outcome.step < 100
    rates = [record["rate"] for record in metrics.read(tmp_path / "r" / METRICS) if record["kind"] == "train"]
    assert rates[-1] < max(rates) / 2


def test_the_limit_that_a_decay_was_fitted_to_is_named() -> None:
    both = Limits(steps=1000, epochs=3, minutes=60, patience=None)
    assert both.reached_by_decay(1000, 1000) == "all steps done"
    assert both.reached_by_decay(900, 900) == "all 3 epochs done"
    assert both.reached_by_decay(800, 900) == "60 minutes are over"
    assert Limits(None, 3, None, None).reached_by_decay(90, 90) == "all 3 epochs done"
    assert Limits(None, None, 5, None).reached_by_decay(90, None) == "5 minutes are over"


def test_the_end_of_a_decay_is_corrected_half_way() -> None:
    by_clock = ending.Ending(0.25, steps=None, seconds=400, validate_every=10)
    state, pace, asked = RunState(decay_begin=500, decay_end=600), ending.Pace(), []
    pace.updates, pace.spent = 100, 50.0
    for state.step in range(500, 600):
        if by_clock.is_to_be_corrected(state, pace):
            asked.append(state.step)
            state.decay_seen = state.step
    assert asked == [550, 575, 588]
    by_steps = ending.Ending(0.25, steps=600, seconds=None, validate_every=10)
    assert not by_steps.is_to_be_corrected(RunState(step=550, decay_begin=500, decay_end=600), pace)
    assert not by_clock.is_to_be_corrected(RunState(step=550), pace)
    late = RunState(step=550, decay_begin=500, decay_end=600)  # after a stop: how fast it is is not known yet
    assert not by_clock.is_to_be_corrected(late, ending.Pace())


def test_a_machine_that_becomes_faster_does_not_end_a_run_early() -> None:
    """Its updates took two seconds until the decay began, and take half a second from then on."""
    by_clock, pace, seconds = ending.Ending(0.25, steps=None, seconds=400, validate_every=10_000), ending.Pace(), 300.0
    pace.updates, pace.spent = 100, 200.0
    state = RunState(step=500)
    decay = by_clock.decide(state, seconds, pace)
    assert decay == (500, 547)
    state.decay_begin, state.decay_end = decay
    while state.step < state.decay_end:
        state.step, seconds = state.step + 1, seconds + 0.5
        pace.updates, pace.spent = pace.updates + 1, pace.spent + 0.5
        if by_clock.is_to_be_corrected(state, pace):
            state.decay_end, state.decay_seen = by_clock.correct(state, seconds, pace), state.step
            pace.pause()
    assert 380 < seconds < 400  # without: 323


def test_a_validation_just_before_the_end_is_left_to_the_end(tmp_path: Path) -> None:
    text, valid = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(5, seed=2))
    settings = quick_settings(optimizer={"schedule": "wsd"}, training={"steps": 21, "validate_every": 10})
    fit(tmp_path / "r", text, valid, settings)
    steps = [line["step"] for line in metrics.read(RunFolder(tmp_path / "r").metrics) if line["kind"] == "valid"]
    assert steps == [10, 21]  # not 20, which is no other model than 21


def test_a_short_run_on_a_cpu_has_fewer_validations() -> None:
    """Of two minutes, eight would take a quarter: so four of them, and six of three minutes."""
    every = [chosen(10_000, minutes).training.validate_every for minutes in (2, 3)]
    assert every[0] == pytest.approx(every[1], rel=0.1)


def clocked(minutes: float, **training: object) -> Settings:
    return quick_settings(
        optimizer={"schedule": "wsd", "warmup": 5},
        training={"steps": None, "minutes": minutes, "validate_every": 50, **training},
    )


def test_a_run_by_the_clock_ends_decayed_and_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, valid = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(5, seed=2))
    for minutes in (0.12, 0.3, 0.6):  # on a machine with much else to do seven seconds are too few to decide anything
        run = tmp_path / f"run-{minutes}"
        outcome = fit(run, text, valid, clocked(minutes))
        lines = [line for line in metrics.read(RunFolder(run).metrics) if line["kind"] == "train"]
        decayed = lines[-1]["rate"] < 0.3 * max(line["rate"] for line in lines)
        if decayed:
            break
    assert decayed
    assert outcome.reason == f"{minutes:g} minutes are over"
    again = fit(run, text, valid, clocked(minutes))  # nothing is left to do
    assert again.step == outcome.step
    before = json.loads((RunFolder(run).checkpoint(outcome.step) / "state.json").read_text())
    monkeypatch.setattr(trainer, "judge_start", lambda trained: time.sleep(0.5))  # as a GPU compiles
    longer = fit(run, text, valid, clocked(minutes + 0.08))
    state = json.loads((RunFolder(run).checkpoint(longer.step) / "state.json").read_text())
    assert before["decay_begin"] < state["decay_begin"] < state["decay_end"] == longer.step
    assert state["before_updates"] > before["before_updates"] + 0.5  # so the rate does not fall earlier for it
    rates = [line["rate"] for line in metrics.read(RunFolder(run).metrics) if line["kind"] == "train"]
    stable = rates[5 : rates.index(min(rates[5:])) - 3]
    assert len(set(stable[: len(stable) // 2])) == 1, "the rate has jumped"


def test_more_steps_go_on_from_before_the_decay(tmp_path: Path) -> None:
    def settings(steps: int) -> Settings:
        return quick_settings(optimizer={"schedule": "wsd"}, training={"steps": steps, "keep": 1})

    text, valid = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(5, seed=2))
    notes = Notes()
    fit(tmp_path / "short", text, valid, settings(16))
    fit(tmp_path / "short", text, valid, settings(32), notes)
    fit(tmp_path / "long", text, valid, settings(32))
    assert any("going on from step 12, before its learning rate fell; the 0.0 minutes" in said for said in notes.said)
    ends = [(tmp_path / name / "weights" / "last.safetensors").read_bytes() for name in ("short", "long")]
    assert ends[0] == ends[1]


def test_a_lost_stable_checkpoint_is_named(tmp_path: Path) -> None:
    import shutil

    text, valid = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(5, seed=2))
    settings = quick_settings(optimizer={"schedule": "wsd"}, training={"steps": 16})
    fit(tmp_path / "r", text, valid, settings)
    shutil.rmtree(RunFolder(tmp_path / "r").checkpoint(12))
    notes = Notes()
    more = dataclasses.replace(settings, training=dataclasses.replace(settings.training, steps=20))
    fit(tmp_path / "r", text, valid, more, notes)
    assert any("the learning rate will jump from where it has fallen to" in words for words in notes.said)


# ---- another time for a run


def go_on(run: Path, steps: int | None = None, **given: dict) -> tuple[list[str], Settings]:
    """What is said of dropout, and what the run has then."""
    flags: Overrides = {"training": {"steps": steps}, **given} if steps else given
    notes = Notes()
    fit(run, ListCorpus(bundled_pairs(300)), None, resolve(run, None, None, flags), notes)
    said = [words for words in notes.said if words.startswith("model.dropout")]
    return said, config_file.read_whole(RunFolder(run).config)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, of which those who go on with it take a copy."""
    path = tmp_path_factory.mktemp("quick") / "run"
    fit_quickly(Report(), bundled_pairs(300), path)
    return path


def test_more_time_brings_the_dropout_that_more_passes_need(tmp_path: Path, quick: Path) -> None:
    """As a run of that length has from its beginning."""
    shutil.copytree(quick, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert config_file.read_whole(run.config).model.dropout == 0.0
    assert {"model.dropout", "text.vocabulary"} <= set(json.loads(run.chosen.read_text()))
    assert "model.layers" not in json.loads(run.chosen.read_text())  # given
    said, settings = go_on(run.path, 60)
    assert said == ["model.dropout=0.1: about 7.3 passes over the text"]
    fit_quickly(Report(), bundled_pairs(300), tmp_path / "whole", training={"steps": 60})
    whole = config_file.read_whole(RunFolder(tmp_path / "whole").config)
    assert settings.model.dropout == whole.model.dropout == 0.1
    assert go_on(run.path) == ([], settings)  # nothing is to be decided
    assert go_on(run.path, 61) == ([], go_on(run.path)[1])  # nor changed
    assert go_on(run.path, 150)[1].model.dropout == 0.2


def test_what_was_given_stays_however_much_time_there_is(tmp_path: Path, quick: Path) -> None:
    fit_quickly(Report(), bundled_pairs(300), tmp_path / "first", model={"dropout": 0.0})
    assert go_on(tmp_path / "first", 60)[1].model.dropout == 0.0
    shutil.copytree(quick, tmp_path / "later")
    assert go_on(tmp_path / "later", 60, model={"dropout": 0.05}) == ([], go_on(tmp_path / "later")[1])
    assert go_on(tmp_path / "later", 90)[1].model.dropout == 0.05


@pytest.mark.parametrize("note", [None, "", "7", "[[1]]", '{"a": 1}', '["model.nothing"]', "[" * 9000])
def test_a_run_whose_choices_nobody_knows_stays_as_it_is(tmp_path: Path, quick: Path, note: str | None) -> None:
    shutil.copytree(quick, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    run.chosen.unlink() if note is None else run.chosen.write_text(note)
    assert go_on(run.path, 60)[1].model.dropout == 0.0


def test_a_run_that_never_began_is_chosen_for_anew(tmp_path: Path, quick: Path) -> None:
    """But with what it was given the first time."""
    shutil.copytree(quick, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    for checkpoint_ in run.checkpoints():
        shutil.rmtree(checkpoint_)
    wanted = resolve(run.path, None, None, {})
    assert isinstance(wanted, Recipe)
    assert not wanted.choices
    assert wanted.has("model.layers", "training.steps")
    assert not wanted.has("model.dropout", "text.vocabulary")


# ---- more text for a run


def grow(run: Path, files: list[tuple[str, str]], steps: int, valid: tuple[str, str] | None = None) -> list[str]:
    """Begin a run with these files, or go on with them; what it says."""
    data = {"source": [source for source, _ in files], "target": [target for _, target in files]}
    data |= {} if valid is None else {"valid_source": valid[0], "valid_target": valid[1]}
    notes, small = Notes(), {"layers": 1, "d_model": 32, "d_ff": 48, "heads": 2}
    flags: Overrides = {"data": data, "model": small, "training": {"steps": steps, "device": "cpu"}}
    flags["optimizer"] = {"warmup": 10}
    wanted = resolve(run, None, None, flags)
    fit(run, *open_corpora(settings_of(wanted), notes), wanted, notes)
    return notes.said


def parallel(folder: Path, name: str, pairs: list[tuple[str, str]]) -> tuple[str, str]:
    paths = folder / f"{name}.de", folder / f"{name}.en"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return str(paths[0]), str(paths[1])


def state_of(run: Path) -> RunState:
    return read_state(RunFolder(run).checkpoints()[-1])


@pytest.mark.parametrize("given", [False, True])
def test_a_run_goes_on_with_more_text(tmp_path: Path, given: bool) -> None:
    """At its full rate, from before the decay; no pair changes sides, also when it goes on again, and grows again."""
    pairs, run = bundled_pairs(900), tmp_path / "run"
    files = [parallel(tmp_path, name, pairs[n : n + 300]) for n, name in ((0, "a"), (300, "b"), (600, "c"))]
    valid = parallel(tmp_path, "valid", bundled_pairs(40, seed=2)) if given else None
    grow(run, files[:1], 40, valid)
    sides = [sides_of(run, given)]
    before = state_of(run)
    said = grow(run, files[:2], 80, valid)
    assert "the text has grown to 600 pairs: a new pass over it begins" in said
    assert any("going on from step 28, before its learning rate fell" in words for words in said)
    after = state_of(run)
    assert (after.step, after.data == before.data) == (80, False)
    rates = {line["step"]: line["rate"] for line in metrics.read(RunFolder(run).metrics) if line["kind"] == "train"}
    assert rates[30] == rates[50] == max(rates.values())
    sides.append(sides_of(run, given))
    again = grow(run, files[:2], 84, valid)
    assert not any("has grown" in words for words in again)
    assert state_of(run).data == after.data
    files_before = {path.name: path.read_bytes() for path in run.glob("*.safetensors")}
    with pytest.raises(
        SettingsError, match="the text of .* has grown, but its learning rate has fallen for 84 steps: give it more"
    ):
        grow(run, files, 84, valid)
    assert {path.name: path.read_bytes() for path in run.glob("*.safetensors")} == files_before
    said = grow(run, files, 100, valid)
    assert given != any(words.startswith("the model as it is, on this text: validation") for words in said)
    assert state_of(run).step == 100
    sides.append(sides_of(run, given))
    for (trained, validated), (later_trained, later_validated) in itertools.pairwise(sides):
        assert trained < later_trained
        assert validated <= later_validated
        assert not later_trained & validated
        assert not later_validated & trained


def sides_of(run: Path, given: bool) -> tuple[set[int], set[int]]:
    """Lines that are trained on, and that are validated on."""
    state = state_of(run)
    stores = [Store(RunFolder(run).data / str(name)) for name in (state.data, state.valid_data)]
    trained, validated = (set(store.lines(np.arange(len(store)))) for store in stores)
    return trained, set() if given else validated  # whose lines are those of another text


def test_a_tag_keeps_pairs_on_their_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file whose every source begins with one nothing is set aside; but a run that has done so goes on as it was."""
    pairs = bundled_pairs(400)
    real = parallel(tmp_path, "real", pairs[:250])
    made = parallel(tmp_path, "made", [(f"<BT> {source}", target) for source, target in pairs[250:]])
    said = grow(tmp_path / "new", [real, made], 10)
    told = f"none of {made[0]} and {made[1]}, where every source begins with <BT>"
    assert any(words.startswith(told) for words in said)
    assert max(sides_of(tmp_path / "new", False)[1]) <= 250
    with monkeypatch.context() as patch:
        patch.setattr("transduce.data.survey.TAGGED", 1000)  # as versions did that knew no tags
        grow(tmp_path / "old", [real, made], 10)
    before = sides_of(tmp_path / "old", False)
    assert max(before[1]) > 250
    grow(tmp_path / "old", [real, made], 20)
    assert sides_of(tmp_path / "old", False) == before
    grow(tmp_path / "alone", [made], 10)  # there is nothing else to judge by, until there is more text
    alone = sides_of(tmp_path / "alone", False)
    for steps in (20, 30):
        grow(tmp_path / "alone", [made, real], steps)
        trained, validated = sides_of(tmp_path / "alone", False)
        assert alone[0] < trained
        assert alone[1] < validated
        assert not trained & alone[1]
        assert not validated & alone[0]


def test_more_text_and_a_stop_are_more_text(tmp_path: Path) -> None:
    """As often as it is killed before its next checkpoint, the pass over all of it begins where it would have."""
    pairs = bundled_pairs(600)
    files = [parallel(tmp_path, "a", pairs[:300]), parallel(tmp_path, "b", pairs[300:])]
    grow(tmp_path / "one", files[:1], 20)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    grow(tmp_path / "one", files, 40)

    class Killed(Notes):
        def say(self, message: str) -> None:
            if message.startswith("model of"):
                raise KeyboardInterrupt
            super().say(message)

    wanted = resolve(
        tmp_path / "two",
        None,
        None,
        {"data": {"source": [f[0] for f in files], "target": [f[1] for f in files]}, "training": {"steps": 40}},
    )
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "two", *open_corpora(settings_of(wanted), Notes()), wanted, Killed())
    grow(tmp_path / "two", files, 40)
    ends = [(tmp_path / name / "weights" / "last.safetensors").read_bytes() for name in ("one", "two")]
    assert ends[0] == ends[1]


def test_text_that_is_not_more_is_refused(tmp_path: Path) -> None:
    """Other lines under an old name, or the old file behind the new one."""
    pairs = bundled_pairs(600)
    first, second = parallel(tmp_path, "a", pairs[:300]), parallel(tmp_path, "b", pairs[300:])
    grow(tmp_path / "run", [first], 6)
    with pytest.raises(DataError, match="was trained on other text.*--from"):
        grow(tmp_path / "run", [second, first], 12)
    parallel(tmp_path, "a", pairs[1:301])
    with pytest.raises(DataError, match="was trained on other text"):
        grow(tmp_path / "run", [first, second], 12)


def test_a_harder_text_that_comes_later_is_no_divergence() -> None:
    """The loss of before was no measure any more; the run went back to its beginning, and what it had learned was
    gone."""
    state = RunState(step=600, data="a", valid_data="b", lowest_loss=0.5, worse_windows=1, usual_loss=0.6, lines=9)
    state.comparable_loss = 0.5
    state.loss_total, state.loss_tokens = 500.0, 1000  # of a line that is half full
    state.go_on_as(RunState(data="c", valid_data="d"))
    assert (state.grown, state.lowest_loss, state.lines, state.best) == (600, None, 0, None)
    assert (state.loss_total, state.loss_tokens) == (0, 0)
    for loss in (6.5, 6.4, 6.3):
        divergence.note_loss(state, loss)
    assert not divergence.has_diverged(state)
    bad = Validation(6.4, 0.1)
    state.step = 700
    assert not divergence.learns_nothing(state, bad, 6.4, 100)
    state.step = 1200
    assert divergence.learns_nothing(state, bad, 6.4, 100)
    assert not divergence.has_nothing_good(state, 6.4)


def test_a_run_that_has_ended_is_not_given_less_time(tmp_path: Path) -> None:
    """It went back to before its decay, ended earlier, and its last checkpoint was gone."""
    files, run = [parallel(tmp_path, "a", bundled_pairs(300))], tmp_path / "run"
    grow(run, files, 40)
    with pytest.raises(SettingsError, match="has had that and more, 40 steps .* of the whole run"):
        grow(run, files, 30)
    assert state_of(run).step == 40


def test_a_kill_after_more_time_loses_neither_the_model_nor_its_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints after the one that it goes on from are removed; what it had reached was only in memory then."""
    files, run = [parallel(tmp_path, "a", bundled_pairs(300))], tmp_path / "run"
    grow(run, files, 40)
    was, model = state_of(run), (run / "model.safetensors").read_bytes()

    def killed(trained: trainer.Trainer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "judge_start", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            grow(run, files, 80)
        state = state_of(run)
        assert state.step < was.step
        assert state.decay is None
        assert state.best == was.best
    assert (run / "model.safetensors").read_bytes() == (run / "weights" / "best.safetensors").read_bytes() == model


def test_a_kill_while_a_checkpoint_is_replaced_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its two renames the one to go on from is there under another name."""
    files, run = [parallel(tmp_path, "a", bundled_pairs(300))], tmp_path / "run"
    grow(run, files, 40)
    was = state_of(run)
    rename = os.replace

    def killed(old: object, new: object) -> None:
        if str(new).endswith("step-28"):
            raise KeyboardInterrupt
        rename(old, new)  # type: ignore[call-overload]

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(checkpoint.os, "replace", killed)
        grow(run, files, 80)
    assert not RunFolder(run).checkpoint(28).exists()
    said = grow(run, files, 80)
    assert any("going on from step 28, before its learning rate fell" in words for words in said)
    assert not any("will jump" in words for words in said)
    assert state_of(run).step == 80 > was.step


# ---- what strangers bring


def learn(folder: Path, pairs: list[tuple[str, str]], **sections: dict) -> list[str]:
    """What a short run says of this text."""
    run, (source, target), notes = folder / "run", parallel(folder, "own", pairs), Notes()
    flags: Overrides = {
        "data": {"source": source, "target": target} | sections.pop("data", {}),
        "model": {"layers": 1, "d_model": 32, "d_ff": 48, "heads": 2},
        "training": {"steps": 4, "device": "cpu"},
        **sections,
    }
    wanted = resolve(run, None, None, flags)
    fit(run, *open_corpora(settings_of(wanted), notes), wanted, notes)
    return notes.said


def test_a_paragraph_among_sentences_is_not_tried(tmp_path: Path) -> None:
    pairs = bundled_pairs(30)
    pairs[4] = tuple(" ".join(pair[i] for pair in bundled_pairs(400)) for i in (0, 1))
    assert any("dropped: 1 too long" in words for words in learn(tmp_path, pairs))


def test_the_longest_sentence_fits_a_batch(tmp_path: Path) -> None:
    pairs = bundled_pairs(200)
    pairs[4] = tuple(" ".join(pair[i] for pair in bundled_pairs(80)) for i in (0, 1))
    assert any("batches of 1,024" in words for words in learn(tmp_path, pairs, data={"max_tokens": 1000}))


def test_what_is_set_aside_may_be_blank(tmp_path: Path) -> None:
    pairs = bundled_pairs(20)
    (aside,) = survey(ListCorpus(pairs, "pairs")).hold_out(1000).lines(20)
    pairs[aside - 1] = ("", pairs[aside - 1][1])
    assert any("so there is none" in words for words in learn(tmp_path, pairs))


def test_a_run_that_never_began_keeps_its_text(tmp_path: Path) -> None:
    """With other minutes it was trained on the bundled corpus."""
    pairs, run = bundled_pairs(40), tmp_path / "run"
    learn(tmp_path, pairs)
    shutil.rmtree(run / "training")
    for name in ("model.safetensors", "weights"):
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    now = settings_of(resolve(run, None, None, {"training": {"steps": 6}}))
    assert now.data.source == str(tmp_path / "own.de")
    assert now.training.steps == 6


def test_many_characters_get_room(tmp_path: Path) -> None:
    """Korean of few lines has more syllables than its words are given tokens for."""
    draw = np.random.default_rng(1)
    syllables = [chr(0xAC00 + int(i)) for i in draw.choice(11172, 600, replace=False)]
    words = ["".join(draw.choice(syllables, 2)) for _ in range(400)]
    pairs = [(" ".join(draw.choice(words, 5)), target) for _, target in bundled_pairs(200)]
    assert any("room for its characters" in words for words in learn(tmp_path, pairs))


def test_terms_are_judged_by_their_loss(tmp_path: Path) -> None:
    """BLEU counts four words in a row, so a list of terms has none, however good the model."""
    pairs = [(source.split()[0], target.split()[0]) for source, target in bundled_pairs(300)]
    said = learn(tmp_path, pairs)
    assert any("validation loss" in words for words in said)
    assert not any("BLEU" in words for words in said)


# ---- going wrong


def test_loss_decides_while_bleu_is_noise() -> None:
    assert Validation(5.0, 0.006).better_than(Validation(5.5, 0.017))
    assert not Validation(5.5, 0.017).better_than(Validation(5.0, 0.006))
    assert Validation(3.0, 12.0).better_than(Validation(2.9, 11.0))
    assert Validation(6.3, 0.0).is_a_guess(6.4)
    assert not Validation(5.0, 0.0).is_a_guess(6.4)


def test_in_the_decay_a_lower_loss_beats_the_luck_of_before_it() -> None:
    state = RunState()

    def validated(step: int, loss: float, score: float) -> bool:
        state.step = step
        return state.add_validation(Validation(loss, score))

    assert [validated(100, 2.5, 20.0), validated(200, 2.2, 28.1), validated(300, 2.1, 26.0)] == [True, True, False]
    state.decay_begin, state.decay_end = 300, 600
    assert not validated(400, 9.0, 0.0)  # what is ruined beats nothing
    assert [validated(450, 2.19, 26.6), validated(500, 2.0, 26.5), validated(600, 2.1, 27.0)] == [True, False, True]
    assert state.best_steps()[:3] == [600, 450, 500]
    assert state.best == state.validation_of(600)

    state = RunState(decay_begin=300, decay_end=600)
    assert [validated(200, 2.0, 30.0), validated(400, 1.9, 28.0), validated(500, 2.1, 29.0)] == [True, True, False]
    assert state.best_steps() == [400, 200, 500]  # the last is worse than the first in both

    state = RunState(best_loss=1.9, best_score=29.0, decay_begin=300, decay_end=500)  # of a run that was extended
    assert [validated(400, 1.8, 28.0), validated(500, 1.8, 29.5)] == [False, True]


def test_divergence_is_a_loss_that_stays_up() -> None:
    state = RunState()
    for loss in (6.0, 5.0, 7.0, 5.5, 6.6):
        divergence.note_loss(state, loss)
        assert not divergence.has_diverged(state)
    divergence.note_loss(state, 6.7)
    assert divergence.has_diverged(state)
    bad = Validation(6.4, 0.0)
    assert divergence.learns_nothing(RunState(step=1000, lowest_loss=6.5), bad, 6.4, 100)
    assert not divergence.learns_nothing(RunState(step=100, lowest_loss=6.5), bad, 6.4, 100)
    assert not divergence.learns_nothing(RunState(step=1000, lowest_loss=1.5), bad, 6.4, 100)  # by heart
    state.calm = divergence.CALMER**divergence.MOST
    with pytest.raises(UserError, match="the run diverges at step 0, with 4% of its learning rate too"):
        divergence.calmer(state, 0)


def test_a_high_loss_that_stands_still_is_a_divergence() -> None:
    def still(*losses: float, lowest: float = 5.2, decay: bool = False, score: float = 0.0) -> int:
        seen = [(100 * i, loss, 0.0) for i, loss in enumerate(losses[:-1], 1)]
        state = RunState(100 * len(losses), validations=seen, lowest_loss=lowest, decay_begin=1 if decay else None)
        state.decay_end = state.decay_begin
        return divergence.stands_still(state, Validation(losses[-1], score), 5.7, 150)

    assert still(5.1, 5.1, 5.05, 5.0) == 200  # the first was in the warm-up
    assert still(5.1, 5.1, 4.9, 4.85) == 100
    assert still(5.2, 5.2, 5.0, 4.8) == 0
    assert still(5.1, 5.1) == still(5.1) == 0
    assert still(3.1, 3.1, 3.1, 3.1) == 0  # good already
    assert still(5.1, 5.1, 5.1, 5.1, lowest=1.0) == 0  # by heart
    assert still(5.1, 5.1, 5.1, 5.1, decay=True) == 0
    assert still(5.1, 5.1, 5.1, 5.1, score=20.0) == 0


def test_a_run_that_stands_still_says_so_and_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "PATIENCE", 20)
    text, valid = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(60, seed=2))
    settings = quick_settings(
        optimizer={"rate": 1e-9, "warmup": 10}, training={"steps": 100, "validate_every": 20, "log_every": 2}
    )
    notes = Notes()
    with pytest.raises(UserError, match="4% of its learning rate too; begin a new one with another optimizer.rate"):
        fit(tmp_path / "r", text, valid, settings, notes)  # which is too low: to calm it does not help
    said = [words for words in notes.said if "little was learned" in words or "the run diverges" in words]
    assert "little was learned in 20 steps" in said[0]
    assert "step 60: the run diverges; back to step 0, and on with 20% of its learning rate" in said[1]


def test_the_noise_of_a_loss_that_is_nearly_nothing_is_no_divergence() -> None:
    """Labels that are learned by heart have a loss of 0.2, and 0.3 in the next line."""
    state = RunState()
    for loss in (5.0, 0.2, 0.31, 0.33, 0.4, 0.29):
        divergence.note_loss(state, loss)
        assert not divergence.has_diverged(state)
    for loss in (0.9, 1.5):
        divergence.note_loss(state, loss)
    assert divergence.has_diverged(state)


@pytest.mark.parametrize("steps_before", [0, 200])
def test_a_run_that_diverges_goes_back_and_on_more_calmly(
    tmp_path: Path, steps_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a rate that is far too high, from the beginning or once a good checkpoint is there."""
    text, valid = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(5, seed=2))
    good = quick_settings(training={"steps": 200, "validate_every": 100, "log_every": 2})
    if steps_before:
        fit(tmp_path / "r", text, valid, good)
    monkeypatch.setattr(divergence, "WINDOW_UPDATES", 4)
    notes = Notes()
    wild = compose(
        {"optimizer": {"rate": 3.0}, "training": {"steps": 260, "validate_every": 1000}, "model": {"norm": "after"}},
        base=good,
    )
    with contextlib.suppress(UserError):  # twice calmed is calm enough, or not
        fit(tmp_path / "r", text, valid, wild, notes)
    assert any(f"the run diverges; back to step {steps_before}" in words for words in notes.said)
    lines = metrics.read(RunFolder(tmp_path / "r").metrics)
    calmed = [line for line in lines if line["kind"] == "diverged"]
    assert calmed
    assert calmed[0]["calm"] == divergence.CALMER
    newest, _ = checkpoint.latest(RunFolder(tmp_path / "r"))
    assert checkpoint.read_state(newest).calm < 1  # a stop does not make it forget


def test_batches_grow_and_the_rate_with_them() -> None:
    """Once updates are many, fewer of them where the text is gone through often; never against what is given."""

    def both(pairs: int, minutes: float, **given: dict) -> tuple[object, float]:
        settings = chosen(pairs, minutes, **given)
        return settings.batch.tokens, settings.optimizer.rate

    assert both(20_000, 30) == (512, 0.0012)  # 7,650 updates
    assert both(20_000, 36) == (1024, 0.0017)  # 9,180, in 24 passes
    assert both(200_000, 36) == (512, 0.0012)  # in two
    assert both(200_000, 50) == (1024, 0.0017)
    assert both(20_000, 36, batch={"tokens": 512}) == (512, 0.0012)
    assert both(20_000, 90, batch={"tokens": 2048}) == (2048, 0.002)
    assert chosen(20_000, None, training={"steps": 20_000}).batch.tokens == 512


def test_a_run_without_validation_text_goes_back_to_a_checkpoint(tmp_path: Path) -> None:
    """Nothing is judged there, which does not make everything bad. What was saved while the loss went up is."""
    assert not divergence.has_nothing_good(RunState(valid_data=""), 6.0)
    assert divergence.has_nothing_good(RunState(valid_data="some"), 6.0)
    run, text = RunFolder(tmp_path / "r"), ListCorpus(bundled_pairs(60))
    fit(run.path, text, None, quick_settings(training={"steps": 8, "validate_every": 2, "keep": 4}))
    *before, late = run.checkpoints()
    assert checkpoint.latest_good(run) == late
    break_(late, "state.json", lambda state: state.update(worse_windows=1))
    break_(late, "manifest.json", lambda m: m["sha256"].update({"state.json": sha256(late / "state.json")}))
    assert checkpoint.latest_good(run) == before[-1]
    for one in before:
        shutil.rmtree(one)
    assert checkpoint.latest_good(run) == late


def test_a_run_whose_time_is_over_at_once_can_go_on(tmp_path: Path) -> None:
    text, settings = ListCorpus(bundled_pairs(60)), quick_settings(training={"minutes": 1e-6, "steps": None})
    assert fit(tmp_path / "r", text, None, settings).step == 0
    outcome = fit(tmp_path / "r", text, None, compose({"training": {"minutes": None, "steps": 3}}, base=settings))
    assert outcome.step == 3


def test_patience_is_nothing_that_a_decay_is_fitted_to() -> None:
    assert (
        Limits(5, None, 2.0, 3).of_decay()
        == Limits(5, None, 2.0, None).of_decay()
        != Limits(6, None, 2.0, 3).of_decay()
    )


def test_how_often_a_text_is_read_changes_no_guess(tmp_path: Path) -> None:
    pairs = list(dict.fromkeys(bundled_pairs(40, seed=5)))
    settings = quick_settings(text={"vocabulary": 200})
    tokenizers, corpus = Tokenizers.train(pairs, settings.text), ListCorpus(pairs)
    job, digest = Job(tokenizers, settings.data, None), survey(corpus).digest
    once, often = (
        build_stores(corpus, digest, [Part(job, lambda _: True, weights=weights)], tmp_path)[0]
        for weights in ((), ((len(pairs), 10),))
    )
    assert guess_loss(often) == pytest.approx(guess_loss(once))


def test_base_is_complete() -> None:
    assert compose(BASE, {"training": {"minutes": 1}}).optimizer.schedule == "wsd"


def test_a_model_of_no_use_is_called_so(tmp_path: Path) -> None:
    notes = Notes()
    text, valid = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(20, seed=2))
    fit(tmp_path / "r", text, valid, quick_settings(training={"steps": 2, "validate_every": 2}), notes)
    assert any("this model is of no use yet: its validation loss is" in words for words in notes.said)
    assert any("20 validation lines, too few to judge by" in words for words in notes.said)
    assert any("the least bad (best) weights are the model" in words for words in notes.said)
    assert "give it more time (--minutes)" in divergence.unusable(Validation(6.0, 1.0), 1.0, 6.0, 500)
    assert not any("best so far" in words for words in notes.said)
    assert divergence.unusable(Validation(2.0, 30.0), 30.0, 6.0, 500) == ""
    assert divergence.unusable(None, None, 6.0, 0) == ""


def test_an_unfinished_run_can_be_used_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, valid = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(5, seed=2))
    run, source = tmp_path / "r", tmp_path / "in"
    outcome = fit(run, text, valid, quick_settings(training={"validate_every": 1000}), pause_after=1e-6)
    assert not outcome.complete
    source.write_text("ein bier\n")
    assert cli.main(["translate", str(run), str(source)]) == 0
    assert "is not trained to its end (step" in capsys.readouterr().err
    assert cli.main(["translate", str(run), str(source), "--weights", "last"]) == 0


def test_a_file_that_says_null_begins_with_nothing(tmp_path: Path) -> None:
    """As every config.yaml of ours does: a preset goes with it."""
    (tmp_path / "c.yaml").write_text("training: {start: null, steps: 3}\n")
    resolved = resolve(tmp_path / "run", "tiny", tmp_path / "c.yaml", {}, "translate")
    assert settings_of(resolved).training.start is None
