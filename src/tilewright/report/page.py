"""A page of sections, and the parts that they are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tilewright.report.highlight import highlight
from tilewright.report.markup import Html, join, tag
from tilewright.report.style import STYLE


def page(title: str, *sections: Any, lead: Any = "", footer: Any = "") -> str:
    """A whole document that loads nothing; it follows the reader's choice of light or dark.

    ``lead`` stands under the title. Sections that :func:`section` made are listed above the first
    where there are several.
    """
    listed = [s for s in sections if isinstance(s, _Section)]
    contents = [tag("a", s.heading, href=f"#{s.anchor}") for s in listed]
    nav = tag("nav", join(contents, " "), aria_label="Sections") if len(contents) > 1 else ""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    header = tag("header", tag("h1", title), paragraph(lead) if lead else "", nav)
    parts = [header, tag("main", join(sections, "\n"))]
    if footer:
        parts.append(tag("footer", paragraph(footer)))
    return "<!DOCTYPE html>\n" + tag("html", head, tag("body", join(parts, "\n")), lang="en") + "\n"


class _Section(Html):
    """A section, which the page lists by its heading."""

    heading: str
    anchor: str


def section(heading: str, *parts: Any) -> Html:
    """A heading with what belongs to it."""
    anchor = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
    made = _Section(
        tag("section", tag("h2", heading, id=anchor), join(parts, "\n"), aria_labelledby=anchor)
    )
    made.heading, made.anchor = heading, anchor
    return made


def paragraph(*content: Any) -> Html:
    """A paragraph of text and markup."""
    return tag("p", *content)


def columns(*parts: Any) -> Html:
    """Parts beside each other where there is room."""
    return tag("div", join((tag("div", p) for p in parts), "\n"), class_="columns")


def cards(values: Mapping[str, Any]) -> Html:
    """A few figures in large letters, each with what it is."""
    made = (
        tag("div", tag("dd", value), tag("dt", name), class_="card")
        for name, value in values.items()
    )
    return tag("dl", join(made), class_="cards")


def facts(values: Mapping[str, Any]) -> Html:
    """Names with their values, one a line."""
    made = (tag("div", tag("dt", name), tag("dd", value)) for name, value in values.items())
    return tag("dl", join(made, "\n"), class_="facts")


def figure(chart: Html, caption: Any = "") -> Html:
    """A chart with a caption."""
    return tag("figure", chart, tag("figcaption", caption) if caption else "")


def legend(*names: Any) -> Html:
    """What the colours of a chart stand for, the first of its series first."""
    made = (
        tag("span", tag("i", class_=f"key-{number}"), name) for number, name in enumerate(names, 1)
    )
    return tag("p", join(made, " "), class_="legend")


def details(summary: Any, *content: Any, open: bool = False) -> Html:
    """What is shown when its ``summary`` is clicked."""
    return tag("details", tag("summary", summary), join(content, "\n"), open=open)


def code(text: str, language: str = "python", label: str = "code", most: int = 1500) -> Html:
    """A program in colours; of one longer than ``most`` lines, the beginning.

    ``language`` is "python" (also for the loops that Tilewright prints), "llvm", "cuda", "c".
    """
    lines = text.rstrip("\n").splitlines()
    shown = highlight("\n".join(lines[:most]), language)
    made = tag("pre", tag("code", shown), tabindex=0, role="region", aria_label=label)
    if len(lines) <= most:
        return made
    note = f"The first {most:,} of {len(lines):,} lines; kernel.source gives all of them."
    return Html(made + paragraph(note))
