"""The gradient by the filter of a depthwise convolution of small images on tensor cores of any GPU
since Ampere, channels first.

The products are those of :mod:`~tilewright.topi.pieces.plane_gradients`. A block copies planes of x
and dy of neighbouring channels to shared memory in the background, some images at a time. Each warp
has one of the channels, whose products of all pairs of rows of dy with all rows of x it keeps in
registers, those that are as far apart as one. In the end they go through shared memory, where their
diagonals are summed. Each tap is summed by one thread in a fixed order.
"""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import mma_bf16, mma_f16
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.plane_copies import copy_planes
from tilewright.topi.pieces.plane_gradients import (
    APART,
    DEPTH,
    PLACES,
    PlaneGradientTile,
    as_plane_gradient,
)
from tilewright.topi.stages import scheduled

_LANES = 32
_INSTRUCTIONS = {"float16": mma_f16, "bfloat16": mma_bf16}


def schedule_plane_gradient(
    d: Declaration, tile: PlaneGradientTile = PlaneGradientTile()
) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a gradient by the filter in NCHW
    of images of at most eight columns."""
    p, s = d.problem, scheduled(d.output, d.sum)
    made = as_plane_gradient(s, d, DEPTH * tile.images)
    added = s.cache_write(made.rows, "fragment")
    out, sums, rows, products = s[d.output], s[d.sum], s[made.rows], s[made.products]
    ty = te.thread_axis((0, tile.channels), "threadIdx.y")
    c, m, h, w = out.op.axis
    block, c = out.split(c, factor=tile.channels)
    across = min(_LANES, 1 << (p.kernel[-1] - 1).bit_length())
    down, h = out.split(h, factor=_LANES // across)
    parts, w = out.split(w, factor=across)
    out.reorder(block, c, m, down, parts, h, w)
    tap = out.fuse(h, w)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(c, ty)
    out.bind(tap, te.thread_axis((0, _LANES), "threadIdx.x"))
    out.unroll(down)
    if d.sum is not d.output:
        sums.set_scope("local")
        sums.compute_at(out, tap)
    sums.unroll(sums.op.reduce_axis[0])

    rows.compute_at(out, block)
    c, m, kh, o, place = rows.op.axis
    rows.bind(c, ty)
    rows.unroll(kh)
    for axis, first in ((o, 0), (place, made.first % PLACES)):
        rows.align_bounds(axis, PLACES, first)
    rows.storage_align(o, PLACES, APART)
    _, both = rows.split(place, factor=2)
    rows.vectorize(both)
    halves = s[added]
    halves.compute_at(rows, kh)
    for axis, first in ((halves.op.axis[-2], 0), (halves.op.axis[-1], made.first % PLACES)):
        halves.align_bounds(axis, PLACES, first)
    halves.unroll(halves.op.reduce_axis[0])

    products.compute_at(out, block)
    c, m, e, half, o, place = products.op.axis
    i, n, pair = products.op.reduce_axis
    for axis, extent in ((half, 2), (o, PLACES), (place, PLACES)):
        products.align_bounds(axis, extent, made.first % PLACES if axis is place else 0)
    step, n = products.split(n, factor=DEPTH)
    products.reorder(c, m, i, step, e, pair, half, o, place, n)
    products.bind(c, ty)
    products.unroll(step, e, pair)
    products.tensorize(half, _INSTRUCTIONS[p.dtype])

    for tensor in (made.x, made.dy):
        stage = s[tensor]
        stage.compute_at(products, step)
        stage.unroll(stage.op.axis[3])
    for tensor, image in ((made.staged_x, p.image), (made.staged_dy, p.out_image)):
        stage = s[tensor]
        stage.compute_at(products, i)
        copy_planes(stage, stage.op.axis[1:], image, tile.channels)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
    return s
