"""Depthwise convolution on a CPU, channels last: vectors of channels, columns in registers.

A tile of ``columns`` pixels by ``vectors`` vectors of channels is summed in registers over all
taps; an input vector that was loaded serves every column whose window holds it. The gradient by the
input is computed alike, phase by phase where there is a stride.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.stages import Stages, begin, image_axes, tap_axes


@dataclass(frozen=True)
class ChannelTile:
    """``rows`` by ``columns`` pixels by ``vectors`` vectors of ``lanes`` channels are summed in
    registers; the taps of ``taps`` filter rows are written out. ``copy`` pads each band of ``band``
    rows into a buffer beforehand, 0 never. With ``stream`` results go past the caches."""

    columns: int = 6
    vectors: int = 1
    lanes: int = 16
    rows: int = 1
    taps: int = 1
    band: int = 0
    stream: int = 0


def schedule_channels(d: Declaration, tile: ChannelTile = ChannelTile()) -> Schedule:
    """The schedule for a forward pass or a gradient by the input in NHWC or NWC."""
    st, p = begin(d), d.problem
    out = st.out
    phased = len(st.sums.op.axis) != p.rank + 2
    stride = p.stride if phased else (1, 1)
    n, c, h, w = image_axes(out, p.layout)
    band, h = out.split(h, factor=max(tile.band, tile.rows) * stride[0])
    h, row = out.split(h, factor=tile.rows * stride[0])
    w, column = out.split(w, factor=tile.columns * stride[1])
    c, vector = out.split(c, factor=tile.vectors * tile.lanes)
    vector, lane = out.split(vector, factor=tile.lanes)
    out.reorder(n, band, h, w, c, row, column, vector, lane)
    task = out.fuse(n, band)
    out.parallel(task)
    if tile.stream:
        out.pragma(task, "stream_stores", True)
    out.unroll(row, column, vector)
    out.vectorize(lane)
    st.sums.compute_at(out, c)
    _sum(st, tile, phased)
    if st.packed is not None:
        packed = st.packed
        *_, last = packed.op.axis
        _, lane = packed.split(last, factor=tile.lanes)
        packed.vectorize(lane)
    if st.padded is not None:
        if not tile.band:
            st.padded.compute_inline()
        else:
            rows = st.padded
            rows.compute_at(out, task)
            _, lane = rows.split(rows.op.axis[-1], factor=tile.lanes)
            rows.vectorize(lane)
    return st.schedule


def _sum(st: Stages, tile: ChannelTile, phased: bool) -> None:
    sums, p = st.sums, st.declaration.problem
    axes = sums.op.axis
    before, di, dj = tap_axes(sums, p.rank)
    channel, vector_space = axes[-1], list(axes[1:-1])
    sums.align_bounds(channel, tile.lanes)
    vector, lane = sums.split(channel, factor=tile.lanes)
    do, dt = sums.split(di, factor=min(tile.taps, p.kernel[0]))
    phases = vector_space[p.rank :] if phased else []
    pixels = vector_space[: p.rank]
    sums.reorder(axes[0], *phases, *before, do, dt, dj, *pixels, vector, lane)
    sums.unroll(*phases, dt, *pixels, vector)
    if p.kernel[-1] <= 9:
        sums.unroll(dj)
    sums.vectorize(lane)
