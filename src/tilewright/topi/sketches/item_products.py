"""Products of matrices for devices without shared memory; of a convolution after im2col.

Each work-item sums a tile of rows by vectors of columns in registers, and reads both matrices where
they lie. Of a convolution each column is a window: columns are stored by a kernel of their own
beforehand, which is im2col, or made where they are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.schedule import Schedule, Stage
from tilewright.schedule.matmul import Whole
from tilewright.topi.declared import Declared
from tilewright.topi.fusion import find_products
from tilewright.topi.nn.padding import static
from tilewright.topi.parameters import flag
from tilewright.topi.pieces.tiling import bind, spread

#: Work-items of a group that stores a matrix, at least.
_STORERS = 16


@dataclass(frozen=True)
class ItemTile:
    """An item sums ``rows`` by ``vectors`` vectors of ``lanes`` columns, ``depth`` products of each
    written out. A work-group has ``across`` items along columns and ``along`` of them along rows.
    With ``implicit`` columns are made where they are multiplied, else all are stored first. With
    ``kept`` what a step reads is put in registers first, as vectors."""

    rows: int = 4
    vectors: int = 1
    lanes: int = 4
    depth: int = 4
    across: int = 16
    along: int = 4
    implicit: int = flag()
    kept: int = flag()

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.lanes

    @property
    def whole(self) -> Whole:
        """What the declaration's matrices are to be filled up to."""
        return self.rows, self.columns, self.depth


def schedule_item_products(d: Declared, tile: ItemTile = ItemTile()) -> Schedule:
    """The schedule of a program of one sum of products, and of what is fused to it;
    see :func:`~tilewright.topi.fusion.find_products`."""
    whole = find_products(d.output, tile.whole)
    s, found = whole.schedule, whole.matmul
    out, total = s[d.output], s[found.product]
    read = (found.weights, found.columns)
    copies = [s.cache_read(t, "local", [found.product]) for t in read] if tile.kept else []

    g, m, p = whole.axes(out)
    m, row = out.split(m, factor=min(tile.rows, found.height))
    p, inner = out.split(p, factor=tile.columns)
    vector, lane = out.split(inner, factor=gcd(whole.contiguous(d.output), tile.lanes))
    m, along = out.split(m, factor=tile.along)
    p, across = out.split(p, factor=tile.across)
    out.reorder(g, m, p, along, across, row, vector, lane)
    bind(out, out.fuse(g, m, p), along, across)
    out.unroll(row, vector)
    out.vectorize(lane)

    total.set_scope("local")
    total.compute_at(out, across)
    g, row, p = total.op.axis
    total.align_bounds(p, tile.columns)
    step, k = total.split(total.op.reduce_axis[0], factor=tile.depth)
    vector, lane = total.split(p, factor=tile.lanes)
    total.reorder(g, step, k, row, vector, lane)
    total.unroll(k, row, vector)
    total.vectorize(lane)
    for copy, at in zip(copies, (step, k), strict=False):
        stage = s[copy]
        stage.compute_at(total, at)
        _load(stage, tile.lanes if at is k else tile.depth)
    filled = static(found.weights.shape[1], "rows") != found.height
    deep = static(found.weights.shape[2], "products") != found.depth
    items = max(_STORERS, tile.across * tile.along)
    _store(s[found.weights], filled or deep, tile.depth, items)
    _store(s[found.columns], not tile.implicit, tile.lanes, items)
    return s


def _load(stage: Stage, lanes: int) -> None:
    """What a step reads, as vectors."""
    *others, axis = stage.op.axis
    vector, lane = stage.split(axis, factor=lanes)
    stage.unroll(*others, vector)
    stage.vectorize(lane)


def _store(matrix: Stage, stored: bool, lanes: int, items: int) -> None:
    """A matrix in memory, a vector an item; else it is made where it is read."""
    if not stored:
        matrix.compute_inline()
        return
    *others, axis = matrix.op.axis
    axis, lane = matrix.split(axis, factor=lanes)
    matrix.vectorize(lane)
    spread(matrix, [*others, axis], items)
