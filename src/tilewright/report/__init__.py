"""Pages and pictures: self-contained HTML with tables, code and charts, and nothing to load.

A page is put together from parts, each of which is :class:`Html`; every other string that goes
into it is text, and is escaped.

>>> from tilewright.report import page, section, table
>>> text = page("Times", section("Layers", table(["layer", "us"], [["a < b", 12.5]])))
>>> "a &lt; b" in text
True
"""

from tilewright.report.bars import Bar, bars
from tilewright.report.curves import Curve, Point, curves
from tilewright.report.markup import Html, tag
from tilewright.report.page import (
    cards,
    code,
    columns,
    details,
    facts,
    figure,
    legend,
    page,
    paragraph,
    section,
)
from tilewright.report.roofline import Kernel, Roof, roofline
from tilewright.report.table import table

__all__ = [
    "Bar", "Curve", "Html", "Kernel", "Point", "Roof", "bars", "cards", "code", "columns",
    "curves", "details", "facts", "figure", "legend", "page", "paragraph", "roofline", "section",
    "table", "tag",
]  # fmt: skip
