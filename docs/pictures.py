"""The pictures of the book, drawn again:

    python docs/pictures.py runs/demo runs/rnn runs/rnn-attention runs/classify runs/transfer

runs/transfer is a folder with the three runs of chapter 13. The attention page's screenshots are made by
docs/screenshots.py.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

from transduce.cli import main as command
from transduce.inspect import plots

HERE = Path(__file__).parent
IMAGES = HERE / "images"


def hard_attention() -> None:
    """What the example of chapter 3 has learned: its weights for some sentences, and what it picks."""
    spec = importlib.util.spec_from_file_location("hard_attention", HERE.parent / "examples" / "hard_attention.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    made = plots.figure(10, 3.6, "Hard attention over seven words, eight sentences: × is the marked word, ○ the pick")
    for axis, (title, steps) in zip(
        made.subplots(1, 2),
        {"untrained": 0, "after 600 steps of the score-function estimator": 600}.items(),
        strict=True,
    ):
        model, _ = example.learned("sample", steps)
        torch.manual_seed(3)
        words, marks, _ = example.sentences(8)
        with torch.no_grad():
            weights = model.look(words, marks, "arg_max").weights.squeeze(1)
        image = axis.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.plot(marks.argmax(1), range(8), "x", color=plots.ORANGE, markersize=10)
        axis.plot(weights.argmax(1), range(8), "o", color="black", markersize=14, fillstyle="none")
        axis.set_title(title, fontsize=10)
        axis.set(xlabel="word", ylabel="sentence", xticks=range(7), yticks=range(8))
    made.colorbar(image, label="weight")
    plots.save(made, IMAGES / "hard-attention.png")


def main(demo: str, rnn: str, rnn_attention: str, classifier: str, headlines: str) -> None:
    for name in ("saturation", "positions", "masks", "schedule", "smoothing"):
        command(["plot", name, "-o", str(IMAGES / f"{name}.png")])
    sentence = "ich möchte ein bier trinken"
    command(["plot", "attention", demo, sentence, "--words", "-o", str(IMAGES / "attention-mean.png")])
    command(["plot", "lengths", rnn, rnn_attention, demo, "-o", str(IMAGES / "lengths.png")])
    command(["plot", "curve", demo, "-o", str(IMAGES / "demo-curve.png")])
    review = "the film that we saw today was hardly charming"
    command(["plot", "attention", classifier, review, "-o", str(IMAGES / "classifier.png")])
    hard_attention()
    command(["runs", headlines, "-o", str(IMAGES / "transfer.png")])
    command(["plot", "huffman", "-o", str(IMAGES / "huffman.png")])


if __name__ == "__main__":
    main(*sys.argv[1:])
