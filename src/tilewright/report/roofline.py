"""The roofline: how fast a machine lets a kernel be, and how fast kernels are.

Source: Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model",
CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.report.curves import Frame
from tilewright.report.markup import Html, join, tag
from tilewright.report.numbers import short

#: The pixels of the widest page's figure, and of a letter: where labels would meet is estimated.
_WIDTH, _LETTER, _LINE = 1000.0, 7.5, 13.0
#: Labels from which on a narrow figure shows none.
_CROWD = 8


@dataclass(frozen=True)
class Kernel:
    """A kernel that does ``flops`` operations on ``bytes`` of memory in ``seconds``.

    ``label`` is written beside its dot, by default the name, which is shown where the pointer
    rests. ``other`` are the seconds of what it is compared with, drawn as a second dot.
    """

    name: str
    flops: float
    bytes: float
    seconds: float
    label: str | None = None
    other: float | None = None

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """GFLOP/s."""
        return self.flops / self.seconds / 1e9

    @property
    def other_rate(self) -> float | None:
        """GFLOP/s of what it is compared with."""
        return self.flops / self.other / 1e9 if self.other else None


@dataclass(frozen=True)
class Roof:
    """``bandwidth`` in GB/s, ``peak`` in GFLOP/s, and what of: "memory", "float16"."""

    bandwidth: float
    peak: float
    name: str = ""

    def at(self, intensity: float) -> float:
        """GFLOP/s at most."""
        return min(self.peak, intensity * self.bandwidth)


def roofline(
    title: str,
    kernels: Sequence[Kernel],
    bandwidth: float | None = None,
    peak: float | None = None,
    height: int = 320,
    more: Sequence[Roof] = (),
) -> Html:
    """Kernels by intensity and rate under the roof of ``bandwidth`` (GB/s), ``peak`` (GFLOP/s).

    Without these there is no roof but those of ``more``, which are drawn fainter.
    """
    if not kernels:
        return tag("p", f"{title}: nothing to draw.")
    main = [Roof(bandwidth, peak)] if bandwidth and peak else []
    roofs = [*main, *more]
    frame = _frame(kernels, roofs, height)
    parts = frame.grid("operations a byte", "GFLOP/s")
    for roof in reversed(roofs):
        parts += _lines(frame, roof, roof in main)
    for k in kernels:
        parts += _dots(frame, k)
    parts += _labels(frame, kernels)
    what = f"{title}. "
    if main:
        ridge = main[0].peak / main[0].bandwidth
        what += (
            f"The roof is {short(main[0].bandwidth)} GB/s up to {short(ridge)} operations a byte, "
            f"then {short(main[0].peak)} GFLOP/s. "
        )
    what += "; ".join(map(_note, kernels))
    return tag(
        "svg", join(parts, "\n"), width="100%", height=height, role="img", aria_label=what,
        class_="chart",
    )  # fmt: skip


def _frame(kernels: Sequence[Kernel], roofs: Sequence[Roof], height: int) -> Frame:
    xs = [k.intensity for k in kernels]
    ys = [k.rate for k in kernels] + [k.other_rate for k in kernels if k.other_rate]
    ridges = [r.peak / r.bandwidth for r in roofs[:1]]
    low_x, high_x = min(*xs, *ridges, xs[0]) / 1.8, max(*xs, *ridges, xs[0]) * 1.8
    low_y = min(ys) / 1.5
    high_y = max(*ys, *(r.peak for r in roofs), ys[0]) * 1.5
    return Frame((low_x, low_y), (high_x, high_y), True, height, log_x=True)


def _lines(frame: Frame, roof: Roof, main: bool) -> list[Html]:
    """The slope and the flat part, as far as they are within the frame, and the roof's name."""
    low, high = frame.low, frame.high
    ridge = min(max(roof.peak / roof.bandwidth, low[0]), high[0])
    start = min(max(low[0], low[1] / roof.bandwidth), ridge)
    kind = "roof" if main else "roof faint"
    parts = []
    for a, b in ((start, ridge), (ridge, high[0])):
        if a < b:
            parts.append(
                tag("line", x1=f"{frame.x(a):.2f}%", y1=f"{frame.y(roof.at(a)):.1f}",
                    x2=f"{frame.x(b):.2f}%", y2=f"{frame.y(roof.at(b)):.1f}", class_=kind)
            )  # fmt: skip
    if roof.name:
        parts.append(
            tag("text", roof.name, x=f"{frame.RIGHT}%", y=f"{frame.y(roof.at(high[0])):.1f}",
                dy=-5, class_="mark end")
        )  # fmt: skip
    return parts


def _note(k: Kernel) -> str:
    return f"{k.name}: {short(k.rate)} GFLOP/s at {short(k.intensity)}"


def _dots(frame: Frame, k: Kernel) -> list[Html]:
    """The kernel, and what it is compared with, joined by a line."""
    x, y, parts = f"{frame.x(k.intensity):.2f}%", frame.y(k.rate), []
    if k.other_rate:
        other = frame.y(k.other_rate)
        parts.append(tag("line", x1=x, x2=x, y1=f"{y:.1f}", y2=f"{other:.1f}", class_="grid"))
        note = tag("title", f"{k.name}: {short(k.other_rate)} GFLOP/s of the best of the others")
        parts.append(tag("circle", note, cx=x, cy=f"{other:.1f}", r=3, class_="dot-2"))
    parts.append(tag("circle", tag("title", _note(k)), cx=x, cy=f"{y:.1f}", r=4, class_="dot-1"))
    return parts


def _labels(frame: Frame, kernels: Sequence[Kernel]) -> list[Html]:
    """A label beside every dot, on the side where none is yet; none where there is no room."""
    taken = [(_pixels(frame, k.intensity), frame.y(k.rate), 5.0) for k in kernels]
    parts = []
    crowd = " crowded" if len(kernels) > _CROWD else ""
    for k in kernels:
        text = k.name if k.label is None else k.label
        half = len(text) * _LETTER / 2
        x, y = _pixels(frame, k.intensity), frame.y(k.rate)
        for dx, dy, side in ((8, 0, ""), (-8, 0, " end"), (0, -11, " middle"), (0, 12, " middle")):
            center = x + (half + 8) * (1 if dx > 0 else -1 if dx < 0 else 0)
            inside = center - half > frame.LEFT / 100 * _WIDTH
            inside = inside and center + half < frame.RIGHT / 100 * _WIDTH
            free = all(
                abs(center - u) > half + w or abs(y + dy - v) > _LINE
                for u, v, w in taken
                if (u, v) != (x, y)
            )
            if inside and free:
                taken.append((center, y + dy, half))
                parts.append(
                    tag("text", text, x=f"{frame.x(k.intensity):.2f}%", dx=dx or None,
                        y=f"{y + dy:.1f}", dy=4, class_=f"label{side}{crowd}")
                )  # fmt: skip
                break
    return parts


def _pixels(frame: Frame, intensity: float) -> float:
    return frame.x(intensity) / 100 * _WIDTH
