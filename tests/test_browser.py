"""The example that makes a page which translates: its tokenizers against SentencePiece, its translations against ours."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import break_, bundled_pairs

import transduce
from transduce.commands.convert import convert
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise
from transduce.text.subwords import SubwordTokenizer

pytest.importorskip("onnxruntime", reason="ONNX is run by onnxruntime")
FOLDER = Path(__file__).parent.parent / "examples" / "browser"
ODD = ["", "   ", "a  b\tc", "Größe ﬁ ²", "日本語 😀 x", "e\u0301te\u0301", "ein_wort a▁b", "…!?"]


def example() -> Any:
    spec = importlib.util.spec_from_file_location("make_page", FOLDER / "make_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("fallback", [False, True])
def test_it_cuts_text_as_sentencepiece_does(browser: Any, tmp_path: Path, kind: Any, fallback: bool) -> None:
    lines = [pair[0] for pair in bundled_pairs(300)]
    settings = TextSettings(tokenizer=kind, vocabulary=600 if fallback else 300, byte_fallback=fallback)
    tokenizer = SubwordTokenizer.train(lines, settings)
    (tmp_path / "source.model").write_bytes(tokenizer.to_bytes())
    page = browser.new_page()
    page.add_script_tag(content=(FOLDER / "text.js").read_text(encoding="utf-8"))
    made = json.dumps(example().vocabulary(tmp_path / "source.model"))
    tried = [*lines[:40], *ODD]
    cut = "made => lines => { const v = new Vocabulary(made); return lines.map(l => [v.encode(l), v.decode(v.encode(l))]); }"
    found = page.evaluate(f"lines => ({cut})({made})(lines)", tried)
    for line, (ids, text) in zip(tried, found, strict=True):
        expected = tokenizer.encode([normalise(line)])[0]
        assert ids == expected, line
        known = [i for i in expected if i != 1]
        assert len(known) < len(expected) or text == tokenizer.decode(expected), line
    page.close()


@pytest.fixture(scope="module")
def converted(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not example().RUNTIME.exists():
        pytest.skip("onnxruntime-web is not installed: npm install in examples/browser")
    folder = tmp_path_factory.mktemp("browser") / "onnx"
    convert(model_folder, folder, to="onnx")
    return folder


@pytest.mark.parametrize("stop", ["likely", "exact"])
def test_it_translates_as_the_model_does(
    browser: Any, tmp_path: Path, model_folder: Path, converted: Path, stop: str
) -> None:
    shutil.copytree(converted, tmp_path / "onnx")
    break_(tmp_path / "onnx", "model.json", lambda facts: facts.update(stop=stop, forced_end=True, extra=0))
    (tmp_path / "page.html").write_text(example().page(tmp_path / "onnx"), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("window.translator", timeout=60_000)
    lines = [pair[0] for pair in bundled_pairs(12)]
    for beam in (1, 4):
        how = {"beam": beam, "stop": stop, "forced_end": True, "extra": 0}
        ours = transduce.load(model_folder, "cpu", split=False, **how).translate(lines)
        page.fill("#text", "\n".join(lines))
        page.select_option("#beam", str(beam))
        page.click("#go")
        page.wait_for_function("!document.getElementById('go').disabled", timeout=60_000)
        assert page.inner_text("#found").split("\n") == [t.text for t in ours]
    page.close()
