"""The roofline: how fast a machine lets a kernel be, and how fast kernels are.

Source: Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model",
CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.report.curves import Curve, Frame, Point
from tilewright.report.markup import Html, join, tag
from tilewright.report.numbers import short


@dataclass(frozen=True)
class Kernel:
    """A kernel that does ``flops`` operations on ``bytes`` of memory in ``seconds``."""

    name: str
    flops: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """GFLOP/s."""
        return self.flops / self.seconds / 1e9


def roofline(
    title: str, kernels: Sequence[Kernel], bandwidth: float, peak: float, height: int = 320
) -> Html:
    """Kernels by intensity and rate under the roof of ``bandwidth`` (GB/s), ``peak`` (GFLOP/s)."""
    if not kernels:
        return tag("p", f"{title}: nothing to draw.")
    ridge = peak / bandwidth
    low_x = min(ridge / 4, *(k.intensity / 1.5 for k in kernels))
    high_x = max(ridge * 4, *(k.intensity * 1.5 for k in kernels))
    low_y = min(low_x * bandwidth, *(k.rate / 1.5 for k in kernels))
    high_y = max(peak, *(k.rate for k in kernels)) * 1.5
    frame = Frame((low_x, low_y), (high_x, high_y), True, height, log_x=True)
    parts = frame.grid("operations a byte", "GFLOP/s")
    start = max(low_x, low_y / bandwidth)
    for a, b in (((start, start * bandwidth), (ridge, peak)), ((ridge, peak), (high_x, peak))):
        parts.append(
            tag("line", x1=f"{frame.x(a[0]):.2f}%", y1=f"{frame.y(a[1]):.1f}",
                x2=f"{frame.x(b[0]):.2f}%", y2=f"{frame.y(b[1]):.1f}", class_="roof")
        )  # fmt: skip
    points = [
        Point(k.intensity, k.rate, f"{k.name}: {short(k.rate)} GFLOP/s at {short(k.intensity)}")
        for k in kernels
    ]
    parts += frame.dots(Curve("kernels", points), 1)
    for k in kernels:
        right = frame.x(k.intensity) > 70
        parts.append(
            tag("text", k.name, x=f"{frame.x(k.intensity):.2f}%", dx=-8 if right else 8,
                y=f"{frame.y(k.rate):.1f}", dy=4, class_="label end" if right else "label")
        )  # fmt: skip
    what = (
        f"{title}. The roof is {short(bandwidth)} GB/s up to {short(ridge)} operations a byte, "
        f"then {short(peak)} GFLOP/s. " + "; ".join(p.note for p in points)
    )
    return tag(
        "svg", join(parts, "\n"), width="100%", height=height, role="img", aria_label=what,
        class_="chart",
    )  # fmt: skip
