"""Convolution as a product of matrices on the CUDA cores of any GPU, at full precision.

A block computes ``rows`` output channels of a group by ``columns`` windows from tiles in shared
memory, a thread some neighbouring rows by groups of four columns, which it reads as vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.schedule.matmul import Whole
from tilewright.te import Tensor
from tilewright.topi.gpu.conv2d_products import begin_products, filled
from tilewright.topi.gpu.register_model import divisor
from tilewright.topi.parameters import flag

#: Neighbouring columns of a thread.
_LANES = 4
#: Sums of a thread, at most.
_SUMS = 64


@dataclass(frozen=True)
class LaneTile:
    """A block computes ``rows`` by ``columns`` sums, over ``depth`` products at once, with
    ``down`` by ``across`` threads, which divide ``rows`` and a quarter of ``columns``; tiles are
    loaded ``stages - 1`` ahead. ``implicit`` is as in
    :class:`~tilewright.topi.gpu.conv2d_mma.MmaTile`."""

    rows: int = 64
    columns: int = 128
    depth: int = 16
    down: int = 8
    across: int = 16
    stages: int = 1
    implicit: int = flag()

    @property
    def whole(self) -> Whole:
        """What the declaration's matrices are to be filled up to."""
        return self.rows, self.columns, self.depth


def schedule_conv2d_lanes(output: Tensor, tile: LaneTile = LaneTile()) -> Schedule:
    """The schedule of a program of one sum of products, and of what is fused to it;
    see :func:`~tilewright.topi.fusion.find_products`."""
    found = begin_products(output, tile)
    s, out, total = found.schedule, found.out, found.schedule[found.product]
    tx = te.thread_axis((0, tile.across), "threadIdx.x")
    ty = te.thread_axis((0, tile.down), "threadIdx.y")
    turns = tile.columns // (tile.across * _LANES)
    m, p = found.tile
    down, m = out.split(m, factor=min(tile.rows // tile.down, found.rows))
    p, lane = out.split(p, factor=_LANES)
    turn, p = out.split(p, factor=tile.across)
    out.reorder(turn, down, p, m, lane)
    out.bind(turn, te.thread_axis((0, turns), "vthread", name="turn"))
    out.bind(down, ty)
    out.bind(p, tx)
    out.unroll(m)
    out.unroll(lane)

    total.set_scope("local")
    total.compute_at(out, p)
    left = s.cache_read(found.weights, "local", [found.product])
    right = s.cache_read(found.columns, "local", [found.product])
    g, m, p = total.op.axis
    (k,) = total.op.reduce_axis
    total.align_bounds(m, tile.rows // tile.down)
    total.align_bounds(p, _LANES)
    step, k = total.split(k, factor=tile.depth)
    total.reorder(g, step, k, m, p)
    total.unroll(k, m, p)
    for tensor in (left, right):
        stage = s[tensor]
        stage.compute_at(total, k)
        stage.unroll(*stage.op.axis[:-1])
    s[right].vectorize(s[right].op.axis[-1])
    for tensor in (found.weights, found.columns):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(total, step)
        found.copy(tensor, (ty, tx))
        if tile.stages > 1:
            stage.pipeline(tile.stages)
    return s


def conv2d_lanes_tiles(filters: int, groups: int = 1, windows: int = 2**20) -> list[LaneTile]:
    """Tiles worth trying for convolutions with given output channels, groups and windows; those
    that fill their matrices up least come first, large ones before small ones."""
    own = filters // groups
    heights = [rows for rows in (8, 16, 32, 64, 128) if rows < 2 * own]
    if groups > 1:
        heights = [rows for rows in heights if own % rows == 0]
    found = []
    for rows, columns, depth in product(heights or [divisor(own, 16)], (64, 128, 256), (8, 16)):
        each = next(n for n in (8, 4, 2, 1) if rows % n == 0)
        for across, (implicit, stages) in product((16, 32, 64), ((1, 1), (1, 2), (0, 2), (0, 3))):
            threads, sums = rows // each * across, each * columns // across
            whole = columns % (across * _LANES) == 0
            if whole and 64 <= threads <= 256 and sums <= _SUMS:
                tile = LaneTile(rows, columns, depth, rows // each, across, stages, implicit)
                found.append(tile)

    def cost(tile: LaneTile) -> float:
        waste = filled(own, tile.rows) * filled(windows, tile.columns)
        return waste * (1 + 16 / tile.rows + 16 / tile.columns)

    return sorted(found, key=cost)
