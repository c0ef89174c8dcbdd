"""The book as a site: `make docs` writes it to site/. Nothing in it is loaded from elsewhere when it is read."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert

project = "transduce"
author = "the transduce authors"
copyright = "the transduce authors"
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "README.zh.md", "CONTRIBUTING.md"]
exclude_patterns = ["docs/images/**", "docs/static/**"]
suppress_warnings = ["myst.header", "toc.not_readable"]
html_theme = "furo"
html_title = "transduce"
html_static_path = ["static"]
html_css_files = ["site.css"]  # room for lines of 120 characters
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def _math(display: str) -> Any:
    """Formulas become MathML here and now: browsers draw it themselves, no script and no font is fetched."""

    def visit(translator: Any, node: Any) -> None:
        made = convert(node.astext(), display=display)
        translator.body.append(f'<div class="math">{made}</div>' if display == "block" else made)
        raise translator_skip

    from docutils.nodes import SkipNode as translator_skip  # noqa: N813

    return visit


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (_math("inline"), None), (_math("block"), None))
