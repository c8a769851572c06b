"""Depthwise convolution with large filters on a CPU, by three products where there were four.

The stages are those of :mod:`~tilewright.topi.nn.depthwise_fast_fir`. A task takes one vector of
channels of some images: it makes the parts of their filters, and for each image those parts, and
multiplies them one by one. A part is a quarter of an image, or less, so that it and its filter stay
in a first-level cache. A tile of sums is held in registers over all taps; of ``taps`` taps side by
side the pixels that they share are loaded once, as a core that had to load for every product
would not be busy multiplying.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.schedule import Schedule, Stage
from tilewright.topi.cut import CutDeclaration, declare_sums
from tilewright.topi.nn.depthwise_fast_fir import FastFir, FastFirStages, depthwise_fast_fir
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.conv import Conv
from tilewright.topi.parameters import flag
from tilewright.topi.stages import scheduled

FirDeclaration = CutDeclaration[FastFir, FastFirStages]


@dataclass(frozen=True)
class FirTile:
    """Rows are halved ``down`` times, columns ``across`` times. ``rows`` by ``columns`` sums of
    ``lanes`` channels are held in registers, ``taps`` columns of the filter are written out. Rows
    in the padding are left out one by one where ``exact`` is 1, else where none of a tile needs
    them. A task computes ``images`` images."""

    down: int = 1
    across: int = 1
    rows: int = 4
    columns: int = 4
    taps: int = 2
    lanes: int = 16
    exact: int = flag()
    images: int = 1


def declare_fir(p: Conv, tile: FirTile, batch: Any = None) -> FirDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    rows = 1 if tile.exact else tile.rows
    cut = FastFir.of(p, (tile.down, tile.across), (rows, tile.columns), tile.taps)
    return declare_sums(cut, depthwise_fast_fir, batch)


def schedule_fir(d: FirDeclaration, tile: FirTile = FirTile()) -> Schedule:
    """The schedule of what :func:`declare_fir` makes of a problem with the same ``tile``."""
    made = d.stages
    kept = [made.image, made.packed, made.filter, made.products]
    kept += [made.image_rows, made.filter_rows] if tile.down else []
    s = scheduled(d.output, *kept)
    local = s.cache_write(made.products, "local")
    out, products, sums = s[d.output], s[made.products], s[local]
    n, c, (h, w) = Images(d.problem.layout).meaning(out.op.axis)
    n, image = out.split(n, factor=tile.images)
    c, lane = out.split(c, factor=tile.lanes)
    h, row = out.split(h, factor=d.cut.rows.phases)
    w, column = out.split(w, factor=d.cut.columns.phases)
    out.reorder(n, c, image, h, w, row, column, lane)
    task = out.fuse(n, c)
    out.parallel(task)
    out.unroll(row)
    out.unroll(column)
    out.vectorize(lane)

    products.compute_at(out, image)
    n, a, b, h, w, c = products.op.axis
    h, row = products.split(h, factor=tile.rows)
    w, column = products.split(w, factor=tile.columns)
    c, lane = products.split(c, factor=tile.lanes)
    products.reorder(n, c, a, b, w, h, row, column, lane)
    products.unroll(row)
    products.unroll(column)
    products.vectorize(lane)

    sums.compute_at(products, h)
    di, dj = sums.op.reduce_axis
    outer, dj = sums.split(dj, factor=tile.taps)
    *axes, c = sums.op.axis
    c, lane = _in_lanes(sums, tile.lanes)
    sums.reorder(di, outer, dj, *axes, c, lane)
    sums.unroll(dj, *axes)

    # Which phases a part is made of is decided once, where the parts are written out.
    parts = [(made.packed, out, task, None), (made.image, products, a, 2)]
    whole = tile.images > 1
    parts.append((made.filter, out, task, 1) if whole else (made.filter, products, a, 1))
    if tile.down:
        parts += [(made.image_rows, out, image, 1), (made.filter_rows, out, task, 0)]
    for tensor, at, axis, part in parts:
        stage = s[tensor]
        stage.compute_at(at, axis)
        _in_lanes(stage, tile.lanes)
        if part is not None:
            stage.unroll(stage.op.axis[part])
    return s


def _in_lanes(stage: Stage, lanes: int) -> Any:
    """The channels of a stage in whole vectors."""
    channels = stage.op.axis[-1]
    stage.align_bounds(channels, lanes)
    channels, lane = stage.split(channels, factor=lanes)
    stage.vectorize(lane)
    return channels, lane
