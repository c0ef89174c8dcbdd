"""What is installed is what is here: every module and data file of the package is in the wheel, and nothing else."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def package_files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in (root / "transduce").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"  # nor what numba has compiled
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and a source distribution, by the backend that pyproject.toml names, from a copy and without network."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools, the build backend, is not installed")
    copy = tmp_path_factory.mktemp("source") / "transduce"
    for name in ("transduce", "tests", "docs", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("[!.]*"):
        if path.is_file():
            shutil.copy(path, copy)
    out = copy.parent / "dist"
    out.mkdir()
    program = f"import setuptools.build_meta as b; b.build_wheel({str(out)!r}); b.build_sdist({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", program], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_the_wheel_holds_the_whole_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry = next(name for name in names if name.endswith("entry_points.txt"))
        assert "transduce = transduce.cli:entry" in archive.read(entry).decode()
    assert {name for name in names if ".dist-info/" not in name} == package_files(ROOT)
    assert {"transduce/py.typed", "transduce/inspect/page.html"} < set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_works_by_itself(built: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, with none of this folder in sight: help, settings and a page's templates."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        "import sys; sys.path.insert(0, '.'); import transduce; from importlib.resources import files; "
        "assert transduce.__file__.startswith(sys.argv[1]), transduce.__file__; "
        "assert files('transduce.inspect').joinpath('page.js').is_file(); "
        "from transduce.cli import main; sys.exit(main(['settings']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    assert done.returncode == 0, done.stderr
    assert "--model.layers" in done.stdout


def test_the_source_distribution_can_be_tested(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"constraints.txt", "CHANGELOG.md", "Makefile", "tests/conftest.py", "docs/usage.md", "LICENSE"}
    assert wanted | package_files(ROOT) <= names
