"""Convolution as a product of matrices on a CPU.

A task takes some windows and all output channels of a group, tile by tile, which are summed in
registers. Its columns of the image are made before, next to one another, or stored for all tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.schedule.matmul import Whole
from tilewright.te import Tensor
from tilewright.topi.fusion import find_products
from tilewright.topi.parameters import flag


@dataclass(frozen=True)
class ColumnTile:
    """Tiles of ``rows`` output channels by ``vectors`` times ``lanes`` windows. With ``implicit``
    each task makes the columns of its windows; else all are stored first."""

    rows: int = 8
    vectors: int = 2
    lanes: int = 16
    implicit: int = flag()

    @property
    def whole(self) -> Whole:
        """What the declaration's matrices are to be filled up to."""
        return self.rows, self.vectors * self.lanes, 1


def schedule_conv2d_columns(output: Tensor, tile: ColumnTile = ColumnTile()) -> Schedule:
    """The schedule of a program of one sum of products, and of what is fused to it;
    see :func:`~tilewright.topi.fusion.find_products`."""
    whole = find_products(output, tile.whole)
    s, found = whole.schedule, whole.matmul
    out, total, columns = s[output], s[found.product], s[found.columns]
    g, m, p = whole.axes(out)
    panel, p = out.split(p, factor=tile.vectors * tile.lanes)
    m, row = out.split(m, factor=min(tile.rows, found.height))
    p, lane = out.split(p, factor=gcd(whole.contiguous(output), tile.lanes))
    out.reorder(g, panel, m, row, p, lane)
    task = out.fuse(g, panel)
    out.parallel(task)
    out.vectorize(lane)

    total.set_scope("local")
    total.compute_at(out, m)
    g, row, p = total.op.axis
    (k,) = total.op.reduce_axis
    vector, lane = total.split(p, factor=tile.lanes)
    total.reorder(g, k, row, vector, lane)
    total.unroll(row)
    total.unroll(vector)
    total.vectorize(lane)
    _make(columns, out if tile.implicit else None, task, tile.lanes)
    weights = s[found.weights]
    weights.parallel(weights.fuse(*weights.op.axis[:2]))
    return s


def _make(columns: Stage, out: Stage | None, task: IterVar, lanes: int) -> None:
    """Columns of a task, or of all."""
    g, k, p = columns.op.axis
    p, lane = columns.split(p, factor=lanes)
    columns.vectorize(lane)
    if out is not None:
        columns.compute_at(out, task)
    else:
        columns.parallel(columns.fuse(g, k))
