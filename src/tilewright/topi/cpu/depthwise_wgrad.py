"""The gradient of a depthwise convolution by its filter on a CPU: all taps in registers.

Channels last, vectors are of channels: a task takes some vectors of channels and some rows of the
filter, and goes over the batch and its images; each pixel of dy that it loads is multiplied with
the pixels of x under all taps. Channels first, vectors are of pixels along a row of dy, and their
lanes are added up at the end. No two tasks add to the same sum, so the result is the same in every
run, whatever the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.stages import Stages, begin


@dataclass(frozen=True)
class GradTile:
    """The taps of ``rows`` rows of a filter are summed in registers, ``vectors`` vectors of
    ``lanes`` at a time; ``pixels`` columns of dy are written out."""

    rows: int = 3
    vectors: int = 1
    lanes: int = 16
    pixels: int = 4


def schedule_wgrad_channels(d: Declaration, tile: GradTile = GradTile()) -> Schedule:
    """The schedule for a gradient by the filter in NHWC or NWC."""
    st, p = begin(d), d.problem
    out = st.out
    c, m, *taps = out.op.axis
    di, dj = taps if p.rank == 2 else out.split(taps[0], nparts=1)
    c, lane = out.split(c, factor=tile.lanes)
    c, vector = out.split(c, factor=tile.vectors)
    di, row = out.split(di, factor=min(tile.rows, p.kernel[0]))
    out.reorder(c, di, vector, lane, m, row, dj)
    task = out.fuse(c, di)
    out.parallel(task)
    sums = st.sums
    sums.compute_at(out, task)
    *taps, c = sums.op.axis
    if p.multiplier == 1:
        sums.align_bounds(c, tile.lanes)
    vector, lane = sums.split(c, factor=tile.lanes)
    b, oi, oj = _over(st)
    oj, pixel = sums.split(oj, factor=tile.pixels)
    sums.reorder(b, oi, oj, pixel, *taps, vector, lane)
    _write_out(st, [pixel, *taps, vector])
    sums.vectorize(lane)
    if st.padded is not None:
        st.padded.compute_inline()
    return st.schedule


def schedule_wgrad_lines(d: Declaration, tile: GradTile = GradTile()) -> Schedule:
    """The schedule for a gradient by the filter in NCHW or NCW."""
    st, p = begin(d), d.problem
    s = st.schedule
    *_, oj = _over(st)
    _, lane = st.sums.split(oj, factor=tile.lanes)
    partial = s.rfactor(st.sum, lane, -1)
    out = st.out
    c, m, *taps = out.op.axis
    di, dj = taps if p.rank == 2 else out.split(taps[0], nparts=1)
    di, row = out.split(di, factor=min(tile.rows, p.kernel[0]))
    out.reorder(c, m, di, row, dj)
    channel = out.fuse(c, m)
    out.parallel(channel)
    s[st.sum].compute_at(out, di)
    parts = s[partial]
    parts.set_scope("local")
    parts.compute_at(out, di)
    c, m, *taps, lane = parts.op.axis
    *over, vectors = [a for a in parts.leaf_iter_vars if a.kind == "reduce"]
    parts.reorder(*over, vectors, c, m, *taps, lane)
    parts.unroll(*taps)
    parts.vectorize(lane)
    if st.padded is not None:
        lines = st.padded
        lines.compute_at(parts, over[0])
        lines.align_bounds(lines.op.axis[-1], tile.lanes)
        _, lane = lines.split(lines.op.axis[-1], factor=tile.lanes)
        lines.vectorize(lane)
    return s


def _over(st: Stages) -> tuple[IterVar, IterVar, IterVar]:
    """The reduction axes: batch, rows and columns of dy."""
    axes = list(st.sums.op.reduce_axis)
    if len(axes) == 2:
        return axes[0], *st.sums.split(axes[1], nparts=1)
    return axes[0], axes[1], axes[2]


def _write_out(st: Stages, axes: list[IterVar]) -> None:
    st.sums.unroll(*axes)
