"""Points and steps over two axes: what a search tried, and the best that it had found so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.report.markup import Html, join, tag
from tilewright.report.numbers import mark_text, marks, position, short


@dataclass(frozen=True)
class Point:
    """``note`` is shown where the pointer rests."""

    x: float
    y: float
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """Points; ``step`` draws the smallest value so far instead of a line between them."""

    name: str
    points: Sequence[Point] = field(default_factory=list)
    step: bool = False


def curves(
    title: str,
    drawn: Sequence[Curve],
    x: str = "",
    y: str = "",
    log: bool = False,
    height: int = 210,
) -> Html:
    """A chart of curves; ``x`` and ``y`` name the axes, ``log`` the scale of the second.

    The frame is the figure's width whatever that is; letters keep their size.
    """
    points = [p for curve in drawn for p in curve.points if not log or p.y > 0]
    if not points:
        return tag("p", f"{title}: nothing to draw.")
    frame = Frame.around(points, log, height)
    parts = frame.grid(x, y)
    for number, curve in enumerate(drawn, 1):
        parts += frame.steps(curve, number) if curve.step else frame.dots(curve, number)
    best = min(points, key=lambda p: p.y)
    what = f"{title}. {len(points)} points; the lowest is {short(best.y)} at {short(best.x)}"
    return tag(
        "svg", join(parts, "\n"), width="100%", height=height, role="img", aria_label=what,
        class_="chart",
    )  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """The axes: x in percent of the width, y in pixels, with room for marks at the left."""

    low: tuple[float, float]
    high: tuple[float, float]
    log: bool
    height: int
    log_x: bool = False

    LEFT, RIGHT, TOP, BOTTOM = 9.0, 98.0, 24, 44

    @staticmethod
    def around(points: Sequence[Point], log: bool, height: int) -> Frame:
        """A frame that shows all points, with a little air."""
        xs, ys = [p.x for p in points], [p.y for p in points]
        if log:
            low, high = min(ys) / 1.15, max(ys) * 1.15
        else:
            low, high = 0.0, max(ys) * 1.08 or 1.0
        return Frame((min(xs) - 0.5, low), (max(xs) + 0.5, high), log, height)

    def x(self, value: float) -> float:
        """Percent of the width."""
        part = position(value, self.low[0], self.high[0], self.log_x)
        return self.LEFT + (self.RIGHT - self.LEFT) * part

    def y(self, value: float) -> float:
        """Pixels from the top."""
        part = position(value, self.low[1], self.high[1], self.log)
        return self.height - self.BOTTOM - (self.height - self.TOP - self.BOTTOM) * part

    def grid(self, x: str, y: str) -> list[Html]:
        """Lines at round numbers, with these, and the names of the axes."""
        parts = [tag("text", y, x=0, y=12, class_="axis")]
        for value in marks(self.low[1], self.high[1], self.log):
            at = f"{self.y(value):.1f}"
            parts.append(
                tag("line", x1=f"{self.LEFT}%", x2=f"{self.RIGHT}%", y1=at, y2=at, class_="grid")
            )
            parts.append(
                tag("text", mark_text(value),
                    x=f"{self.LEFT - 1}%", y=at, dy=4, class_="mark end")
            )  # fmt: skip
        base = self.height - 27
        for value in marks(self.low[0], self.high[0], self.log_x):
            if self.log_x or value == int(value):
                at = f"{self.x(value):.2f}%"
                parts.append(tag("text", mark_text(value), x=at, y=base, class_="mark middle"))
        parts.append(tag("text", x, x=f"{self.RIGHT}%", y=self.height - 8, class_="axis end"))
        return parts

    def dots(self, curve: Curve, number: int) -> list[Html]:
        """A circle each point."""
        return [
            tag(
                "circle",
                tag("title", p.note or f"{short(p.x)}: {short(p.y)}"),
                cx=f"{self.x(p.x):.2f}%", cy=f"{self.y(p.y):.1f}", r=4, class_=f"dot-{number}",
            )
            for p in curve.points
        ]  # fmt: skip

    def steps(self, curve: Curve, number: int) -> list[Html]:
        """The smallest value so far, from each point to the next."""
        parts, best, last = [], None, None
        for p in sorted(curve.points, key=lambda p: p.x):
            if best is not None and last is not None:
                parts.append(self._line(last, best, p.x, best, number))
                if p.y < best:
                    parts.append(self._line(p.x, best, p.x, p.y, number))
            best, last = (p.y if best is None else min(best, p.y)), p.x
        return parts

    def _line(self, x1: float, y1: float, x2: float, y2: float, number: int) -> Html:
        return tag(
            "line", x1=f"{self.x(x1):.2f}%", y1=f"{self.y(y1):.1f}", x2=f"{self.x(x2):.2f}%",
            y2=f"{self.y(y2):.1f}", class_=f"line-{number}",
        )  # fmt: skip
