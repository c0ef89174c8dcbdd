"""Two models on the same text, on one page that loads nothing: their scores, where they differ most, and how they
looked at those sentences.

All text is escaped; the only scripts are those of the attention pages, each in its frame, allowed by their hash.
"""

from __future__ import annotations

import difflib
import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transduce.inspect.page import render
from transduce.inspect.side_by_side import around

if TYPE_CHECKING:
    from transduce.inspect.trace import Trace
    from transduce.report import Table

STYLE = """:root { color-scheme: light dark; font: 16px/1.45 system-ui, sans-serif; }
body { max-width: 75rem; margin: 1.5rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #8886; }
th:first-child, td:first-child { text-align: left; }
article { border-top: 1px solid #8886; padding: .8rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr max-content; gap: .15rem 1rem; margin: 0; }
dt, .score { color: #888; }
dd { margin: 0; }
mark { background: #f5b84155; color: inherit; border-radius: .2em; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1px; background: #8886; margin-top: .5rem; }
iframe { width: 100%; height: 48rem; border: 0; background: Canvas; }
summary { cursor: pointer; margin-top: .4rem; }
@media (max-width: 60rem) { .pair { grid-template-columns: 1fr; } }"""
BODY = """<h1>{title}</h1>
{scores}
<h2>Where they differ most</h2>
<p>{counts} Marked words are those that the other has not. The number behind a translation is its chrF.</p>
{lines}"""


@dataclass(frozen=True)
class Difference:
    """A line that two models translate differently."""

    number: int
    source: str
    reference: str
    texts: tuple[str, str]
    scores: tuple[float, float]  # chrF of each
    traces: tuple[Trace, Trace] | None = None  # how they looked at it


def compare_page(names: tuple[str, str], table: Table, counts: str, differences: Sequence[Difference]) -> str:
    """The page as text."""
    title = html.escape(f"{names[0]} and {names[1]}")
    lines = "\n".join(_article(names, one) for one in differences) or "<p>Nowhere: all translations are the same.</p>"
    counts = html.escape(counts)
    return around(title, STYLE, BODY.format(title=title, scores=_scores(table), counts=counts, lines=lines))


def _scores(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.heads)
    rows = (
        "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "<td></td>" * (len(table.heads) - len(row))
        for row in table.rows
    )
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    words = "".join(f"<p>{html.escape(line)}</p>" for line in (*table.above, *table.below) if line)
    return f"<table><tr>{head}</tr>\n{body}</table>\n{words}"


def _article(names: tuple[str, str], one: Difference) -> str:
    marked = _marked(*one.texts)
    rows = [("source", html.escape(one.source), ""), ("reference", html.escape(one.reference), "")]
    rows += [
        (name, text, f"{score:.0f}")
        for name, text, score in zip(map(html.escape, names), marked, one.scores, strict=True)
    ]
    listed = "".join(f'<dt>{name}</dt><dd>{text}</dd><dd class="score">{score}</dd>' for name, text, score in rows)
    return f"<article><h3>line {one.number:,}</h3><dl>{listed}</dl>{_frames(names, one)}</article>"


def _frames(names: tuple[str, str], one: Difference) -> str:
    """The attention pages of both, opened when somebody wants to see them."""
    if one.traces is None:
        return ""
    pages = (html.escape(render(trace), quote=True) for trace in one.traces)
    frames = "".join(
        f'<iframe loading="lazy" title="{html.escape(name)}" srcdoc="{page}"></iframe>'
        for name, page in zip(names, pages, strict=True)
    )
    return f'<details><summary>how they looked at it</summary><div class="pair">{frames}</div></details>'


def _marked(a: str, b: str) -> tuple[str, str]:
    """Both texts with the words marked that the other has not."""
    one, two = a.split(), b.split()
    shown: tuple[list[str], list[str]] = ([], [])
    for kind, i, j, k, m in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        for words, to in ((one[i:j], shown[0]), (two[k:m], shown[1])):
            text = html.escape(" ".join(words))
            if text:
                to.append(text if kind == "equal" else f"<mark>{text}</mark>")
    return " ".join(shown[0]), " ".join(shown[1])
