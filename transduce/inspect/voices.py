"""One page that shows which words and n-grams spoke for a label and which against; it needs nothing else."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.files.output import write_output
from transduce.inspect.side_by_side import around

if TYPE_CHECKING:
    from transduce.fasttext.labeller import Labeller, Voice

SHOWN = 60
STYLE = """:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 1.5rem auto; padding: 0 1rem; }
.line { font-size: 1.25rem; line-height: 2.2; }
.line span { padding: .15em .3em; border-radius: .3em; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
td, th { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #8886; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.bar { height: .8em; border-radius: .2em; }
.hint { color: #888; }"""
FOR, AGAINST = "0, 114, 178", "213, 94, 0"  # blue and orange, told apart by colour-blind readers too


def write_voices(labeller: Labeller, sentence: str, label: str, path: Path) -> Path:
    voices = labeller.explain(sentence, label)
    best = labeller.translate(sentence, n_best=8)
    largest = max((abs(voice.weight) for voice in voices), default=1.0) or 1.0
    weights = {voice.text: voice.weight for voice in voices}
    words = " ".join(_word(word, weights.get(word, 0.0) / largest) for word in sentence.split())
    labels = "".join(
        f'<tr><td>{html.escape(one.text)}</td><td class="number">{math.exp(one.score):.3f}</td></tr>'
        for one in best.candidates
    )
    rows = "".join(_row(voice, largest) for voice in voices[:SHOWN])
    title = html.escape(f"What spoke for {label}")
    body = (
        f'<h1>{title}</h1><p class="line" dir="auto">{words}</p>'
        f'<p class="hint">Blue speaks for the label, orange against it: each part of its score, less the mean of all '
        f"labels. {html.escape(repr(labeller)[1:-1])}</p>"
        f"<h2>The most probable labels</h2><table>{labels}</table>"
        f"<h2>Words and sequences of words</h2><table>{rows}</table>"
    )
    write_output(path, around(title, STYLE, body).encode())
    return path


def _colour(share: float) -> str:
    return f"rgba({FOR if share > 0 else AGAINST}, {min(1.0, abs(share)):.2f})"


def _word(word: str, share: float) -> str:
    return f'<span style="background: {_colour(0.6 * share)}">{html.escape(word)}</span>'


def _row(voice: Voice, largest: float) -> str:
    share = voice.weight / largest
    style = f"width: {100 * abs(share):.1f}%; background: {_colour(math.copysign(1, share))}"
    bar = f'<div class="bar" style="{style}"></div>'
    return (
        f'<tr><td dir="auto">{html.escape(voice.text)}</td><td class="number">{voice.weight:+.3f}</td>'
        f'<td style="width: 50%">{bar}</td></tr>'
    )
