"""The book: every chapter is whole, every block of it runs, and the site loads nothing from elsewhere."""

from __future__ import annotations

import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from transduce import cli
from transduce.bundled import corpus
from transduce.commands import demo

ROOT = Path(__file__).parent.parent
CHAPTERS = sorted((ROOT / "docs" / "book").glob("[0-9]*.md"))
PAGES = [*CHAPTERS, ROOT / "docs" / "book" / "zh.md"]
QUICK = "--training.steps 4 --training.validate_every 2 --training.bleu_lines 4 --training.device cpu"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_all_its_parts(chapter: Path) -> None:
    text = chapter.read_text(encoding="utf-8")
    parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [re.sub(r"s$", "", part) for part in parts] == [
        "The idea",
        "The formula",
        "The code",
        "The picture",
        "The experiment",
    ]
    assert "```{literalinclude} /transduce/" in text
    assert re.search(r"^!\[.{10,}\]\(../images/.+\.png\)$", text, re.MULTILINE)
    assert blocks(chapter, "sh")
    known = {"python", "sh", "text", "{literalinclude} /transduce"}
    for opening in re.findall(r"^```(\S+(?: /transduce)?)", text, re.MULTILINE):
        assert opening in known, f"{opening}: nobody runs it"
    assert not re.search(r"^    \S", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the project's, with a quickly trained model as the demo's and a small bundled corpus."""
    (tmp_path / "runs").mkdir()
    shutil.copytree(model_folder, tmp_path / "runs" / "demo")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, count in (("train", 40), ("test", 6)):  # what examples/classify.py leaves
        labels = (("good", "fine film"), ("bad", "dull book"))
        lines = [f"__label__{label} the {text} {i}" for i in range(count) for label, text in labels]
        (tmp_path / "runs" / f"reviews.{name}").write_text("\n".join(lines) + "\n")
    small = corpus.bundled(train=300, dev=20, test=30)
    monkeypatch.setattr(corpus, "bundled", lambda **_: small)
    monkeypatch.setattr("transduce.training.prepare.bundled", lambda **_: small)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_command_of_a_page_runs(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but for training, which is cut to some steps."""
    for line in "".join(blocks(page, "sh")).splitlines():
        text, _, command = line.rpartition(" | ")
        words = shlex.split(command)
        if words[0] == "python":
            continue  # the examples have tests of their own
        assert words[0] == "transduce", line
        if text:
            raw = io.BytesIO(shlex.split(text)[1].encode() + b"\n")
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw, encoding="utf-8"))
        small = "--model.layers 1 --text.vocabulary 300 " + QUICK if words[1] == "train" else ""
        small = small.replace("--text.vocabulary 300", "") if "classify" in words else small
        small = QUICK if "--from" in words else small  # the model decides its shape
        assert cli.main([*words[1:], *small.split()]) == 0, line


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_python_block_of_a_page_runs(page: Path, place: Path) -> None:
    """The blocks assert what the page says of them."""
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), {})  # noqa: S102


@pytest.mark.parametrize("name", ["translate", "summarise", "classify"])
def test_the_examples_run(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a few steps; that they learn is said in their first lines and was tried by hand."""
    example = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    more = {"count": 300} if name == "summarise" else {}
    example["main"](str(place / "runs" / name), steps=4, **more)
    told = {"translate": "ich möchte ein bier  ->", "summarise": "summarised exactly", "classify": "macro-f1"}
    assert told[name] in capsys.readouterr().out


def test_the_demo_ends_with_a_page_and_a_curve(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "train", lambda run, report: None)  # it is trained already
    lines = list(demo.demo(Path("runs/demo")))
    page = next(line for line in lines if "every attention head" in line).split()[-1]
    curve = next(line for line in lines if "learning curve" in line).split()[-1]
    assert Path(page).stat().st_size > 10_000
    assert Path(curve).stat().st_size > 10_000


# ---- the site


class Links(HTMLParser):
    """What a page leads to, what it loads, and the places in it that can be led to."""

    def __init__(self) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" and value:
                self.places.add(value)
            if value and (name == "src" or (name == "href" and tag == "link")):
                self.loads.append(value)
            elif value and name == "href" and tag == "a":
                self.leads.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="Sphinx is not installed: make docs")
    pytest.importorskip("furo", reason="the theme is not installed: make docs")
    made = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(made)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return made


def test_no_link_is_dead_and_nothing_comes_from_elsewhere(site: Path) -> None:
    pages = {path: Links() for path in site.rglob("*.html")}
    assert len(pages) > 20
    for path, links in pages.items():
        links.feed(path.read_text(encoding="utf-8"))
    for path, links in pages.items():
        for target in links.loads:
            assert not urlparse(target).netloc, f"{path.name} loads {target}"
        for target in [*links.loads, *links.leads]:
            parts = urlparse(target)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert there.exists(), f"{path.relative_to(site)} leads to {target}"
            if parts.fragment and there in pages:
                assert parts.fragment in pages[there].places, f"{path.relative_to(site)} leads to {target}"


def test_formulas_are_drawn_without_a_script(site: Path) -> None:
    chapter = (site / "docs" / "book" / "01-attention.html").read_text(encoding="utf-8")
    assert "<math" in chapter
    assert "mathjax.js" not in chapter.lower()
    assert "def attend(" in re.sub(r"<[^>]+>", "", chapter)  # the code is there, from the source


def test_the_site_in_a_browser(site: Path, browser) -> None:
    page = browser.new_page()
    outside, wrong = [], []
    page.on("request", lambda request: None if request.url.startswith("file://") else outside.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    for name in ("index", "book/01-attention", "book/06-positions", "book/zh", "speed"):
        page.goto((site / "docs" / f"{name}.html").as_uri())
        assert page.locator("h1").count() == 1
        broken = "images => images.filter(image => !image.naturalWidth).map(image => image.src)"
        assert page.eval_on_selector_all("main img, article img", broken) == []
    assert outside == []
    assert wrong == []
