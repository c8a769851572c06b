"""Depthwise convolution on a CPU, channels last: some vectors of channels after others.

A task takes few channels of an image, or of a band of its rows. It copies their taps, and their
part of the image, next to one another: in memory a pixel's neighbour lies all channels
further, so that the lines of an image of many channels compete for few places of a first-level
cache. Of 16-bit tensors these copies should be of the type of sums (:func:`declare_wide`):
converting a number for each of its products takes longer than the products. Nothing is padded: of a
filter that reaches beyond the image only those taps are summed that meet it, which of a filter as
large as its image are about half.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.parameters import flag
from tilewright.topi.stages import Stages, begin, image_axes, tap_axes

#: Rows of filters up to this width are written out.
_WRITTEN = 9
#: Vectors of this many bytes have masks at no cost (AVX-512): the last one of the channels, which
#: may lie partly beyond them, needs no code of its own.
_MASKED = 64


@dataclass(frozen=True)
class BlockTile:
    """``rows`` by ``columns`` pixels of ``lanes`` channels are summed in registers; the taps of
    ``taps`` filter rows are written out. A task takes ``vectors`` times as many channels and
    ``band`` tiles of rows, 0 all of them, and copies its part of the image unless ``copy`` is 0.
    With ``stream`` results go past the caches."""

    rows: int = 4
    columns: int = 4
    lanes: int = 16
    taps: int = 1
    band: int = 0
    copy: int = flag()
    vectors: int = 1
    stream: int = 0


def schedule_blocks(d: Declaration, tile: BlockTile = BlockTile()) -> Schedule:
    """The schedule for a forward pass in NHWC or NWC, or a gradient by the input with stride 1."""
    st, p = begin(d), d.problem
    s, out = st.schedule, st.out
    reader = st.sum if d.padded is None else d.padded
    block = d.widened if tile.copy else None
    if tile.copy and block is None:
        block = s.cache_read(d.image, "global", [reader])
    n, c, h, w = image_axes(out, p.layout)
    h, row = out.split(h, factor=tile.rows)
    band, h = out.split(h, factor=tile.band) if tile.band else out.split(h, nparts=1)
    w, column = out.split(w, factor=tile.columns)
    c, vector = out.split(c, factor=tile.vectors * tile.lanes)
    vector, lane = out.split(vector, factor=tile.lanes)
    out.reorder(n, c, band, h, w, vector, row, column, lane)
    task = out.fuse(n, c, band)
    out.parallel(task)
    if tile.stream:
        out.pragma(task, "stream_stores", True)
    out.unroll(row, column)
    out.vectorize(lane)
    if tile.lanes * dtype(p.accumulate).bytes == _MASKED:
        out.pragma(vector, "partition", False)
    st.sums.compute_at(out, vector)
    _sum(st, tile)
    if st.padded is not None:
        st.padded.compute_inline()
    copies = [st.packed] if st.packed is not None else []
    if block is not None:
        copies.append(s[block])
    for stage in copies:
        stage.compute_at(out, task)
        stage.align_bounds(stage.op.axis[-1], tile.lanes)
        _, lane = stage.split(stage.op.axis[-1], factor=tile.lanes)
        stage.vectorize(lane)
    return s


def _sum(st: Stages, tile: BlockTile) -> None:
    sums, p = st.sums, st.declaration.problem
    batch, *space, channel = sums.op.axis
    before, di, dj = tap_axes(sums, p.rank)
    sums.align_bounds(channel, tile.lanes)
    vector, lane = sums.split(channel, factor=tile.lanes)
    do, dt = sums.split(di, factor=min(tile.taps, p.kernel[0]))
    written = p.kernel[-1] <= _WRITTEN
    # Where taps are written out, rows stand outside of them: what guards a row of the image then
    # guards all its products.
    inside = (dt, *space[:-1], dj, space[-1]) if written else (dj, dt, *space)
    sums.reorder(batch, *before, do, *inside, vector, lane)
    sums.unroll(dt, *space, vector)
    if written:
        sums.unroll(dj)
    sums.vectorize(lane)
