"""Sums over windows on a GPU, channels first: small images, whole, in shared memory.

Where the rows of an image are short, vectors cannot be cut from them: seven 16-bit numbers are 14
bytes. The planes of neighbouring channels lie one after another, though, so a block copies several
of them at once, 16 bytes a thread, into shared memory, and its results back the same way. In
between each thread computes a strip of a plane from shared memory, where no order of reads is slow.
"""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.counts import Counts, declared, elements, image_extents
from tilewright.topi.pieces.loop_order import ROLLING
from tilewright.topi.pieces.register_tiles import PlaneTile
from tilewright.topi.pieces.tiling import copy_vectors, extent_of, thread_axes
from tilewright.topi.pieces.windows import sum_windows
from tilewright.topi.problem import Problem
from tilewright.topi.stages import begin, image_axes

#: Bytes that a thread copies at once.
_BYTES = 16


def schedule_planes(d: Declaration, tile: PlaneTile = PlaneTile()) -> Schedule:
    """The schedule of sums over windows with stride 1 of a gradient; ``planes`` divides the
    channels of the result, each of which has one filter."""
    st, vector = begin(d), _BYTES // d.output.dtype.bytes
    s, sums = st.schedule, st.sums
    kind = str(st.sum.dtype) if tile.by_row == ROLLING else None  # what is kept is converted once
    data = s.cache_read(d.source, "local", [st.sum], kind)
    image = s.cache_read(d.image, "shared", [data if d.padded is None else d.padded])
    if st.padded is not None:
        st.padded.compute_inline()
    staged = s.cache_write(d.output, "shared")
    out, made = s[d.output], s[staged]

    n, c, h, w = image_axes(made, d.layout)
    h, row = made.split(h, factor=tile.rows)
    w, column = made.split(w, factor=tile.columns)
    made.reorder(n, c, h, w, row, column)
    threads = _threads(d, tile)
    thread = made.fuse(c, h, w)
    made.bind(thread, *thread_axes(threads))
    made.unroll(row, column)

    n, c, *space = out.op.axis
    c, plane = out.split(c, factor=tile.planes)
    block = out.fuse(n, c)
    out.bind(block, te.thread_axis("blockIdx.x"))
    copy_vectors(out, [plane, *space], threads, vector)
    made.compute_at(out, block)
    copied = s[image]
    copied.compute_at(out, block)
    copy_vectors(copied, list(copied.op.axis), threads, vector)

    sums.compute_at(made, row if tile.by_row else thread)
    sum_windows(st)
    loads = s[data]
    loads.compute_at(made, row if tile.by_row == ROLLING else thread)
    if tile.by_row == ROLLING:
        loads.rolling_buffer()
    loads.unroll(*loads.op.axis[1:])
    return s


def _threads(d: Declaration, tile: PlaneTile) -> int:
    """Of a block, one for each tile of a plane."""
    *_, high, wide = image_extents(d)
    return tile.planes * -(-high // tile.rows) * -(-wide // tile.columns)


def plane_counts(p: Problem, tile: PlaneTile) -> Counts:
    """Of :func:`schedule_planes`."""
    d = declared(p)
    n, channels, high, wide = image_extents(d)
    threads, blocks = _threads(d, tile), n * channels // tile.planes
    own = min(tile.rows, high) * min(tile.columns, wide)
    return Counts(
        blocks, threads, blocks * threads * own * extent_of(*d.sum.op.reduce_axis),
        elements(d.image) + elements(d.output), elements(d.output),
    )  # fmt: skip
