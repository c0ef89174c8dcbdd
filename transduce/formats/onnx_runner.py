"""Translate with a model that transduce has sent out as ONNX: numpy, onnxruntime and sentencepiece are all it needs.

    python translate.py FOLDER < text.de > text.en        [--beam 4]

This file lies in the folder as translate.py, and stands alone.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import sentencepiece

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
Arrays = dict[str, np.ndarray]
INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\ufeff]")


class Hypothesis(NamedTuple):
    tokens: list[int]
    score: float  # log-probability over the length penalty


class Translator:
    """The two graphs of a folder, and the vocabulary of each side."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.facts: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        self.stop, self.forced_end = self.facts.get("stop", "exact"), self.facts.get("forced_end", False)
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
            for name in ("encoder", "decoder")
        )
        self.source, self.target = (
            sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.model"))
            for side in ("source", "target")
        )
        sizes = range(self.source.get_piece_size())
        self.unused = {self.source.id_to_piece(i): i for i in sizes if self.source.is_unused(i)}
        self.past = {i.name: i.shape for i in self.decoder.get_inputs() if i.name.startswith("past_")}
        self.names = [output.name for output in self.decoder.get_outputs()]

    def translate(self, text: str, beam: int = 1) -> str:
        """The translation of one sentence."""
        positions = self.facts["positions"]
        ids = self.encode(normalised(text))[: positions - 1]
        if not ids:
            return ""
        most = max(1, min(len(ids) + self.facts["extra"] + 1, positions) - self.forced_end)
        tokens = self.search([*ids, END] if self.facts["source_end"] else ids, beam, most)
        return " ".join(self.target.decode([i for i in tokens if i > END]).split())

    def encode(self, text: str) -> list[int]:
        """Ids; what this side cannot cut may still be a token of the other, in a vocabulary that both share."""
        ids = self.source.encode(text)
        if UNKNOWN not in ids:
            return ids
        pieces = self.source.encode(text, out_type=str)
        return [self.unused.get(piece, i) if i == UNKNOWN else i for i, piece in zip(ids, pieces, strict=True)]

    def search(self, source: list[int], beam: int, most: int) -> list[int]:
        """The best of a beam; a beam of one is greedy."""
        memory, past = self.read(source)
        tokens, scores = np.array([[BEGIN]]), np.zeros(1)
        written: list[list[int]] = [[]]
        done: list[Hypothesis] = []
        for position in range(most):
            log_p, new = self.step(tokens, position, memory, past)
            log_p[:, [PAD, UNKNOWN, BEGIN]] = -np.inf
            total = scores[:, None] + log_p
            best = np.argsort(-total, axis=None, kind="stable")[: 2 * beam]
            parents, chosen = np.unravel_index(best, total.shape)
            ends = [(p, float(total[p, c])) for p, c in zip(parents[:beam], chosen[:beam], strict=False) if c == END]
            done += [Hypothesis(written[p], value / self.penalty(position + 1)) for p, value in ends]
            going_on = [(p, c) for p, c in zip(parents, chosen, strict=True) if c != END][:beam]
            may_stop = position + 1 < most or self.forced_end  # which would be one more step
            if may_stop and self.is_done(
                done, beam, total[going_on[0]], most if self.stop == "exact" else position + 1
            ):
                break
            rows_kept = np.array([p for p, _ in going_on])
            written = [[*written[p], int(c)] for p, c in going_on]
            scores = np.array([total[p, c] for p, c in going_on])
            tokens = np.array([[c] for _, c in going_on], np.int64)
            past = {name: value[rows_kept] for name, value in new.items()}
        else:  # at the limit what is open is taken as it is; by search.stop=exact only where nothing has ended
            penalty = self.penalty(most + self.forced_end)
            cut = [Hypothesis(w, s / penalty) for w, s in zip(written, scores, strict=True)]
            done = done if done and self.stop == "exact" else done + cut
        return max(done, key=lambda hypothesis: hypothesis.score).tokens

    def read(self, source: list[int]) -> tuple[Arrays, Arrays]:
        """What the decoder looks at, and its past, which is empty."""
        rows = np.array([source], np.int64)
        seen = np.ones_like(rows, bool)
        names = [output.name for output in self.encoder.get_outputs()]
        memory = dict(zip(names, self.encoder.run(None, {"tokens": rows, "seen": seen}), strict=True))
        past = {name: np.zeros((1, shape[1], 0, shape[3]), np.float32) for name, shape in self.past.items()}
        return {**memory, "seen": seen}, past

    def step(self, tokens: np.ndarray, position: int, memory: Arrays, past: Arrays) -> tuple[np.ndarray, Arrays]:
        """Log-probabilities of what comes after the last token of each hypothesis, and the past with it."""
        fed = {name: np.repeat(value, len(tokens), 0) for name, value in memory.items()} | past
        logits, *new = self.decoder.run(None, fed | {"tokens": tokens, "position": np.array([position])})
        log_p = logits - logits.max(-1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(-1, keepdims=True))
        return log_p, {f"past_{name}": value for name, value in zip(self.names[1:], new, strict=True)}

    def is_done(self, done: list[Hypothesis], beam: int, best_open: float, length: int) -> bool:
        """When as many have ended as are followed (search.stop=usual, and greedily); or so many, by `exact` one, that
        the best open one, were it of this length at no further cost, would not be among them."""
        if beam == 1 or self.stop == "usual":
            return len(done) >= beam
        hope = best_open / self.penalty(length)
        return sum(one.score >= hope for one in done) >= (1 if self.stop == "exact" else beam)

    def penalty(self, length: int) -> float:
        alpha = self.facts["length_penalty"]
        return float(length**alpha if self.facts["penalty"] == "plain" else ((5 + length) / 6) ** alpha)


def normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", INVISIBLE.sub("", text)).split())


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    words.add_argument("--beam", type=int, help="as the model was used before, if not given")
    given = words.parse_args()
    if not (given.folder / "model.json").is_file():
        words.error(f"{given.folder} is no folder with a model.json; text comes from standard input: < text.de")
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # whatever the locale says
    translator = Translator(given.folder)
    beam = given.beam or translator.facts.get("beam", 1)
    for line in sys.stdin:
        print(translator.translate(line, beam), flush=True)


if __name__ == "__main__":
    main()
