"""Sums of products that lie contiguous in both factors: vectors along the sum.

So does a linear layer read its input and its weight. Nothing is copied or turned: each lane of a
vector has its part of the sum, and the lanes are added at the end. A tile of few rows and columns
reads each number once for several results; a task of a CPU takes a panel of columns, whose factor
stays in its second-level cache while the rows go by. Of a GPU without shared memory a work-item has
a tile, and a work-group a panel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes, power, registers
from tilewright.topi.declared import Declared
from tilewright.topi.pieces.sums import inline
from tilewright.topi.pieces.tiling import bind
from tilewright.topi.problem import Problem

#: Rows by columns of a tile.
SHAPES = ((4, 4), (8, 2), (2, 8), (4, 2), (2, 4), (1, 8), (8, 1), (2, 2), (1, 4), (4, 1), (1, 1))
#: Bytes of a panel.
_PANEL = 2**18


@dataclass(frozen=True)
class DotTile:
    """Tiles of ``rows`` by ``columns`` sums, each of ``lanes`` parts; a task takes ``panel`` tiles
    beside one another."""

    rows: int = 4
    columns: int = 4
    lanes: int = 16
    panel: int = 16


def schedule_dots(d: Declared, tile: DotTile) -> Schedule:
    """The schedule of a program of one sum of products and what is fused to it, with one axis of
    the sum, along which both factors lie."""
    return _scheduled(d, tile, items=False)


def schedule_item_dots(d: Declared, tile: DotTile) -> Schedule:
    """The same for work-items."""
    return _scheduled(d, tile, items=True)


def _scheduled(d: Declared, tile: DotTile, items: bool) -> Schedule:
    found = inline(d.output)
    s, out = found.schedule, found.schedule[d.output]
    assert found.last is not None
    sums = s[found.last]
    _, part = sums.split(sums.op.reduce_axis[-1], factor=tile.lanes)
    parts = s[s.rfactor(found.last, part, found.last.ndim)]

    *outer, i, j = out.op.axis
    i, row = out.split(i, factor=tile.rows)
    j, column = out.split(j, factor=tile.columns)
    panel, j = out.split(j, factor=tile.panel)
    out.reorder(*outer, panel, i, j, row, column)
    if items:
        bind(out, out.fuse(*outer, panel, i), j)
    else:
        out.parallel(out.fuse(*outer, panel))
    out.unroll(row, column)

    sums.set_scope("local")
    sums.compute_at(out, j)
    *_, row, column = sums.op.axis
    sums.unroll(row, column, *sums.op.reduce_axis)
    parts.set_scope("local")
    parts.compute_at(out, j)
    *before, row, column, lane = parts.op.axis
    parts.reorder(*before, *parts.op.reduce_axis, row, column, lane)
    parts.unroll(row, column)
    parts.vectorize(lane)
    return s


def dot_tiles(p: Problem, target: Target) -> dict[DotTile, float]:
    """The tiles worth trying: the more sums share what they read the better, as long as a result
    has as many rows and columns."""
    *_, m, n = p.result.shape
    wide, depth = lanes(p, target), max(1, p.flops // (2 * max(1, math.prod(p.result.shape))))
    most = min(wide, power(depth))
    found = dict[DotTile, float]()
    for rows, columns in SHAPES:
        if rows * columns <= registers(target, wide) and rows <= m and columns <= n:
            waste = -(-m // rows) * rows / m * (-(-n // columns) * columns / n)
            panel = max(1, min(_PANEL // (columns * depth * 4), -(-n // columns) // 8))
            found[DotTile(rows, columns, most, panel)] = waste * (1 / rows + 1 / columns + 1)
    return found
