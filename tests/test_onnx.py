"""ONNX: the same numbers in another runtime, and a program that needs nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Notes, break_, bundled_pairs, some_text

import transduce
from transduce.commands.convert import convert
from transduce.core import transformer
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN
from transduce.errors import ModelError, SettingsError
from transduce.formats import onnx_out
from transduce.settings.sections import ModelSettings

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is run by onnxruntime")
PAIRS = bundled_pairs(100)
SIZES = {"layers": 2, "decoder_layers": 1, "d_model": 24, "d_ff": 40, "heads": 3, "max_positions": 60}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("onnx") / "run"
    training = {"steps": 60, "validate_every": 60}
    shape = {"model": {**SIZES, "dropout": 0.0}, "data": {"max_tokens": 60}}
    transduce.train(run, PAIRS, preset="tiny", report=Notes(), training=training, **shape)
    return run


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "before", "activation": "relu", "positions": "sinusoid"},
        {"norm": "after", "activation": "gelu", "positions": "learned", "output_bias": True, "embedding_norm": True},
        {"norm": "after", "activation": "swish", "positions": "halves", "scale": "projection", "tie_output": False},
        {"norm": "before", "score": "dot", "d_k": 5, "d_v": 7, "attention_bias": False, "scale": "none"},
    ],
)
def test_the_same_logits(changes: dict[str, Any]) -> None:
    """Two sentences of different length in one batch, step by step, to 1e-4."""
    torch.manual_seed(1)
    model = transformer.build(ModelSettings(**{**SIZES, "tie_source": False, **changes}), 50, 60).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    graphs = onnx_out.files(model)
    encoder, decoder = (onnxruntime.InferenceSession(graphs[f"{name}.onnx"]) for name in ("encoder", "decoder"))
    source = lay_out([[[5, 6, 7, 3]], [[9, 8, 12, 20, 33, 3]]])
    target = lay_out([[[BEGIN, 5, 9, 30]], [[BEGIN, 14, 4, 8]]])
    seen = (source.segments != 0).numpy()
    memory = encoder.run(None, {"tokens": source.tokens.numpy(), "seen": seen})
    fed = dict(zip([output.name for output in encoder.get_outputs()], memory, strict=True))
    shapes = {i.name: i.shape for i in decoder.get_inputs() if i.name.startswith("past_")}
    past = {name: np.zeros((2, shape[1], 0, shape[3]), np.float32) for name, shape in shapes.items()}
    names = [output.name for output in decoder.get_outputs()]
    with torch.no_grad():
        expected = model(source, target).numpy()
    for step in range(4):
        tokens = target.tokens[:, step : step + 1].numpy()
        found = decoder.run(None, {**fed, **past, "tokens": tokens, "seen": seen, "position": np.array([step])})
        assert np.allclose(found[0], expected[:, step], atol=1e-4)
        past = {f"past_{name}": value for name, value in zip(names[1:], found[1:], strict=True)}


@pytest.mark.parametrize(
    ("beam", "stop", "forced"), [(1, "usual", False), (3, "usual", True), (3, "likely", True), (3, "exact", False)]
)
def test_its_program_translates_alike_and_needs_no_torch(
    trained: Path, tmp_path: Path, beam: int, stop: str, forced: bool
) -> None:
    convert(trained, tmp_path / "out", to="onnx", text=some_text(tmp_path), check=True)
    break_(tmp_path / "out", "model.json", lambda facts: facts.update(stop=stop, forced_end=forced, extra=0))
    lines = [source for source, _ in PAIRS]
    program = [sys.executable, str(tmp_path / "out" / "translate.py"), "--beam", str(beam)]
    locale = {**os.environ, "PYTHONIOENCODING": "latin-1"}  # text is UTF-8 all the same
    typed = "\n".join([*lines, ""])
    done = subprocess.run(program, input=typed, capture_output=True, encoding="utf-8", env=locale, check=True)
    how = {"beam": beam, "stop": stop, "forced_end": forced, "extra": 0}  # so little room that many run into it
    ours = transduce.load(trained, "cpu", split=False, **how).translate(lines)
    assert stop == "exact" or any(t.status == "length" for t in ours)  # which finds some that end
    assert done.stdout.split("\n")[:-1] == [t.text for t in ours]
    code = "import sys, runpy; sys.argv = ['x', '-h']\ntry: runpy.run_path(sys.argv[0])\nexcept SystemExit: pass\n"
    code = code.replace("sys.argv[0]", repr(str(tmp_path / "out" / "translate.py")))
    code += "print('torch' in sys.modules, 'transduce' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip().endswith("False False")


def test_whole_numbers_are_smaller(trained: Path, tmp_path: Path) -> None:
    for name, quantization in (("out", None), ("small", "int8")):
        how: Any = {"to": "onnx", "quantization": quantization}
        convert(trained, tmp_path / name, text=some_text(tmp_path), **how)
    sizes = [(tmp_path / name / "encoder.onnx").stat().st_size for name in ("out", "small")]
    assert sizes[1] < sizes[0]
    with pytest.raises(SettingsError, match="onnx has int8"):
        convert(trained, tmp_path / "other", to="onnx", quantization="int16")


def test_what_it_cannot_express_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "rnn"
    transduce.train(run, PAIRS, preset="rnn", report=Notes(), training={"steps": 1}, model={"d_model": 16})
    with pytest.raises(ModelError, match="cannot go out to onnx, which takes Transformers only"):
        convert(run, tmp_path / "out", to="onnx")
    additive = transformer.build(ModelSettings(**{**SIZES, "score": "additive"}), 50, 50)
    assert onnx_out.why_not(additive) == "takes the dot scores only"
