"""Depthwise convolution on a CPU: vectors along a row, a tile of rows in registers.

Each channel is copied once, padded, into a buffer that stays in the first-level cache; its rows are
as long as whole vectors need, so that the convolution itself knows no edges. A tile of ``rows`` by
``vectors`` vectors of outputs is summed in registers over all taps: an input vector that was
loaded serves every row of the tile, a tap of the filter every vector.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.fusion import find_convolution
from tilewright.topi.nn.padding import static


@dataclass(frozen=True)
class RowTile:
    """``rows`` by ``vectors`` vectors of ``lanes`` outputs are summed in registers; the taps of
    ``taps`` filter rows are written out."""

    rows: int = 4
    vectors: int = 2
    lanes: int = 16
    taps: int = 3


def schedule_rows(output: Tensor, tile: RowTile = RowTile()) -> Schedule:
    """The schedule for ``output``, a depthwise convolution in NCHW or what is fused to it."""
    found = find_convolution(output)
    s, conv = found.schedule, found.conv
    local = conv if found.fused else s.cache_write(conv, "local")
    if found.fused:
        s[conv].set_scope("local")
    multiplier = static(found.filter.shape[1], "the channel multiplier")

    out = s[output]
    n, c, h, w = out.op.axis
    c, m = out.split(c, factor=multiplier)
    h, row = out.split(h, factor=tile.rows)
    w, vector = out.split(w, factor=tile.vectors * tile.lanes)
    vector, lane = out.split(vector, factor=tile.lanes)
    out.reorder(n, c, m, h, w, row, vector, lane)
    channel = out.fuse(n, c)
    out.parallel(channel)
    out.unroll(row)
    out.unroll(vector)
    out.vectorize(lane)

    sums = s[local]
    sums.compute_at(out, w)
    _, _, i, j = sums.op.axis
    di, dj = sums.op.reduce_axis
    sums.align_bounds(j, tile.lanes)
    jo, ji = sums.split(j, factor=tile.lanes)
    do, dt = sums.split(di, factor=min(tile.taps, static(found.filter.shape[2], "the filter")))
    sums.reorder(do, dj, dt, i, jo, ji)
    sums.unroll(dt, i, jo)
    if static(found.filter.shape[3], "the filter") <= 7:
        sums.unroll(dj)
    sums.vectorize(ji)

    if found.padded is not None:
        rows = s[found.padded]
        rows.compute_at(out, channel)
        _, _, i, j = rows.op.axis
        rows.align_bounds(i, 1)  # rows that the last tile asks for beyond the image, too
        rows.align_bounds(j, tile.lanes)
        _, ji = rows.split(j, factor=tile.lanes)
        rows.vectorize(ji)
    return s
