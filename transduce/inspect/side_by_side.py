"""Two models on one page: the page of each, side by side, below each other where the window is narrow.

Each is complete in a frame of its own, so that heads, words and beams can be chosen apart; the frames share the policy
of the page that holds them, which allows their one script by its hash.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.errors import DataError
from transduce.files.output import write_output
from transduce.inspect.page import policy, render

if TYPE_CHECKING:
    from transduce.inspect.trace import Trace

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="transduce">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""
STYLE = """html, body { height: 100%; margin: 0; }
body { display: grid; gap: 1px; background: #888; }
body { grid-template-columns: repeat(auto-fit, minmax(min(100%, 40rem), 1fr)); }
iframe { width: 100%; height: 100%; min-height: 100vh; border: 0; background: Canvas; }"""


def around(title: str, style: str, body: str) -> str:
    """A page that holds attention pages in frames, and loads nothing; what it is given must be markup already."""
    return HEAD.format(policy=policy(), title=title, style=style, body=body)


def write_side_by_side(traces: Sequence[Trace], path: Path) -> Path:
    """The traces of several models for one sentence, as one file that loads nothing."""
    if path.suffix.lower() != ".html":
        raise DataError(f"cannot draw {path}: two models side by side are a page; end its name in .html")
    frames = "\n".join(
        f'<iframe title="{html.escape(trace.model)}" srcdoc="{html.escape(render(trace), quote=True)}"></iframe>'
        for trace in traces
    )
    title = f"Attention of two models: {html.escape(traces[0].text[:80])}"
    write_output(path, around(title, STYLE, frames).encode())
    return path
