"""One page with every head, in one file that needs nothing else: no network, no server, no library.

The data travels as JSON inside the page, the weights as bytes in base64. The script only ever sets text, never markup,
and the page's own policy lets no other script run, so a sentence can say what it likes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from transduce.files.output import write_output
from transduce.inspect.kinds import ATTENTION_KINDS
from transduce.inspect.words import words

if TYPE_CHECKING:
    from transduce.inspect.trace import Trace

ENOUGH = 400_000  # weights on a page up to which each gets two bytes; beyond, one


def write(trace: Trace, path: Path) -> Path:
    """The page as a file."""
    write_output(path, render(trace).encode())
    return path


def render(trace: Trace) -> str:
    """The page as text."""
    title = html.escape(trace.text[:80]).replace("@", "&#64;")
    return filled("page", _facts(trace), {"TITLE": title, "STYLE": _part("page.css")})


def filled(page: str, facts: dict, parts: dict[str, str]) -> str:
    """The frame page.html with its script page.js, what that reads, and other parts."""
    frame, content = _part(f"{page}.html"), json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    parts = {
        **parts,
        "POLICY": policy(f"{page}.js"),
        # nothing in it can end the element that holds it, or look like a place to fill
        "FACTS": content.replace("<", "\\u003c").replace("@", "\\u0040"),
        "SCRIPT": _part(f"{page}.js"),
    }
    for name, content in parts.items():
        before, after = frame.split(f"@{name}@")
        frame = before + content + after
    return frame


def policy(script: str = "page.js") -> str:
    """What a browser may do on a page: one script, known by its hash, and nothing from elsewhere."""
    allowed = base64.b64encode(hashlib.sha256(_part(script).encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"


def _part(name: str) -> str:
    return files("transduce.inspect").joinpath(name).read_text(encoding="utf-8")


def _facts(trace: Trace) -> dict:
    """What the script reads."""
    total = sum(trace.weights(kind).size for kind in trace.kinds())
    kind_of_number, largest = (np.uint16, 65535) if total <= ENOUGH else (np.uint8, 255)
    maps = {}
    for kind in trace.kinds():
        weights, (queries, keys) = trace.weights(kind), trace.axes(kind)
        roots = np.sqrt(weights)  # so that small weights keep their digits
        packed = np.rint(roots * largest).astype(kind_of_number).tobytes()
        maps[kind] = {
            "name": ATTENTION_KINDS[kind],
            "layers": weights.shape[0],
            "heads": weights.shape[1],
            "queries": queries,
            "keys": keys,
            "query_words": list(range(len(queries))) if trace.whole_words else words(queries),
            "key_words": list(range(len(keys))) if trace.whole_words else words(keys),
            "entropy": [[round(float(x), 3) for x in row] for row in trace.entropy(kind)],
            "weights": base64.b64encode(packed).decode(),
        }
    return {
        "model": trace.model,
        "text": trace.text,
        "translation": trace.translation,
        "largest": largest,
        "maps": maps,
        "alignment": [[target, source, round(weight, 3)] for target, source, weight in trace.alignment()],
        "steps": [
            {"token": token, "p": round(p, 4), "next": [[name, round(q, 4)] for name, q in best]}
            for token, p, best in zip(trace.target, trace.probabilities, trace.next_tokens, strict=True)
        ],
        "beams": [[node.token, node.parent, round(node.score, 3), int(node.kept)] for node in trace.beams],
    }
