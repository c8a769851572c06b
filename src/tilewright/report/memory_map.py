"""A block of memory over time: where each value lies, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.report.markup import Html, join, tag
from tilewright.report.numbers import counted, marks, short

_HEIGHT, _TOP, _FOOT = 260, 22, 40
#: Colours that neighbours in a chart take in turns.
_COLOURS = 5
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


@dataclass(frozen=True)
class Stay:
    """A value that lies at ``offset``, of ``nbytes``, from step ``begin`` to step ``end``."""

    name: str
    begin: int
    end: int
    offset: int
    nbytes: int


def bytes_text(count: int) -> str:
    """
    >>> [bytes_text(n) for n in (0, 100, 1536, 3 << 20)]
    ['0 bytes', '100 bytes', '1.50 KiB', '3.00 MiB']
    """
    size, unit = next(((s, u) for s, u in _UNITS if count >= s), _UNITS[-1])
    return f"{count} {unit}" if size == 1 else f"{short(count / size)} {unit}"


def memory_map(title: str, stays: Sequence[Stay], steps: int, nbytes: int) -> Html:
    """A chart: steps run to the right, addresses down, and each value is a rectangle with its name
    and size as what is shown where a pointer rests.

    ``nbytes`` is the size of the whole block. Positions across are percentages, so that the chart
    fills any width while its letters keep their size.
    """
    steps, whole = max(steps, 1), max(nbytes, 1)
    across, down = 100 / steps, _HEIGHT / whole
    drawn = [
        tag("text", f"{bytes_text(nbytes)} from top to bottom", x=0, y=14, class_="axis"),
        tag("rect", x=0, y=_TOP, width="100%", height=_HEIGHT, class_="nothing"),
    ]
    for k, s in enumerate(stays):
        text = f"{s.name}: {bytes_text(s.nbytes)} at {s.offset:,}, steps {s.begin} to {s.end}"
        drawn.append(
            tag(
                "rect", tag("title", text), x=f"{s.begin * across:.3f}%",
                y=f"{_TOP + s.offset * down:.2f}",
                width=f"{(s.end - s.begin + 1) * across:.3f}%",
                height=f"{max(s.nbytes * down, 1):.2f}", class_=f"fill-{1 + k % _COLOURS}",
                stroke="var(--ground)", stroke_width=0.5,
            )
        )  # fmt: skip
    for mark in marks(0, steps - 1):
        if mark == int(mark):
            drawn.append(tag("text", f"{int(mark)}", x=f"{(mark + 0.5) * across:.2f}%",
                             y=_TOP + _HEIGHT + 16, class_="axis middle"))  # fmt: skip
    drawn.append(tag("text", "step", x="100%", y=_TOP + _HEIGHT + 34, class_="axis end"))
    return tag(
        "svg", join(drawn, "\n"), width="100%", height=_TOP + _HEIGHT + _FOOT, role="img",
        aria_label=f"{title}: {counted(len(stays), 'value')} in {bytes_text(nbytes)}, "
        f"{counted(steps, 'step')}",
        class_="chart",
    )  # fmt: skip
