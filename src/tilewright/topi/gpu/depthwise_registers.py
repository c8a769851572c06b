"""Depthwise convolution on a GPU with its input in registers.

Each thread computes a strip of ``rows`` by ``vector`` outputs of one channel, and of every filter
of that channel. It reads the rows that it needs as aligned 16-byte vectors straight into
registers: neighbours read the same sectors again, from the first-level cache, which costs less
than a round trip through shared memory with its barrier. Rows are used by up to K output rows,
and by every filter, without being read again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.ir.expr import IntImm
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.fusion import ConvolutionStages, find_convolution
from tilewright.topi.nn.padding import static


@dataclass(frozen=True)
class RegisterTile:
    """A thread computes ``rows`` by ``vector`` outputs, a block ``threads_y`` by ``threads_x`` of
    these strips in each of ``channels`` channels: more than one where an image is small."""

    rows: int = 4
    vector: int = 4
    threads_y: int = 4
    threads_x: int = 32
    channels: int = 1


def schedule_registers(output: Tensor, tile: RegisterTile = RegisterTile()) -> Schedule:
    """The schedule for ``output``, a depthwise convolution in NCHW or what is fused to it."""
    found = find_convolution(output)
    s, conv = found.schedule, found.conv
    if found.fused:
        s[conv].set_scope("local")
        local = conv
    else:
        local = s.cache_write(conv, "local")
    source = found.padded if found.padded is not None else found.data
    data = s.cache_read(source, "local", [local])
    if found.padded is not None:
        s[found.padded].compute_inline()
    multiplier = static(found.filter.shape[1], "the channel multiplier")

    out = s[output]
    n, c, h, w = out.op.axis
    c, m = out.split(c, factor=multiplier)
    w, lane = out.split(w, factor=tile.vector)
    h, row = out.split(h, factor=tile.rows)
    by, ty = out.split(h, factor=tile.threads_y)
    bx, tx = out.split(w, factor=tile.threads_x)
    out.reorder(n, c, by, bx, ty, tx, m, row, lane)
    image, tz = out.split(out.fuse(n, c), factor=tile.channels)
    out.reorder(image, by, bx, tz, ty, tx)
    out.bind(out.fuse(image, by, bx), te.thread_axis("blockIdx.x"))
    out.bind(tz, te.thread_axis("threadIdx.z"))
    out.bind(ty, te.thread_axis("threadIdx.y"))
    out.bind(tx, te.thread_axis("threadIdx.x"))
    out.unroll(m)
    out.unroll(row)
    out.vectorize(lane)

    sums = s[local]
    sums.compute_at(out, tx)
    batch, channel, i, j = sums.op.axis
    di, dj = sums.op.reduce_axis
    sums.reorder(batch, di, dj, channel, i, j)
    for axis in (di, dj, channel, i, j):
        sums.unroll(axis)

    rows = s[data]
    rows.compute_at(out, tx)
    _, _, i, j = rows.op.axis
    rows.align_bounds(j, tile.vector, _first_column(found))
    jo, ji = rows.split(j, factor=tile.vector)
    rows.unroll(i)
    rows.unroll(jo)
    rows.vectorize(ji)
    return s


def _first_column(found: ConvolutionStages) -> int:
    """Where column 0 of the image stands in the padded one: vectors are aligned to it."""
    if found.padded is None:
        return 0
    wide, narrow = found.padded.shape[3], found.data.shape[3]
    if isinstance(wide, IntImm) and isinstance(narrow, IntImm):
        return (wide.value - narrow.value + 1) // 2
    return 0
