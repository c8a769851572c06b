"""Depthwise convolution on a CPU, channels first: vectors along rows, a tile of rows in registers.

Each channel is copied once, padded, into a buffer that stays in the first-level caches; its rows
are as long as whole vectors need, so that the sum knows no edges. A tile of ``rows`` by ``vectors``
vectors is summed in registers over all taps: an input vector that was loaded serves every row of
the tile, a tap of the filter every vector. The gradient by the input is computed alike, phase by
phase where there is a stride.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.stages import Stages, begin, image_axes, tap_axes


@dataclass(frozen=True)
class LineTile:
    """``rows`` by ``vectors`` vectors of ``lanes`` pixels are summed in registers; the taps of
    ``taps`` filter rows are written out. With ``stream`` results go past the caches."""

    rows: int = 4
    vectors: int = 2
    lanes: int = 16
    taps: int = 3
    stream: int = 0


def schedule_lines(d: Declaration, tile: LineTile = LineTile()) -> Schedule:
    """The schedule for a forward pass or a gradient by the input in NCHW or NCW."""
    st, p = begin(d), d.problem
    out = st.out
    phased = len(st.sums.op.axis) != p.rank + 2
    sh, sw = p.stride if phased else (1, 1)
    multiplier = p.multiplier if p.pass_ == "forward" else 1
    n, c, h, w = image_axes(out, p.layout)
    c, m = out.split(c, factor=multiplier)
    h, row = out.split(h, factor=tile.rows * sh)
    w, vector = out.split(w, factor=tile.vectors * tile.lanes * sw)
    vector, lane = out.split(vector, factor=tile.lanes)
    out.reorder(n, c, m, h, w, row, vector, lane)
    channel = out.fuse(n, c)
    out.parallel(channel)
    if tile.stream:
        out.pragma(channel, "stream_stores", True)
    out.unroll(row)
    out.unroll(vector)
    out.vectorize(lane)
    st.sums.compute_at(out, w)
    _sum(st, tile, phased)
    if st.padded is not None:
        lines = st.padded
        lines.compute_at(out, channel)
        *before, j = lines.op.axis
        if p.rank == 2:
            lines.align_bounds(before[-1], 1)  # rows that the last tile asks for, too
        lines.align_bounds(j, tile.lanes)
        _, lane = lines.split(j, factor=tile.lanes)
        lines.vectorize(lane)
    return st.schedule


def _sum(st: Stages, tile: LineTile, phased: bool) -> None:
    sums, p = st.sums, st.declaration.problem
    n, c, *space = sums.op.axis
    before, di, dj = tap_axes(sums, p.rank)
    phases = space[: p.rank] if phased else []
    *rows, column = space[len(phases) :]
    sums.align_bounds(column, tile.lanes)
    vector, lane = sums.split(column, factor=tile.lanes)
    do, dt = sums.split(di, factor=min(tile.taps, p.kernel[0]))
    sums.reorder(n, c, *phases, *before, do, dj, dt, *rows, vector, lane)
    sums.unroll(*phases, dt, *rows, vector)
    if p.kernel[-1] <= 7:
        sums.unroll(dj)
    sums.vectorize(lane)
