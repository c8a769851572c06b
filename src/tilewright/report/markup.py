"""HTML as a type of its own, so that what is text is always escaped."""

from __future__ import annotations

import html
from typing import Any


class Html(str):
    """Markup; any other string is text."""

    __slots__ = ()


def escape(thing: Any) -> Html:
    """Text as markup; markup as it is."""
    return thing if isinstance(thing, Html) else Html(html.escape(str(thing)))


#: Elements that are closed by their own tag, in HTML and in SVG.
_EMPTY = frozenset("br col hr img meta link rect line circle path polyline".split())


def tag(name: str, /, *content: Any, **attributes: Any) -> Html:
    """``<name attributes>content</name>``.

    Attributes that are None or False are left out, True stands alone; a trailing underscore of a
    name is dropped (``class_``), the others become hyphens (``aria_label``).

    >>> tag("a", "x < y", href="#top", class_="link")
    '<a href="#top" class="link">x &lt; y</a>'
    >>> tag("td", 1, scope=None, hidden=True)
    '<td hidden>1</td>'
    """
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            words.append(f'{key}="{html.escape(str(value))}"')
    head = f"<{' '.join(words)}>"
    if name in _EMPTY and not content:
        return Html(head[:-1] + "/>")
    return Html(f"{head}{''.join(map(escape, content))}</{name}>")


def join(parts: Any, between: str = "") -> Html:
    """Markup and text one after the other."""
    return Html(between.join(map(escape, parts)))
