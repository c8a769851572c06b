"""Depthwise convolution on a GPU, channels last: channels across threads, pixels in registers.

Each thread computes ``rows`` by ``columns`` pixels of ``vector`` neighbouring channels, which it
moves 16 bytes at a time; neighbouring threads take neighbouring channels, so that every access is
of whole lines. A row of the input that it loaded serves all outputs whose windows hold it. The
filter of a block's channels is brought into shared memory once, its channels side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration, declare, declare_scaled
from tilewright.topi.gpu.loop_order import WHOLE, place_loads, rolls
from tilewright.topi.gpu.shared_filter import share_filter
from tilewright.topi.operators.conv import Conv
from tilewright.topi.stages import begin, image_axes, tap_axes


@dataclass(frozen=True)
class PixelTile:
    """A thread computes ``rows`` by ``columns`` pixels of ``vector`` channels, a block
    ``threads_z`` strips of rows by ``threads_y`` of columns of ``threads_x`` vectors of channels.
    The taps of ``taps`` filter rows are written out, and their input is loaded at once; where
    ``by_row`` is not :data:`WHOLE` those of all, for one row of outputs after another. With
    ``keeps`` (1 or 0) a thread keeps the filter of its channels in registers."""

    rows: int = 2
    columns: int = 4
    vector: int = 4
    threads_y: int = 4
    threads_x: int = 32
    taps: int = 3
    by_row: int = WHOLE
    threads_z: int = 1
    keeps: int = 0


def declare_pixels(p: Conv, tile: PixelTile, batch: Any = None) -> Declaration:
    """The program of a problem; where a thread keeps a filter of fewer taps than it has pixels, it
    scales the taps instead of the pixels. ``batch`` as in :func:`declare`."""
    scaled = tile.keeps and tile.rows * tile.columns > p.kernel_h * p.kernel_w
    return (declare_scaled if scaled else declare)(p, batch)


def schedule_pixels(d: Declaration, tile: PixelTile = PixelTile()) -> Schedule:
    """The schedule for a forward pass or a gradient by the input in NHWC or NWC, of either
    declaration."""
    st, p = begin(d), d.problem
    s, out, sums = st.schedule, st.out, st.sums
    phased = len(sums.op.axis) != p.rank + 2
    sh, sw = p.stride if phased else (1, 1)
    kind = p.accumulate if rolls(tile.by_row) else None  # what is kept is converted once
    data = s.cache_read(d.source, "local", [st.sum], kind)
    if st.padded is not None:
        st.padded.compute_inline()

    n, c, h, w = image_axes(out, p.layout)
    c, lane = out.split(c, factor=tile.vector)
    cb, tx = out.split(c, factor=tile.threads_x)
    w, column = out.split(w, factor=tile.columns * sw)
    wb, ty = out.split(w, factor=tile.threads_y)
    h, row = out.split(h, factor=tile.rows * sh)
    row, phase = out.split(row, factor=sh)
    hb, tz = out.split(h, factor=tile.threads_z)
    out.reorder(n, hb, wb, cb, tz, ty, tx, row, phase, column, lane)
    block = out.fuse(n, hb, wb, cb)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(tz, te.thread_axis("threadIdx.z"))
    out.bind(ty, te.thread_axis("threadIdx.y"))
    out.bind(tx, te.thread_axis("threadIdx.x"))
    out.unroll(row, phase, column)
    whole = p.result_channels % tile.vector == 0
    if whole:
        out.vectorize(lane)
    else:
        out.unroll(lane)

    sums.compute_at(out, row if tile.by_row else tx)
    batch, *space, channel = sums.op.axis
    phases, pixels = space[p.rank :], space[: p.rank]
    before, di, dj = tap_axes(sums, p.rank)
    taps = p.kernel_h if tile.by_row else min(tile.taps, p.kernel_h)
    do, dt = sums.split(di, factor=taps)
    sums.reorder(batch, *before, do, dt, dj, *phases, *pixels, channel)
    sums.unroll(*before, dt, dj, *phases, *pixels, channel)

    loads = s[data]
    place_loads(loads, tile.by_row, out, row, tx, sums, do)
    loads.unroll(*loads.op.axis[:-1])
    if p.multiplier == 1 and whole:
        loads.vectorize(loads.op.axis[-1])
    else:
        loads.unroll(loads.op.axis[-1])

    threads = tile.threads_x, tile.threads_y, tile.threads_z
    filter, kept = share_filter(st, threads, kind, bool(tile.keeps))
    if taps < -(-p.kernel_h // sh):
        filter.compute_at(sums, do)  # of large filters some rows at a time
    else:
        filter.compute_at(out, block)
    if kept is not None:
        kept.compute_at(out, tx)
    return s
