"""Bars that lie: groups of a few, each with its own scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.report.markup import Html, join, tag
from tilewright.report.numbers import short

_ROW, _BAR, _HEAD, _GAP = 24, 16, 26, 14

#: The longest bar, in percent of the width; its label stands right of it, also on a telephone.
_LONGEST = 54


@dataclass(frozen=True)
class Bar:
    """``value`` of one ``series`` ("PyTorch"); ``note`` goes behind its label."""

    series: str
    value: float
    note: str = ""


def bars(
    title: str, groups: Mapping[str, Sequence[Bar]], unit: str = "", series: Sequence[str] = ()
) -> Html:
    """A chart of groups of bars; in each group the longest bar is the largest value.

    Positions across are percentages, so that the chart fills any width while its letters keep
    their size. ``series`` fixes the colours' order, by default that of appearance.
    """
    names = list(series) or list(dict.fromkeys(b.series for g in groups.values() for b in g))
    drawn, y = [], 0
    for heading, group in groups.items():
        drawn.append(tag("text", heading, x=0, y=y + 17, class_="heading"))
        y += _HEAD
        top = max((b.value for b in group), default=0.0)
        for bar in group:
            width = _LONGEST * bar.value / top if top > 0 else 0.0
            number = names.index(bar.series) + 1
            label = f"{bar.series} {short(bar.value)} {unit}".strip()
            text = label + (f" {bar.note}" if bar.note else "")
            drawn.append(
                tag(
                    "g",
                    tag("title", f"{heading}: {text}"),
                    tag("rect", x=0, y=y + 3, width=f"{width:.2f}%", height=_BAR, rx=2,
                        class_=f"fill-{number}"),
                    tag("text", tag("tspan", short(bar.value), class_="value"),
                        f" {unit} {bar.series}",
                        tag("tspan", f" {bar.note}" if bar.note else "", class_="note"),
                        x=f"{width:.2f}%", dx=6, y=y + 16, class_="label"),
                )
            )  # fmt: skip
            y += _ROW
        y += _GAP
    what = f"{title}. " + "; ".join(
        f"{heading}: " + ", ".join(f"{b.series} {short(b.value)} {unit}".strip() for b in group)
        for heading, group in groups.items()
    )
    return tag(
        "svg", join(drawn, "\n"), width="100%", height=max(1, y - _GAP), role="img",
        aria_label=what, class_="chart",
    )  # fmt: skip
