"""Convolution in groups of few channels on a CPU, channels last: vectors across several groups, of
floats, or of words of four bytes (:mod:`~tilewright.topi.nn.group_words`).

A task takes vectors of channels of a band of rows, and copies what they see, padding included.
Tiles of neighbouring pixels of a vector are summed in registers, all channels of a group and taps
of a row written out, so that lanes of a pixel are put in place once for the taps that read them; of
tiles of several rows once for all of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.target.instructions import vnni_lanes
from tilewright.topi.nn.group_windows import LANES, GroupDeclaration
from tilewright.topi.stages import scheduled, space_axes

#: Products of a row of taps that are written out.
_WRITTEN = 400


@dataclass(frozen=True)
class GroupTile:
    """``rows`` by ``columns`` pixels of ``lanes`` channels are summed in registers. A task takes
    ``band`` tiles of rows and ``vectors`` of 16 channels."""

    rows: int = 1
    columns: int = 8
    lanes: int = 16
    band: int = 8
    vectors: int = 1


def schedule_groups(d: GroupDeclaration, tile: GroupTile) -> Schedule:
    """The schedule of :func:`~tilewright.topi.nn.group_windows.declare_groups`."""
    s = scheduled(d.output, d.sum, d.stored, d.packed, d.above)
    words = d.problem.is_quantized
    out, sums, p = s[d.output], s[d.sum], d.problem
    n, c, *space = space_axes(out, p.layout)
    space[-1], column = out.split(space[-1], factor=tile.columns)
    space[-2], row = out.split(space[-2], factor=tile.rows)
    # Of three dimensions a band is one of planes.
    band, space[0] = out.split(space[0], factor=tile.band)
    c, vector = out.split(c, factor=tile.vectors * LANES)
    vector, lane = out.split(vector, factor=LANES)
    lane, inner = out.split(lane, factor=tile.lanes)
    out.reorder(n, band, c, vector, *space, row, column, lane, inner)
    task = out.fuse(n, band, c)
    out.parallel(task)
    out.unroll(row, column, lane)
    out.vectorize(inner)

    sums.set_scope("local")
    sums.compute_at(out, space[-1])
    n, v, *pixels, lane = sums.op.axis
    sums.align_bounds(lane, LANES)
    if words:
        *taps, tap, k, byte = sums.op.reduce_axis
        sums.reorder(n, v, *taps, k, tap, *pixels, lane, byte)
        sums.unroll(*pixels)
        sums.tensorize(lane, vnni_lanes)
    else:
        lane, inner = sums.split(lane, factor=tile.lanes)
        *taps, tap, k = sums.op.reduce_axis
        if tile.rows > 1:  # by rows of the image, whose lanes are put in place for all of the tile
            down = p.dims[-2]
            taps[-1] = sums.skew(taps[-1], by=pixels[-2], scale=down.stride, step=down.dilation)
            sums.unroll(taps[-1])
        sums.reorder(n, v, *taps, k, tap, *pixels, lane, inner)
        sums.unroll(*pixels, lane)
        sums.vectorize(inner)
    each = tile.rows * tile.columns * LANES // tile.lanes
    own, wide = p.channels // p.groups, p.dims[-1].taps
    if each * own * wide <= _WRITTEN:
        sums.unroll(tap)
    sums.unroll(k)

    stored = s[d.stored]
    stored.compute_at(out, task)
    n, v, *pixels = stored.op.axis
    lane = stored.fuse(pixels.pop(-2), pixels.pop()) if words else pixels.pop()
    part = pixels.pop()
    stored.reorder(n, *pixels, v, part, lane)  # as the image lies
    stored.unroll(part)
    stored.vectorize(lane)
    for stage in (d.packed, d.above):
        if stage is not None:
            s[stage].parallel(s[stage].op.axis[0])
    return s
