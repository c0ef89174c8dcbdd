"""What tests share: small corpora that the project makes itself, and one small trained model."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from interpreter import interpreter

from transduce.bundled.corpus import bundled
from transduce.core import transformer
from transduce.core.layout import lay_out
from transduce.core.rows import Rows
from transduce.core.special import BEGIN, END
from transduce.data.corpus import ListCorpus
from transduce.inspect.curve import curve_at_the_end
from transduce.report import Report
from transduce.settings.compose import compose
from transduce.settings.sections import ModelSettings, Settings
from transduce.training import pairing
from transduce.training.resolve import resolve
from transduce.training.setup import fit

# A model of different sizes on every axis, so that a transposed shape cannot pass.
SMALL = ModelSettings(layers=2, decoder_layers=3, d_model=24, d_ff=40, heads=3, d_k=5, d_v=7, dropout=0.0)
SOURCE_WORDS, TARGET_WORDS = 29, 31


GPU_ONLY = "gpu"  # what `-m` says when the tests that need a GPU, and they alone, are to run


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPU from all other tests and from the processes that they start, xdist's too: they are to run as on a
    machine without one. CUDA looks for its devices when they are first used, which is after this."""
    if config.option.markexpr != GPU_ONLY:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    if item.config.option.markexpr != GPU_ONLY:
        pytest.skip("needs a GPU, and no other test beside it: make test-gpu")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU on this machine")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested, and why."""
    for line in skipped_by_reason(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


def skipped_by_reason(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """A line for each reason, with how many tests were skipped for it, or files as a whole."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in reports:
        assert isinstance(report.longrepr, tuple | list)  # file, line, reason
        kind = "file" if isinstance(report, pytest.CollectReport) else "test"
        counts[kind, report.longrepr[2].removeprefix("Skipped: ")] += 1
    if not counts:
        return []
    lines = [f"{counted(count, kind)}: {reason}" for (kind, reason), count in counts.most_common()]
    return ["", "skipped:", *(f"  {line}" for line in lines)]


def counted(count: int, kind: str) -> str:
    return f"{count} {kind}" if count == 1 else f"{count} {kind}s"


class Notes(Report):
    """What was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    warn = say


def small_model(seed: int = 0, **changes: object) -> transformer.Transformer:
    torch.manual_seed(seed)
    settings = ModelSettings(**{**SMALL.__dict__, "tie_source": False, **changes})  # type: ignore[arg-type]
    model = transformer.build(settings, TARGET_WORDS if settings.tie_source else SOURCE_WORDS, TARGET_WORDS)
    for name, weight in model.named_parameters():  # biases and norms at their start would hide mistakes
        if name.endswith(("bias", "norm.weight")):
            torch.nn.init.normal_(weight, 0.5, 0.3)
    return model.eval()


def source_rows(*sentences: list[int]) -> Rows:
    return lay_out([[[*s, END]] for s in sentences])


def target_rows(*sentences: list[int]) -> Rows:
    return lay_out([[[BEGIN, *s]] for s in sentences])


def quick_settings(**sections: dict) -> Settings:
    """A run that takes a second or two."""
    base = {
        "model": {"layers": 1, "d_model": 32, "d_ff": 48, "heads": 2, "max_positions": 64},
        "text": {"vocabulary": 300},
        "data": {"max_tokens": 60},
        "batch": {"tokens": 512},
        "optimizer": {"schedule": "constant", "rate": 3e-3, "warmup": 10},
        "training": {"steps": 8, "validate_every": 4, "log_every": 2, "bleu_lines": 10, "device": "cpu"},
    }
    return compose(base, sections)


def break_(folder: Path, name: str, change: Callable[[dict], None]) -> None:
    """Another content of a JSON file."""
    found = json.loads((folder / name).read_text())
    change(found)
    (folder / name).write_text(json.dumps(found))


def bundled_pairs(count: int = 300, seed: int = 1) -> list[tuple[str, str]]:
    return list(_bundled(count, seed))


@cache
def _bundled(count: int, seed: int) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in bundled(train=count, dev=0, test=0, seed=seed).train]


def some_text(folder: Path) -> str:
    """A file of few sentences to compare models with: random ones write until their last position."""
    path = folder / "some.de"
    path.write_text("".join(f"{source}\n" for source, _ in bundled_pairs(4)), encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    """CTranslate2 has PyTorch's OpenMP, and leaves its own number of threads there: more than cores make all slow."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_disks() -> Iterator[None]:
    """Only a power cut could tell whether files have reached the disk. Processes that tests start do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


ENOUGH = pairing.FEWEST


@pytest.fixture(scope="session", autouse=True)
def _no_doubt_of_pairs() -> Iterator[None]:
    """Whether a text is in order takes a tiny run more time than all else: test_pairing.py has it asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "FEWEST", sys.maxsize)
        yield


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained for a moment: it translates badly, but it translates."""
    run = tmp_path_factory.mktemp("runs") / "quick"
    settings = quick_settings(training={"steps": 60, "validate_every": 30}, search={"beam": 3})
    with curve_at_the_end(run, Report()):
        fit(run, ListCorpus(bundled_pairs()), ListCorpus(bundled_pairs(40, seed=2)), settings)
    return run


__all__ = ["SMALL", "bundled_pairs", "quick_settings", "resolve", "small_model", "source_rows", "target_rows"]


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Chromium, as the machine has it; nothing is downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no chromium on this machine")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def interpret() -> Iterator[Callable[[str], None]]:
    """What runs a program, and its kernels by Triton's interpreter, which not every NumPy can be used with."""
    pytest.importorskip("triton", reason="Triton is not installed")
    with interpreter() as run:
        if told := run("import tiny_kernel; tiny_kernel.try_it()"):
            pytest.skip(f"Triton's interpreter cannot run a tiny kernel here: {told.splitlines()[-1]}")

        def check(program: str) -> None:
            told = run(program)
            assert not told, told

        yield check
