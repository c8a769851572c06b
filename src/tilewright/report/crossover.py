"""Maps of which algorithm is fastest: filters across, images down, a map a pass and batch.

Colour and letter of a cell say the fastest algorithm; the colour is the stronger the more the
second takes. Where another library was measured, how many times as long it takes stands above.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.report.markup import Html, join, tag
from tilewright.report.numbers import short
from tilewright.report.page import columns, figure, paragraph
from tilewright.report.results import short_name
from tilewright.report.table import table
from tilewright.topi.operators.conv import Conv

#: The algorithms with their letters, in the order of their colours, and what templates are theirs.
#: A template of another name is the last one's, which stands for the schedules of this device that
#: multiply one number after another.
ALGORITHMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("R", "warpgroups, images in registers", ("gpu.toeplitz",)),
    ("S", "warpgroups, images staged", ("gpu.toeplitz_staged", "gpu.row_products")),
    ("W", "warps, products of many images",
     ("gpu.toeplitz_warps", "gpu.toeplitz_tf32", "gpu.plane_products", "gpu.plane_gradient",
      "gpu.channel_pairs", "gpu.sparse_pairs")),
    ("I", "warps, products of one image",
     ("gpu.toeplitz_rows", "gpu.toeplitz_tf32_rows", "gpu.toeplitz_wgrad",
      "gpu.toeplitz_tf32_wgrad", "gpu.plane_bands", "gpu.band_gradient")),
    ("M", "products of im2col or of spectra",
     ("gpu.im2col_mma", "gpu.im2col", "cpu.im2col", "gpu.fourier")),
    ("C", "without products of matrices", ()),
)  # fmt: skip
_PASSES = ("forward", "dgrad", "wgrad")
#: Points: of a cell, of what stands left of and above and below the cells.
_WIDE, _HIGH, _LEFT, _TOP, _BOTTOM = 60, 44, 40, 30, 22
#: How strong a colour is where the second is as fast, and where it takes half as long again.
_FAINT, _STRONG, _CLEAR = 0.12, 0.62, 0.5
#: A map has this many cells at least; those of fewer stand in a table.
_FEW = 6


@dataclass(frozen=True)
class Cell:
    """One problem: ``times`` in microseconds by algorithm, an index of :data:`ALGORITHMS`, and
    ``other``, the time of the best other library where it is known."""

    problem: Conv
    times: Mapping[int, float]
    other: float | None = None

    @property
    def order(self) -> list[int]:
        """Algorithms, the fastest first."""
        return sorted(self.times, key=lambda k: self.times[k])

    @property
    def best(self) -> float:
        """Microseconds of the fastest."""
        return self.times[self.order[0]]

    @property
    def margin(self) -> float | None:
        """By what part of the fastest's time the second takes longer; None where there is none."""
        order = self.order
        return self.times[order[1]] / self.best - 1 if len(order) > 1 else None

    @property
    def ratio(self) -> float | None:
        """How many times as long the other library takes."""
        return self.other / self.best if self.other else None


def cell(problem: Conv, times: Iterable[tuple[str, float]], other: float | None = None) -> Cell:
    """Of microseconds by template, of which the least of an algorithm counts."""
    found: dict[int, float] = {}
    for template, micros in times:
        k = algorithm(template)
        found[k] = min(micros, found.get(k, math.inf))
    return Cell(problem, found, other)


def algorithm(template: str) -> int:
    """Of a template, as an index of :data:`ALGORITHMS`."""
    named = (k for k, (_, _, templates) in enumerate(ALGORITHMS) if template in templates)
    return next(named, len(ALGORITHMS) - 1)


def crossover(cells: Sequence[Cell], other: str = "PyTorch") -> list[Html]:
    """Maps of the problems with square images and filters and stride 1, batches beside each other,
    and a table of those that stand alone in their row or column, or are few of a type and batch;
    empty of no such problem.

    Where several problems share a cell, that counts for which most algorithms were measured.
    """
    groups: dict[str, dict[tuple[str, int, int, int], Cell]] = {}
    for c in cells:
        p = c.problem
        if p.height == p.width and p.kernel_h == p.kernel_w and p.stride == (1, 1):
            place = groups.setdefault(_type(p), {})
            key = p.pass_, p.batch, p.height, p.kernel_h
            if key not in place or len(place[key].times) < len(c.times):
                place[key] = c
    parts: list[Html] = []
    rest: list[Cell] = []
    for kind, found in groups.items():
        rows, across = _axes({key[2:] for key in found})
        maps: dict[tuple[str, int], dict[tuple[int, int], Cell]] = {}
        for (pass_, batch, image, kernel), c in found.items():
            if image in rows and kernel in across:
                maps.setdefault((pass_, batch), {})[image, kernel] = c
        drawn = {k: m for k, m in maps.items() if len(m) >= _FEW}
        shown = [c for m in drawn.values() for c in m.values()]
        rest += [c for c in found.values() if c not in shown]
        if drawn:
            order = sorted(drawn, key=lambda k: (_PASSES.index(k[0]), -k[1]))
            figures = [_map(f"{p}, batch {b}", drawn[p, b], rows, across, other) for p, b in order]
            parts += [tag("h3", kind), columns(*map(figure, figures))]
    if rest:
        parts += [tag("h3", "Others"), _table(rest, other)]
    return [keys(other), *parts] if parts else []


def _axes(places: set[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Images and filters of which each meets two or more of the others."""
    while True:
        images, kernels = Counter(i for i, _ in places), Counter(k for _, k in places)
        kept = {(i, k) for i, k in places if images[i] > 1 and kernels[k] > 1}
        if kept == places:
            return sorted(images), sorted(kernels)
        places = kept


def keys(other: str) -> Html:
    """What colours, letters and numbers stand for."""
    named = (
        tag("span", tag("i", class_=f"key-{k}"), tag("b", letter), f" {name}")
        for k, (letter, name, _) in enumerate(ALGORITHMS, 1)
    )
    words = paragraph(
        f"In bold, how many times as long {other} takes in its best layout, or where that is not "
        "known our time in µs. Below, the letter of the fastest algorithm and by how much the "
        "second takes longer; a faint cell is a near tie, or had no second. "
        "Point at a cell for all times."
    )
    return Html(tag("p", join(named, " "), class_="legend") + words)


def _type(p: Conv) -> str:
    return f"{p.dtype}, TF32 allowed" if p.precision == "tf32" else p.dtype


def _map(
    title: str, cells: Mapping[tuple[int, int], Cell], rows: Sequence[int],
    across: Sequence[int], other: str,
) -> Html:  # fmt: skip
    """``cells`` by image and filter; with all ``rows`` of images and filters ``across``, so that
    maps beside each other are alike."""
    width, height = _LEFT + _WIDE * len(across), _TOP + _HIGH * len(rows) + _BOTTOM
    drawn = [tag("text", title, x=0, y=16, class_="heading")]
    for k, kernel in enumerate(across):
        drawn.append(_text(f"K {kernel}", _LEFT + (k + 0.5) * _WIDE, height - 6, "axis middle"))
    for r, image in enumerate(rows):
        y = _TOP + r * _HIGH
        drawn.append(_text(f"{image}²", _LEFT - 8, y + _HIGH / 2 + 4, "axis end"))
        for k, kernel in enumerate(across):
            found = cells.get((image, kernel))
            drawn.append(_drawn(found, _LEFT + k * _WIDE, y, other))
    known = [f"{short_name(c.problem)}: {_says(c, other)}" for c in cells.values()]
    return tag(
        "svg", join(drawn, "\n"), viewBox=f"0 0 {width} {height}", width="100%", role="img",
        aria_label=f"{title}. {'; '.join(known)}", class_="chart",
    )  # fmt: skip


def _drawn(found: Cell | None, x: float, y: float, other: str) -> Html:
    place = {"x": x + 1, "y": y + 1, "width": _WIDE - 2, "height": _HIGH - 2, "rx": 3}
    if found is None:
        return tag("rect", **place, class_="nothing")
    best, margin = found.order[0], found.margin
    clear = 0.0 if margin is None else min(1.0, margin / _CLEAR)
    over = "" if margin is None else f" +{margin:.0%}" if margin < 0.95 else f" ×{1 + margin:.1f}"
    above = f"{short(found.best)} µs" if found.ratio is None else _ratio(found.ratio)
    return tag(
        "g",
        tag("title", f"{short_name(found.problem)}: {_says(found, other)}"),
        tag("rect", **place, class_=f"fill-{best + 1}",
            fill_opacity=f"{_FAINT + (_STRONG - _FAINT) * clear:.2f}"),
        _text(above, x + _WIDE / 2, y + 19, "middle" if found.ratio is None else "middle value"),
        _text(ALGORITHMS[best][0] + over, x + _WIDE / 2, y + 35, "small middle"),
    )  # fmt: skip


def _ratio(value: float) -> str:
    return f"{value:.0f}×" if value >= 10 else f"{value:.1f}×"


def _text(words: str, x: float, y: float, kind: str) -> Html:
    return tag("text", words, x=f"{x:g}", y=f"{y:g}", class_=kind)


def _says(c: Cell, other: str) -> str:
    named = [f"{ALGORITHMS[k][1]} {short(c.times[k])} µs" for k in c.order]
    return ", ".join([*named, *([f"{other} {short(c.other)} µs"] if c.other else [])])


def _table(cells: Sequence[Cell], other: str) -> Html:
    """Of problems that no map has."""
    rows = []
    for c in sorted(cells, key=lambda c: c.problem):
        ours = [c.times.get(k) for k in range(len(ALGORITHMS))]
        ratio = "–" if c.ratio is None else _ratio(c.ratio)
        rows.append([f"{c.problem.pass_} {short_name(c.problem)}", *ours, c.other, ratio])
    names = [letter for letter, _, _ in ALGORITHMS]
    heads = ["µs", *names, other, "faster"]
    return table(heads, rows, best=range(1, 1 + len(names)))
