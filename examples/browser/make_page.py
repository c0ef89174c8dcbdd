"""A translator as one HTML file that needs no server and no network: model, vocabulary and ONNX runtime are inside.

    npm install                                                      # in this folder: onnxruntime-web
    transduce convert runs/mine mine-onnx --to onnx --quantization int8
    python examples/browser/make_page.py mine-onnx -o translate.html

Open translate.html in any browser of today, also from the disk. It is as large as the model and the runtime (about 20
MB) together.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import onnxruntime
import sentencepiece

from transduce.formats.pieces import CONTROL, UNUSED, kind_of, read_pieces

HERE = Path(__file__).parent
RUNTIME = HERE / "node_modules" / "onnxruntime-web" / "dist"
GLUE, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"


def vocabulary(path: Path) -> dict[str, Any]:
    """How text is cut into pieces, with their scores; those that never stand in text have none."""
    model = path.read_bytes()
    hidden = (CONTROL, UNUSED)
    pieces = [[piece.text, None if piece.kind in hidden else piece.score] for piece in read_pieces(model)]
    return {"kind": kind_of(model), "pieces": pieces}


def facts(folder: Path) -> dict[str, Any]:
    """What the search needs to know: model.json, and the shape of the decoder's past."""
    decoder = onnxruntime.InferenceSession(str(folder / "decoder.onnx"), providers=["CPUExecutionProvider"])
    past = {i.name: [i.shape[1], i.shape[3]] for i in decoder.get_inputs() if i.name.startswith("past_")}
    return {**json.loads((folder / "model.json").read_text(encoding="utf-8")), "past": past}


def page(folder: Path, runtime: Path = RUNTIME) -> str:
    binary = {"encoder": folder / "encoder.onnx", "decoder": folder / "decoder.onnx"}
    binary |= {"glue": runtime / GLUE, "wasm": runtime / WASM}
    for name, path in binary.items():
        if not path.exists():
            way = "npm install in examples/browser" if name in ("glue", "wasm") else "transduce convert --to onnx"
            _refuse(f"there is no {path}; it comes from: {way}")
    for side in ("source", "target"):
        normalised = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.model")).normalize("ﬁ…")
        if normalised.strip("▁") != "ﬁ…":
            _refuse(f"{folder / side}.model has rules of its own for letters, as converted models do; text.js has none")
    data: dict[str, Any] = {name: base64.b64encode(path.read_bytes()).decode() for name, path in binary.items()}
    data |= {side: vocabulary(folder / f"{side}.model") for side in ("source", "target")}
    data["facts"] = facts(folder)
    held = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")  # nothing in it can end the script
    template = (HERE / "page.html").read_text(encoding="utf-8")
    return (
        template.replace("/* TEXT.JS */", (HERE / "text.js").read_text(encoding="utf-8"))
        .replace("/* SEARCH.JS */", (HERE / "search.js").read_text(encoding="utf-8"))
        .replace("{/* DATA */}", held)
    )  # last, so that nothing in it is replaced


def _refuse(sentence: str) -> NoReturn:
    print(f"make_page: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path, help="what transduce convert --to onnx has made")
    words.add_argument("-o", "--output", type=Path, default=Path("translate.html"))
    words.add_argument("--runtime", type=Path, default=RUNTIME, help="the folder dist of onnxruntime-web")
    given = words.parse_args()
    given.output.write_text(page(given.folder, given.runtime), encoding="utf-8")
    print(f"wrote {given.output}, {given.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
