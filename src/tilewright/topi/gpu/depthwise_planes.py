"""Depthwise convolution on a GPU, channels first: small images, whole, in shared memory.

Where the rows of an image are short, vectors cannot be cut from them: seven 16-bit numbers are 14
bytes. The planes of neighbouring channels lie one after another, though, so a block copies several
of them at once, 16 bytes a thread, into shared memory, and its results back the same way. In
between each thread computes a strip of a plane from shared memory, where no order of reads is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule, Stage
from tilewright.topi.declare import Declaration, declare, declare_scaled
from tilewright.topi.gpu.loop_order import ROLLING, WHOLE
from tilewright.topi.operators.conv import Conv
from tilewright.topi.stages import begin, image_axes, tap_axes


@dataclass(frozen=True)
class PlaneTile:
    """A block computes ``planes`` planes, a thread ``rows`` by ``columns`` pixels of one.
    ``by_row`` is as in :class:`~tilewright.topi.gpu.depthwise_strips.StripTile`."""

    planes: int = 8
    rows: int = 7
    columns: int = 7
    by_row: int = WHOLE


def declare_planes(p: Conv, tile: PlaneTile, batch: Any = None) -> Declaration:
    """The program of a problem, as :func:`~.depthwise_strips.declare_strips` says it."""
    scaled = tile.rows * tile.columns > p.kernel_h * p.kernel_w
    return (declare_scaled if scaled else declare)(p, batch)


def schedule_planes(d: Declaration, tile: PlaneTile = PlaneTile()) -> Schedule:
    """The schedule for a forward pass or a gradient by the input, with stride 1, in NCHW or NCW.

    ``planes`` divides the channels of the result; each has one filter a channel.
    """
    st, p = begin(d), d.problem
    s, sums = st.schedule, st.sums
    kind = p.accumulate if tile.by_row == ROLLING else None  # what is kept is converted once
    data = s.cache_read(d.source, "local", [st.sum], kind)
    image = s.cache_read(d.image, "shared", [data if d.padded is None else d.padded])
    if st.padded is not None:
        st.padded.compute_inline()
    staged = s.cache_write(d.output, "shared")
    out, made = s[d.output], s[staged]

    n, c, h, w = image_axes(made, p.layout)
    h, row = made.split(h, factor=tile.rows)
    w, column = made.split(w, factor=tile.columns)
    made.reorder(n, c, h, w, row, column)
    strips = -(-p.result_shape[-1] // tile.columns)
    if p.rank == 2:
        strips *= -(-p.result_shape[-2] // tile.rows)
    threads = tile.planes * strips
    x = te.thread_axis((0, threads), "threadIdx.x")
    thread = made.fuse(c, h, w)
    made.bind(thread, x)
    made.unroll(row)
    made.unroll(column)

    n, c, *space = out.op.axis
    c, plane = out.split(c, factor=tile.planes)
    block = out.fuse(n, c)
    out.bind(block, te.thread_axis("blockIdx.x"))
    _copy(out, [plane, *space], threads, dtype(p.dtype).bytes)
    made.compute_at(out, block)
    copied = s[image]
    copied.compute_at(out, block)
    _copy(copied, list(copied.op.axis), threads, dtype(p.dtype).bytes)

    sums.compute_at(made, row if tile.by_row else thread)
    batch, channel, *pixels = sums.op.axis
    before, di, dj = tap_axes(sums, p.rank)
    sums.reorder(batch, *before, di, dj, channel, *pixels)
    sums.unroll(*before, di, dj, channel, *pixels)
    loads = s[data]
    loads.compute_at(made, row if tile.by_row == ROLLING else thread)
    if tile.by_row == ROLLING:
        loads.rolling_buffer()
    loads.unroll(*loads.op.axis[1:])
    return s


def _copy(stage: Stage, axes: list[te.IterVar], threads: int, size: int) -> None:
    """All of it by all threads of a block, 16 bytes at a time."""
    rest, vector = stage.split(stage.fuse(*axes), factor=16 // size)
    rest, thread = stage.split(rest, factor=threads)
    stage.bind(thread, te.thread_axis((0, threads), "threadIdx.x"))
    stage.unroll(rest)
    stage.vectorize(vector)
