"""Depthwise convolution on a GPU, channels first: strips of an image in registers.

Each thread computes a strip of ``rows`` by ``vector`` pixels of one channel, and of every filter of
that channel. It reads the rows that it needs as aligned vectors straight into registers; neighbours
read the same sectors again, from the first-level cache. The gradient by the input is computed
alike: with stride 1 it is a convolution with the rotated filter, with a larger one each phase of a
strip is a convolution of its own; the phases are interleaved as vectors are stored.

A strip is summed tap by tap, or one row of outputs after another, from the top down
(:mod:`~tilewright.topi.gpu.loop_order`). A row of the input is then forgotten after the last output
that needs it, so that long strips of large filters fit into registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule, Stage
from tilewright.topi.declare import Declaration, declare, declare_scaled
from tilewright.topi.gpu.loop_order import WHOLE, place_loads, rolls
from tilewright.topi.nn.depthwise_dgrad import gathers
from tilewright.topi.operators.conv import Conv
from tilewright.topi.stages import begin, image_axes, tap_axes


@dataclass(frozen=True)
class StripTile:
    """A thread computes ``rows`` by ``vector`` pixels, a block ``threads_y`` by ``threads_x`` of
    these strips in each of ``channels`` channels. The taps of ``taps`` filter rows are written out,
    and their input is loaded at once; where ``by_row`` is not :data:`WHOLE`, those of all."""

    rows: int = 4
    vector: int = 4
    threads_y: int = 4
    threads_x: int = 32
    channels: int = 1
    taps: int = 3
    by_row: int = WHOLE


def declare_strips(p: Conv, tile: StripTile, batch: Any = None) -> Declaration:
    """The program of a problem; where a thread has more pixels than the filter has taps, it scales
    the taps instead of the pixels. ``batch`` as in :func:`declare`."""
    scaled = tile.rows * tile.vector > p.kernel_h * p.kernel_w
    return (declare_scaled if scaled else declare)(p, batch)


def schedule_strips(d: Declaration, tile: StripTile = StripTile()) -> Schedule:
    """The schedule for a forward pass or a gradient by the input in NCHW or NCW, of either
    declaration."""
    st, p = begin(d), d.problem
    s, out, sums = st.schedule, st.out, st.sums
    phased = len(sums.op.axis) != p.rank + 2
    sh, sw = p.stride if phased else (1, 1)
    filters = p.multiplier if p.pass_ == "forward" else 1
    kind = p.accumulate if rolls(tile.by_row) else None  # what is kept is converted once
    data = s.cache_read(d.source, "local", [st.sum], kind)
    if st.padded is not None:
        st.padded.compute_inline()

    n, c, h, w = image_axes(out, p.layout)
    c, m = out.split(c, factor=filters)
    w, lane = out.split(w, factor=tile.vector * sw)
    h, row = out.split(h, factor=tile.rows * sh)
    row, phase = out.split(row, factor=sh)
    by, ty = out.split(h, factor=tile.threads_y)
    bx, tx = out.split(w, factor=tile.threads_x)
    out.reorder(n, c, by, bx, ty, tx, row, m, phase, lane)
    plane, tz = out.split(out.fuse(n, c), factor=tile.channels)
    out.reorder(plane, by, bx, tz, ty, tx)
    out.bind(out.fuse(plane, by, bx), te.thread_axis("blockIdx.x"))
    out.bind(tz, te.thread_axis("threadIdx.z"))
    out.bind(ty, te.thread_axis("threadIdx.y"))
    out.bind(tx, te.thread_axis("threadIdx.x"))
    out.unroll(row, m, phase)
    if p.result_shape[-1] % (tile.vector * sw):
        out.unroll(lane)
    else:
        out.vectorize(lane)

    sums.compute_at(out, row if tile.by_row else tx)
    batch, channel, *space = sums.op.axis
    before, di, dj = tap_axes(sums, p.rank)
    do, dt = sums.split(di, factor=p.kernel_h if tile.by_row else min(tile.taps, p.kernel_h))
    sums.reorder(batch, *before, do, dt, dj, channel, *space)
    sums.unroll(*before, dt, dj, channel, *space)

    loads = s[data]
    place_loads(loads, tile.by_row, out, row, tx, sums, do)
    _load_rows(loads, d, tile)
    return s


def _load_rows(loads: Stage, d: Declaration, tile: StripTile) -> None:
    """Whole rows of a window, in vectors where the rows of the image divide into them."""
    p = d.problem
    _, channel, *outer, column = loads.op.axis
    row_length = p.out_image[1] if p.pass_ == "dgrad" else p.width
    wide = 1 if row_length % tile.vector else tile.vector
    loads.align_bounds(column, wide, _first_column(d))
    vectors, lane = loads.split(column, factor=wide)
    loads.unroll(channel, *outer, vectors)
    if wide > 1:
        loads.vectorize(lane)


def _first_column(d: Declaration) -> int:
    """Where column 0 of the image stands in the padded one: vectors are aligned to it."""
    if d.padded is None:
        return 0
    return gathers(d.problem)[-1].before if d.problem.pass_ == "dgrad" else d.problem.padding[1]
