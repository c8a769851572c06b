"""Sums over tiles of images in shared memory, channels last, by the schedule.

Where every row of x is seen, rows of dy are skewed by those of the filter: tiles are of the rows of
x that both say, and begin with the image's first. The sum over a tile's parts, and over the chunks
of tiles, is taken apart by ``rfactor``; both operands are copied as boxes that are zero where there
is no image, so that of the conditions only those stay that are about rows and columns of the only
part of an image.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.itervar import Range
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.gradient_tiles import GradientTiles


class TileSums(NamedTuple):
    """The stages: ``total``, the sum over (chunk, image, down, across) of what is ``kept`` in
    shared memory of ``own`` (chunk, group of channels, image, down, across, row and column of the
    filter, lane, vector), which threads sum over (step, row, column) of tiles of ``x`` and ``dy``
    (step, chunk, group, image, row, column, channel)."""

    total: Tensor
    kept: Tensor
    own: Tensor
    x: Tensor
    dy: Tensor


def as_tile_sums(s: Schedule, d: Declaration, cut: GradientTiles) -> TileSums:
    """The sums of a gradient by the filter in NHWC, one filter a channel, of dilation 1; ``d.sum``
    is a copy of the total."""
    p, t = d.problem, cut.tile
    (kh, _), (sh, sw) = p.kernel, p.stride
    sums = s[d.sum]
    if not cut.sees:
        sums.skew(sums.op.reduce_axis[1], sums.op.axis[0])
    total = s.cache_write(d.sum, "local")
    part = _shared_out(s, d, total, cut)

    sums = s[part]
    chunk, image, down, across, ky, kx, c = sums.op.axis
    group, lane = sums.split(sums.pad_to(c, t.channels), factor=t.channels)
    lane, v = sums.split(lane, factor=t.vector)
    sums.reorder(chunk, group, image, down, across, ky, kx, lane, v)
    made = s.cache_write(part, "local")

    sums = s[made]
    chunk, group, image, down, across, ky, kx, lane, v = sums.op.axis
    step, row, column = sums.op.reduce_axis
    at, channel = [step, chunk, group, image], lane.var * t.vector + v.var
    line: Any = down.var * t.rows + row.var
    of_x, of_dy = (line * sh + ky.var, line) if cut.sees else (line, line + (kh - 1) - ky.var)
    column = across.var * t.columns + column.var
    (_, *x), (_, *dy) = (map(_all, tile) for tile in (cut.x_tile, cut.dy_tile))
    seen = [(of_x, x[0]), (column * sw + kx.var, x[1]), (channel, x[2])]
    back = [(of_dy, dy[0]), (column, dy[1]), (channel, dy[2])]
    x_tiles = s.reindex(d.source, made, [*at, *seen], "shared")
    dy_tiles = s.reindex(d.weights, made, [*at, *back], "shared")
    over = [*at, down, across, lane, v]
    sums.guard_by_zeros(x_tiles, dy_tiles, over=over, finite=True)
    kept = s.cache_read(made, "shared", [part])
    s[part].compute_inline()
    return TileSums(total, kept, made, x_tiles, dy_tiles)


def _all(extent: int) -> Range:
    return Range.from_extent(0, extent)


def _shared_out(s: Schedule, d: Declaration, total: Tensor, cut: GradientTiles) -> Tensor:
    """Tiles among chunks, and parts of tiles among threads, as axes of a stage of its own."""
    sums, t = s[total], cut.tile
    if d.padded is not None and not cut.sees:  # rows begin with those of x
        (_, kx, _), (_, _, column) = sums.op.axis, sums.op.reduce_axis
        sums.guard_by_zeros(d.padded, over=[kx, column], finite=True)
    n, row, column = sums.op.reduce_axis
    n, image = sums.split(sums.pad_to(n, t.images), factor=t.images)
    below, row = sums.split(sums.pad_to(row, t.height), factor=t.height)
    down, row = sums.split(row, factor=t.rows)
    beside, column = sums.split(sums.pad_to(column, t.width), factor=t.width)
    across, column = sums.split(column, factor=t.columns)
    sums.reorder(n, below, beside, image, down, across, row, column)
    _, chunk = sums.split(sums.fuse(n, below, beside), factor=t.chunks)
    made: Tensor = s.rfactor(total, [chunk, image, down, across])
    return made
