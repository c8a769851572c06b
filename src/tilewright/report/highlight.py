"""Programs in colours, by Pygments, which comes with rich."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.report.markup import Html, escape

_LEXERS = {"opencl": "c", "cuda": "cuda", "llvm": "llvm", "python": "python", "c": "c"}


def highlight(text: str, language: str) -> Html:
    """``text`` as markup whose classes :mod:`tilewright.report.style` colours."""
    try:
        pygments: Any = importlib.import_module("pygments")
        lexers: Any = importlib.import_module("pygments.lexers")
        formatters: Any = importlib.import_module("pygments.formatters")
    except ImportError:
        return escape(text)
    lexer = lexers.get_lexer_by_name(_LEXERS.get(language, language), stripnl=False)
    return Html(pygments.highlight(text, lexer, formatters.HtmlFormatter(nowrap=True)).rstrip("\n"))
