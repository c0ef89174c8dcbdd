"""One model sent out in every format: BLEU, size and speed of each by its own system, beside ours.

    python benchmarks/exports.py MODEL SOURCE.gz REFERENCE.gz [--lines 1000] [--beam 4]

Everybody translates sentence after sentence on the CPU, as a program that gets one at a time would. Writes JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import sentencepiece
import torch
from common import write
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from transduce.commands.convert import convert
from transduce.commands.send import PATIENCE
from transduce.data.lines import read_lines
from transduce.evaluate import bleu
from transduce.formats.hugging_face_out import nearest_power
from transduce.formats.onnx_runner import Translator as OnnxTranslator
from transduce.model import Model

Translate = Callable[[str], str]
FORMATS = {
    "CTranslate2 float32": ("ctranslate2", None),
    "CTranslate2 int8": ("ctranslate2", "int8"),
    "Argos int8": ("argos", "int8"),
    "Hugging Face": ("huggingface", None),
    "ONNX": ("onnx", None),
    "ONNX int8": ("onnx", "int8"),
}


def by_ctranslate2(folder: Path, beam: int, penalty: float) -> Translate:
    """With the length penalty and the patience that `convert` says."""
    translator = ctranslate2.Translator(str(folder), compute_type="default")
    models = [folder / f"{side}.spm" for side in ("source", "target")]
    source, target = (sentencepiece.SentencePieceProcessor(model_file=str(path)) for path in models)

    def translate(line: str) -> str:
        pieces = source.encode(line, out_type=str)
        found = translator.translate_batch([pieces], beam_size=beam, length_penalty=penalty, patience=PATIENCE)
        return target.decode_pieces(found[0].hypotheses[0])

    return translate


def by_argos(package: Path, beam: int, _: float) -> Translate:
    """As argostranslate does: one SentencePiece model for both sides, its length penalty."""
    import zipfile

    folder = package.with_suffix("")
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder)  # noqa: S202  (our own)
    inner = next(folder.iterdir())
    translator = ctranslate2.Translator(str(inner / "model"), compute_type="default")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(inner / "sentencepiece.model"))

    def translate(line: str) -> str:
        given = [pieces.encode(line, out_type=str)]
        found = translator.translate_batch(given, replace_unknowns=True, beam_size=beam, length_penalty=0.2)
        return pieces.decode_pieces(found[0].hypotheses[0]).replace("▁", " ").replace("_", " ")

    return translate


def by_hugging_face(folder: Path, beam: int, _: float) -> Translate:
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

    def translate(line: str) -> str:
        with torch.inference_mode():
            rows = tokenizer([line], return_tensors="pt")
            out = model.generate(**rows, num_beams=beam, do_sample=False, max_new_tokens=100, max_length=None)
        return str(tokenizer.decode(out[0], skip_special_tokens=True, use_source_tokenizer=False))

    return translate


def by_onnx(folder: Path, beam: int, _: float) -> Translate:
    runner = OnnxTranslator(folder)
    return lambda line: runner.translate(line, beam)


RULES = {  # by which others search, whatever the model says
    "transduce by the rules of Argos": {"penalty": "plain", "length_penalty": 0.2, "stop": "usual"},
}
SYSTEMS = {"ctranslate2": by_ctranslate2, "argos": by_argos, "huggingface": by_hugging_face, "onnx": by_onnx}


def measured(translate: Translate, lines: list[str], references: list[str]) -> dict[str, float]:
    translate(lines[0])
    begin = time.perf_counter()
    texts = [translate(line) for line in lines]
    seconds = time.perf_counter() - begin
    return {"BLEU": round(bleu(texts, references), 2), "sentences a second": round(len(lines) / seconds, 1)}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model", type=Path)
    words.add_argument("source")
    words.add_argument("reference")
    words.add_argument("--lines", type=int, default=1000)
    words.add_argument("--beam", type=int, default=4)
    words.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = words.parse_args()
    lines, references = (list(read_lines(path))[: given.lines] for path in (given.source, given.reference))
    ours = Model.load(given.model, "cpu", beam=given.beam, split=False)
    ours.warm_up()
    size = (given.model / "model.safetensors").stat().st_size
    mine = measured(lambda line: ours.translate(line).text, lines, references)
    found = {"transduce": {**mine, "megabytes": size / 1e6}}
    for name, changes in RULES.items():
        other = ours.with_search(**changes)
        found[name] = measured(lambda line, other=other: other.translate(line).text, lines, references)
    for name, (to, quantization) in FORMATS.items():
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary) / ("x.argosmodel" if to == "argos" else "out")
            spoken = {"source_language": "de", "target_language": "en"} if to == "argos" else {}
            convert(given.model, place, to=to, quantization=quantization, text=given.source, **spoken)  # type: ignore[arg-type]
            files = [place] if place.is_file() else list(place.iterdir())
            size = sum(path.stat().st_size for path in files)
            system = SYSTEMS[to](place, given.beam, nearest_power(ours.search))
            found[name] = {**measured(system, lines, references), "megabytes": size / 1e6}
        torch.set_num_threads(2)
        print(name, json.dumps(found[name]), flush=True)
    write(given.output, "exports", {"lines": len(lines), "beam": given.beam, "systems": found})


if __name__ == "__main__":
    main()
