"""Convolution as a product of matrices on the CUDA cores of any GPU, at full precision.

A block computes ``rows`` output channels of a group by ``columns`` windows from tiles in shared
memory, a thread some neighbouring rows by groups of four columns, which it reads as vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.schedule.matmul import Whole
from tilewright.te import Tensor
from tilewright.topi.gpu.conv2d_products import begin_products
from tilewright.topi.parameters import flag, later

#: Neighbouring columns of a thread.
LANES = 4


@dataclass(frozen=True)
class LaneTile:
    """A block computes ``rows`` by ``columns`` sums, over ``depth`` products at once, with
    ``down`` by ``across`` threads, which divide ``rows`` and a quarter of ``columns``; tiles are
    loaded ``stages - 1`` ahead. ``implicit`` is as in
    :class:`~tilewright.topi.gpu.conv2d_mma.MmaTile`. ``chunks`` blocks share the products of a
    sum, which another kernel adds."""

    rows: int = 64
    columns: int = 128
    depth: int = 16
    down: int = 8
    across: int = 16
    stages: int = 1
    implicit: int = flag()
    chunks: int = later(1)

    @property
    def whole(self) -> Whole:
        """What the declaration's matrices are to be filled up to."""
        return self.rows, self.columns, self.depth * self.chunks

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block, of numbers of 32 bits."""
        return 4 * self.stages * self.depth * (self.rows + self.columns)


def schedule_conv2d_lanes(output: Tensor, tile: LaneTile = LaneTile()) -> Schedule:
    """The schedule of a program of one sum of products, and of what is fused to it;
    see :func:`~tilewright.topi.fusion.find_products`."""
    found = begin_products(output, tile, tile.chunks)
    s, out, total = found.schedule, found.out, found.schedule[found.product]
    tx = te.thread_axis((0, tile.across), "threadIdx.x")
    ty = te.thread_axis((0, tile.down), "threadIdx.y")
    turns = tile.columns // (tile.across * LANES)
    m, p = found.tile
    down, m = out.split(m, factor=min(tile.rows // tile.down, found.rows))
    p, lane = out.split(p, factor=LANES)
    turn, p = out.split(p, factor=tile.across)
    out.reorder(turn, down, p, m, lane)
    out.bind(turn, te.thread_axis((0, turns), "vthread", name="turn"))
    out.bind(down, ty)
    out.bind(p, tx)
    out.unroll(m)
    if found.pixels % LANES == 0 and turns == 1:
        out.vectorize(lane)
    else:
        out.unroll(lane)

    total.set_scope("local")
    total.compute_at(out, p)
    left = s.cache_read(found.weights, "local", [found.product])
    right = s.cache_read(found.columns, "local", [found.product])
    *outer, m, p = total.op.axis
    (k,) = total.op.reduce_axis
    total.align_bounds(m, tile.rows // tile.down)
    total.align_bounds(p, LANES)
    step, k = total.split(k, factor=tile.depth)
    total.reorder(*outer, step, k, m, p)
    total.unroll(k, m, p)
    for tensor in (left, right):
        stage = s[tensor]
        stage.compute_at(total, k)
        *outer, last = stage.op.axis
        if tensor is left:  # whose rows lie side by side
            last, lane = stage.split(outer.pop(), factor=gcd(tile.rows // tile.down, LANES))
            stage.reorder(*outer, stage.op.axis[-1], last, lane)
            stage.unroll(*outer, stage.op.axis[-1], last)
        else:
            lane = last
            stage.unroll(*outer)
        stage.vectorize(lane)
    for tensor in (found.weights, found.columns):
        stage = s[tensor]
        found.copy(tensor, (ty, tx), tile.depth, turned=True)
        stage.set_scope("shared")
        stage.compute_at(total, step)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
    return s
