"""Programs in colours, by Pygments, which comes with rich."""

from __future__ import annotations

import html
import importlib
from typing import Any

from tilewright.report.markup import Html, escape

_LEXERS = {"opencl": "c"}

#: The kinds of words that :mod:`tilewright.report.style` colours, by Pygments' short names.
COLOURED = frozenset("k kc kd kn kr kt ow mi mf mh m il s s1 s2 sd c c1 cm cp cpf nf nb".split())


def highlight(text: str, language: str) -> Html:
    """``text`` as markup; plain where Pygments is missing or knows no such language."""
    try:
        lexers: Any = importlib.import_module("pygments.lexers")
        names: Any = importlib.import_module("pygments.token")
        lexer = lexers.get_lexer_by_name(_LEXERS.get(language, language), stripnl=False)
    except (ImportError, LookupError, ValueError):
        return escape(text)
    parts = []
    for kind, word in lexer.get_tokens(text):
        short = names.STANDARD_TYPES.get(kind, "")
        plain = html.escape(word, quote=False)
        parts.append(f'<span class="{short}">{plain}</span>' if short in COLOURED else plain)
    return Html("".join(parts).rstrip("\n"))
