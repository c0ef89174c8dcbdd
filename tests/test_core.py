"""The heart runs by itself: it imports nothing of ours, and its plain training makes the updates of the real one."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import bundled_pairs, quick_settings
from test_house import PACKAGE, imports

from transduce.core.layout import Lesson, lesson
from transduce.core.learn import learn
from transduce.core.special import END
from transduce.data.batches import Batches
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.models.kinds import new_model
from transduce.text.tokenizers import Tokenizers
from transduce.training.state import RunState
from transduce.training.updater import Updater

ROOT = PACKAGE.parent
CORE = sorted((PACKAGE / "core").glob("*.py"))
ALLOWED = {"transduce.errors", "transduce.settings.sections"}


def test_the_heart_imports_nothing_else_of_ours() -> None:
    named = {name.rpartition(".")[0] for path in CORE for name in imports(path) if name.startswith("transduce.")}
    ours = {module for module in named if not module.startswith("transduce.core")}
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in CORE)
    print(f"\ncore: {len(CORE) - 1} files, {lines:,} lines; of ours it imports {', '.join(sorted(ours))}")
    assert ours <= ALLOWED


@pytest.mark.parametrize(
    ("readme", "pattern"),
    [("README.md", r"(\d+) files, ([\d,]+) lines"), ("README.zh.md", r"(\d+) 个文件、([\d,]+) 行")],
)
def test_what_is_said_of_its_size_is_true(readme: str, pattern: str) -> None:
    """To the nearest hundred lines."""
    said = re.search(pattern, (ROOT / readme).read_text(encoding="utf-8"))
    assert said is not None
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in CORE)
    assert int(said.group(1)) == len(CORE) - 1  # but for __init__.py
    assert abs(int(said.group(2).replace(",", "")) - lines) <= 100


def test_a_lesson_is_what_is_read_and_what_is_written() -> None:
    source, target_in, target_out = lesson([([7, 8, 9], [5]), ([6], [4, 5])])
    assert source.tokens.tolist() == [[7, 8, 9, END], [6, END, 0, 0]]
    assert target_out.tolist() == [[5, END, 0], [4, 5, END]]
    assert target_in.tokens.tolist() == [[2, 5, 0], [2, 4, 5]]


def test_learning_makes_the_updates_of_the_updater(tmp_path: Path) -> None:
    """Loss and every weight, over five updates, from the same beginning."""
    settings = quick_settings(
        model={
            "dropout": 0.0,
            "attention_bias": False,
        },  # a key's bias has no gradient but rounding, which Adam enlarges
        optimizer={"schedule": "noam", "warmup": 30},
        training={"precision": "float32", "label_smoothing": 0.1},
    )
    pairs = bundled_pairs(200)
    tokenizers = Tokenizers.train(pairs, settings.text)
    store = build_store(ListCorpus(pairs), tokenizers, settings.data, tmp_path)
    batches = list(itertools.islice(Batches(store, settings.batch, seed=1).epoch(0), 5))

    def begin() -> torch.nn.Module:
        torch.manual_seed(3)
        return new_model(settings.model, tokenizers.source.size, tokenizers.target.size)

    plain, model = begin(), begin()
    adam = torch.optim.Adam(plain.parameters(), betas=(0.9, 0.98), eps=1e-9)
    lessons = [Lesson(batch.source, batch.target_in, batch.target_out) for batch in batches]
    steps = list(learn(plain, lessons, adam, settings.model.d_model, warmup=30))  # type: ignore[arg-type]

    updater, state = Updater(model, settings, "cpu"), RunState()  # type: ignore[arg-type]
    for (step, loss), batch in zip(steps, batches, strict=True):
        update = updater.update([batch], state)
        assert update.step == step
        assert float(update.total) / update.tokens == pytest.approx(loss, rel=1e-6)
    for (name, ours), theirs in zip(plain.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0, msg=name)


def test_the_example_learns_and_translates() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "learn.py"), "100"], capture_output=True, text=True, check=True
    )
    assert re.search(r"update 100: loss \d\.\d\d\n.* → .*\nBLEU \d+\.\d on 1000 new sentences", done.stdout)
