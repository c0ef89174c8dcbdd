"""The house: imports point one way, heavy libraries have one door each, only cli.py prints."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "transduce"

# Lower rooms first. Rooms on one floor do not see each other.
FLOORS = [
    {"errors", "config", "report"},
    {"nn", "text"},
    {"models", "data"},
    {"training", "decoding"},
    {"evaluate", "inspect"},
    {"model"},
    {"tasks"},
    {"terminal"},
    {"cli"},
    {"__init__", "__main__"},
]
# On the lowest floor the settings may raise errors.
SIBLINGS = {("config", "errors")}
# The front door gives what tasks and cli need of it: the version.
DOOR = {("cli", "__init__")}
ONE_DOOR = {
    "sentencepiece": "text/tokenizer.py",
    "safetensors": "models/folder.py",
    "sacrebleu": "evaluate.py",
    "matplotlib": "inspect/plots.py",
    "rich": "terminal.py",
    "yaml": "config.py",
}


def imports(path: Path) -> list[str]:
    """Modules that a file imports anywhere, but for those only type checkers see."""
    found = []
    skip: set[ast.AST] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
            if here == there or (here, there) in SIBLINGS | DOOR:
                continue
            if floor[here] <= floor[there]:
                wrong.append(f"{path.relative_to(package)} imports {module}")
    return wrong


def test_imports_point_one_way() -> None:
    assert wrong_arrows(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("nn/attention.py", "from transduce.models.seq2seq import Memory"),
        ("data/store.py", "import transduce.models.folder"),
        ("training/loss.py", "def late():\n    from transduce.decoding import search"),
        ("errors.py", "from transduce import config"),
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
    assert doors == [ONE_DOOR[library]]


def test_triton_stays_in_its_room() -> None:
    users = [
        path for path in PACKAGE.rglob("*.py") if any(module.split(".")[0] == "triton" for module in imports(path))
    ]
    assert users
    assert {path.parent for path in users} == {PACKAGE / "nn" / "kernels"}


def test_only_the_command_line_prints_and_exits() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.name == "cli.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "sys.exit", "exit", "sys.stdout.write"), path


def test_nothing_is_unpickled() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for unpickles in ("torch.load(", "import pickle", "_object(", "allow_pickle"):  # _object: torch.distributed's
            assert unpickles not in text, (path, unpickles)


def test_help_loads_no_torch() -> None:
    program = (
        "import sys, transduce.cli as c\ncode = c.main(['--help'])\n"
        "heavy = {'torch', 'numpy', 'sentencepiece', 'matplotlib', 'sacrebleu'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
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
        assert f"transduce {command}" in result.stdout, command
