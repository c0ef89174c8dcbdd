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
    {"errors", "report", "signals", "compiled"},
    {"files", "arguments"},
    {"settings"},
    {"nn", "text", "evaluate"},
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
        ("nn/attention.py", "from transduce.models.seq2seq import Memory"),
        ("data/store.py", "import transduce.models.load"),
        ("decoding/search.py", "def late():\n    from transduce.training import loss"),
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
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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


# ---- sizes

LINES_OF_MOST = 30  # 95 % of functions
LINES_OF_A_BODY = 52  # any function, its docstring aside
LINES_OF_A_FILE = 350
METHODS, ATTRIBUTES, PARAMETERS = 15, 12, 8
WORD_LISTS = {"bundled/lexicon.py"}
SETTINGS = {"settings/sections.py"}  # records of settings have many fields


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function) else None
    end, begin = function.end_lineno or function.lineno, function.body[0].lineno
    if docstring is not None:
        begin = (docstring.end_lineno or begin) + 1
    return max(0, end - begin + 1)


def test_functions_fit_a_screen() -> None:
    sizes = {
        f"{path.relative_to(PACKAGE)}:{function.name}": body_lines(function)
        for path in PACKAGE.rglob("*.py")
        for function in functions(path)
    }
    assert sorted(sizes.values())[int(0.95 * len(sizes))] <= LINES_OF_MOST
    assert {name: size for name, size in sizes.items() if size > LINES_OF_A_BODY} == {}


def test_files_are_short() -> None:
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: n for name, n in lines.items() if n > LINES_OF_A_FILE and name not in WORD_LISTS} == {}


def attributes(node: ast.ClassDef) -> set[str]:
    """Names that a class sets on itself in __init__, or declares as fields."""
    names = {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for method in (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"):
        targets = [t for a in ast.walk(method) if isinstance(a, ast.Assign) for t in a.targets]
        targets += [a.target for a in ast.walk(method) if isinstance(a, ast.AnnAssign)]
        flat = [t for target in targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
        names |= {t.attr for t in flat if isinstance(t, ast.Attribute) and ast.unparse(t.value) == "self"}
    return names


# Plain data: where a run stands, what a model did, what a sentence says, what a search on a GPU knows.
RECORDS = {"RunState", "Trace", "Clause", "Slots"}


def test_classes_have_one_role() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef) or str(path.relative_to(PACKAGE)) in SETTINGS:
                continue
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            if len(methods) > METHODS:
                wrong.append(f"{node.name} has {len(methods)} methods")
            if len(attributes(node)) > ATTRIBUTES and node.name not in RECORDS:
                wrong.append(f"{node.name} has {len(attributes(node))} attributes")
    assert wrong == []


def test_functions_take_few_parameters() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if place.parts[0] == "commands" or "kernels" in place.parts:
            continue  # a flag each; and what a kernel reads
        for function in functions(path):
            names = [
                a.arg for a in [*function.args.args, *function.args.kwonlyargs] if a.arg not in ("self", "cls", "ctx")
            ]
            if len(names) > PARAMETERS:
                wrong.append(f"{place}:{function.name} takes {len(names)}")
    assert wrong == []
