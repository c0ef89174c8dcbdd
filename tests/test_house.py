"""The house: imports point one way, heavy libraries have one door each, only cli.py prints; and how it is tested."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import pytest_configure, pytest_runtest_setup, skipped_by_reason

PACKAGE = Path(__file__).parent.parent / "transduce"

# Lower rooms first. Rooms on one floor do not see each other.
FLOORS = [
    {"errors", "report", "signals", "compiled"},
    {"files", "arguments"},
    {"settings"},
    {"core", "evaluate"},
    {"text"},
    {"models", "data", "bundled"},
    {"fast", "decoding", "adapt"},
    {"formats", "fasttext"},
    {"engine"},
    {"training"},
    {"inspect"},
    {"model"},
    {"commands"},
    {"terminal", "usage"},
    {"cli"},
    {"__init__", "__main__"},
]
# The front door gives what cli needs of it: the version.
DOOR = {("cli", "__init__")}
ONE_DOOR = {
    "sentencepiece": ["text/subwords.py", "formats/onnx_runner.py"],  # the second is a program for others
    "safetensors": ["files/arrays.py", "models/weights.py"],
    "sacrebleu": ["evaluate.py"],
    "matplotlib": ["inspect/plots.py"],
    "tensorboard": [],  # through torch, in training/tensorboard.py
    "rich": ["terminal.py"],
    "yaml": ["settings/config_file.py"],
    "ftfy": ["data/doctor.py"],
    "sentencex": ["text/sentences.py"],
    "ctranslate2": ["formats/ctranslate2_out.py"],
    "llvmlite": ["compiled.py"],
    "huggingface_hub": ["formats/hub.py"],
    "tokenizers": ["text/byte_level.py"],
    "sacremoses": ["text/moses.py"],
    "onnx": ["formats/onnx_out.py"],
    "onnxruntime": ["formats/onnx_out.py", "formats/onnx_runner.py"],
    "transformers": ["formats/hugging_face_out.py"],
    "charset_normalizer": ["data/encoding.py"],
    "pyarrow": ["data/parquet.py"],
    "backports": ["data/packed.py"],
    "numba": ["compiled.py"],
}
LIGHT = (
    "torch",
    "numpy",
    "sentencepiece",
    "matplotlib",
    "sacrebleu",
    "pyarrow",
    "charset_normalizer",
)  # what a quick question must not load


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> list[str]:
    """Modules that a file imports anywhere, but for those only type checkers see."""
    found = []
    skip: set[ast.AST] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skip.update(child for statement in node.body for child in ast.walk(statement))
        if node in skip:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def room(module: str) -> str:
    parts = module.split(".")
    known = {name for floor in FLOORS for name in floor}
    return parts[1] if len(parts) > 1 and parts[1] in known else "__init__"


def wrong_arrows(package: Path) -> list[str]:
    floor = {name: height for height, names in enumerate(FLOORS) for name in names}
    wrong = []
    for path in sorted(package.rglob("*.py")):
        here = path.relative_to(package).parts[0].removesuffix(".py")
        for module in imports(path):
            if not (module == "transduce" or module.startswith("transduce.")):
                continue
            there = room(module)
            if here == there or (here, there) in DOOR:
                continue
            if floor[here] <= floor[there]:
                wrong.append(f"{path.relative_to(package)} imports {module}")
    return wrong


def test_imports_point_one_way() -> None:
    assert wrong_arrows(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("core/attention.py", "from transduce.models.load import load"),
        ("data/store.py", "import transduce.models.load"),
        ("core/search.py", "def late():\n    from transduce.training import loss"),
        ("errors.py", "from transduce import settings"),
        ("files/metrics.py", "from transduce.settings.sections import Settings"),
    ],
)
def test_a_turned_arrow_is_found(tmp_path: Path, file: str, line: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(line)
    assert len(wrong_arrows(tmp_path)) == 1


def test_every_file_stands_on_a_floor() -> None:
    known = {name for floor in FLOORS for name in floor}
    assert {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")} == known


@pytest.mark.parametrize("library", ONE_DOOR)
def test_a_library_has_one_door(library: str) -> None:
    doors = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(module.split(".")[0] == library for module in imports(path))
    ]
    assert sorted(doors) == sorted(ONE_DOOR[library])


def test_triton_stays_in_its_room() -> None:
    users = [
        path for path in PACKAGE.rglob("*.py") if any(module.split(".")[0] == "triton" for module in imports(path))
    ]
    assert users
    assert {path.parent for path in users} == {PACKAGE / "fast" / "kernels"}


def test_only_the_command_line_prints_and_exits() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.name in ("cli.py", "onnx_runner.py"):  # the second is written into a folder, and run there
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "sys.exit", "exit", "sys.stdout.write"), path


def test_nothing_is_unpickled() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for unpickles in ("torch.load(", "import pickle", "_object(", "allow_pickle"):  # _object: torch.distributed's
            assert unpickles not in text, (path, unpickles)


def loads(arguments: list[str], cwd: Path) -> tuple[set[str], str]:
    """The heavy libraries that a command loads, and what it prints."""
    program = (
        f"import sys, transduce.cli as c\ncode = c.main({arguments!r})\n"
        f"print(*({set(LIGHT)!r} & set(sys.modules)), file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split()) & set(LIGHT), done.stdout


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded, shown = loads(["--help"], tmp_path)
    assert not loaded
    for command in (
        "demo",
        "train",
        "translate",
        "evaluate",
        "score",
        "bench",
        "presets",
        "settings",
        "corpus",
        "plot",
    ):
        assert f"transduce {command}" in shown, command


@pytest.mark.parametrize(
    "words", [["runs", "."], ["watch", "run", "--once"], ["presets"], ["settings"], ["completion", "zsh"]]
)
def test_quick_questions_load_neither_torch_nor_sentencepiece(
    words: list[str], tmp_path: Path, model_folder: Path
) -> None:
    (tmp_path / "run").symlink_to(model_folder)
    loaded, _ = loads([str(tmp_path / "run") if word == "run" else word for word in words], model_folder.parent)
    assert not loaded & {"torch", "sentencepiece"}


# ---- how tests are run


def asked(words: str) -> SimpleNamespace:
    """What pytest was asked for by `-m`."""
    return SimpleNamespace(option=SimpleNamespace(markexpr=words))


def test_nothing_here_sees_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not torch.cuda.is_available()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    pytest_configure(asked("gpu"))  # type: ignore[arg-type]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    pytest_configure(asked(""))  # type: ignore[arg-type]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(("words", "reason"), [("", "make test-gpu"), ("gpu", "there is no GPU on this machine")])
def test_what_needs_a_gpu_says_so(words: str, reason: str) -> None:
    def item(marker: object) -> pytest.Item:
        return SimpleNamespace(config=asked(words), get_closest_marker=lambda _: marker)  # type: ignore[return-value]

    pytest_runtest_setup(item(None))
    with pytest.raises(pytest.skip.Exception, match=reason):
        pytest_runtest_setup(item(pytest.mark.gpu.mark))


def test_skips_are_told_by_their_reason() -> None:
    def skipped(reason: str) -> tuple[str, int, str]:
        return ("test_x.py", 7, f"Skipped: {reason}")

    reasons = ["no GPU", "no fish", "no GPU"]
    reports = [
        pytest.TestReport(str(i), ("test_x.py", 7, "x"), {}, "skipped", skipped(reason), "setup")
        for i, reason in enumerate(reasons)
    ]
    file = pytest.CollectReport("test_y.py", "skipped", skipped("no fish"), [])
    told = [line.strip() for line in skipped_by_reason([*reports, file])]
    assert told == ["", "skipped:", "2 tests: no GPU", "1 test: no fish", "1 file: no fish"]
    assert skipped_by_reason([]) == []
