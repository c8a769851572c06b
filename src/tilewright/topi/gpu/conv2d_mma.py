"""Convolution as a product of matrices on tensor cores, of any GPU since Ampere.

A block computes ``rows`` output channels of a group by ``columns`` windows; its warps share the
tiles of both matrices in shared memory, ``depth`` taps at a time, from where ldmatrix loads them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from itertools import product
from math import gcd

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.schedule.matmul import Whole
from tilewright.target.devices import COMMON_SHARED
from tilewright.target.instructions import (
    ldmatrix_a_bf16,
    ldmatrix_a_f16,
    ldmatrix_b_trans_bf16,
    ldmatrix_b_trans_f16,
    mma_bf16,
    mma_f16,
)
from tilewright.te import Tensor
from tilewright.topi.gpu.conv2d_products import ProductSchedule, begin_products, filled
from tilewright.topi.parameters import flag

#: By type: the product, and the loads of its operands.
_INSTRUCTIONS = {
    "float16": (mma_f16, ldmatrix_a_f16, ldmatrix_b_trans_f16),
    "bfloat16": (mma_bf16, ldmatrix_a_bf16, ldmatrix_b_trans_bf16),
}
_LANES = 32
#: Of tiles that ldmatrix loads, and of what a row of shared memory is wider than its tile, so that
#: eight rows of 16 bytes meet no bank twice.
_LOADED, _APART = 16, 8
#: Output channels of a group from which on several warps share them, sums of a thread, and bytes of
#: shared memory of a block, at most.
_SPREAD, _SUMS, _SHARED = 64, 128, COMMON_SHARED


@dataclass(frozen=True)
class MmaTile:
    """A block computes ``rows`` by ``columns`` sums, over ``depth`` products at once, with
    ``down`` by ``across`` warps; tiles are loaded ``stages - 1`` ahead. With ``implicit`` the
    image's columns are made in shared memory; else another kernel stores them before."""

    rows: int = 64
    columns: int = 128
    depth: int = 32
    down: int = 2
    across: int = 2
    stages: int = 2
    implicit: int = flag()

    @property
    def whole(self) -> Whole:
        """What the declaration's matrices are to be filled up to."""
        return self.rows, self.columns, self.depth


def schedule_conv2d_mma(output: Tensor, tile: MmaTile = MmaTile()) -> Schedule:
    """The schedule of a program of one sum of products of float16 or bfloat16, or of floats of 8
    bits, which float16 has all of, and of what is fused to it; see
    :func:`~tilewright.topi.fusion.find_products`."""
    found = begin_products(output, tile)
    if found.weights.dtype.is_float8:
        found = _in_float16(found)
    s, total, windows = found.schedule, found.schedule[found.product], found.columns
    multiply, load_a, load_b = _INSTRUCTIONS[str(found.weights.dtype)]
    own = tile.rows // tile.down, tile.columns // tile.across
    m, p = found.tile
    down, m = found.out.split(m, factor=min(own[0], found.rows))
    across, p = found.out.split(p, factor=own[1])
    pair = gcd(found.pixels, 2)
    p, lane = found.out.split(p, factor=pair)
    found.out.reorder(down, across, m, p, lane)
    found.out.vectorize(lane)
    tx = te.thread_axis((0, _LANES), "threadIdx.x")
    ty = te.thread_axis((0, tile.across), "threadIdx.y")
    tz = te.thread_axis((0, tile.down), "threadIdx.z")
    found.out.bind(down, tz)
    found.out.bind(across, ty)

    total.set_scope("fragment")
    total.compute_at(found.out, across)
    left = s.cache_read(found.weights, "fragment", [found.product])
    right = s.cache_read(windows, "fragment", [found.product])
    g, m, p = total.op.axis
    (k,) = total.op.reduce_axis
    total.align_bounds(m, own[0])
    total.align_bounds(p, own[1])
    step, k = total.split(k, factor=tile.depth)
    part, k = total.split(k, factor=_LOADED)
    mo, m = total.split(m, factor=16)
    po, p = total.split(p, factor=8)
    total.reorder(g, step, part, mo, po, m, p, k)
    total.unroll(part, mo, po)
    total.tensorize(m, multiply)
    for fragment, instruction in ((left, load_a), (right, load_b)):
        stage = s[fragment]
        stage.compute_at(total, part)
        _, i, j = stage.op.axis
        io, i = stage.split(i, factor=_LOADED)
        jo, j = stage.split(j, factor=_LOADED)
        stage.reorder(io, jo, i, j)
        stage.unroll(io)
        stage.unroll(jo)
        stage.tensorize(i, instruction)
    for tensor in (found.weights, windows):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(total, step)
        stage.storage_align(stage.op.axis[1], 2 * _APART, _APART)
        found.copy(tensor, (tz, ty, tx))
        if tile.stages > 1:
            stage.pipeline(tile.stages)
    return s


def _in_float16(found: ProductSchedule) -> ProductSchedule:
    """The same, where tiles of both matrices are converted on the way to shared memory."""
    s, wide = found.schedule, []
    for tensor in (found.weights, found.columns):
        wide.append(s.cache_read(tensor, "shared", [found.product], "float16"))
        s[tensor].compute_inline()
    weights, columns = wide
    return replace(found, weights=weights, columns=columns, source=columns)


@functools.lru_cache(256)
def conv2d_mma_tiles(filters: int, groups: int = 1, windows: int = 2**20) -> list[MmaTile]:
    """Tiles worth trying for convolutions with given output channels, groups and windows; those
    that fill their matrices up least come first, large ones before small ones."""
    own = filters // groups
    if groups == 1:
        heights = [rows for rows in (16, 32, 64, 128) if rows < 2 * max(16, own)]
    elif own < _SPREAD:
        heights = [-(-own // 16) * 16]
    else:
        heights = [rows for rows in (64, 32, 16) if own % rows == 0] or [-(-own // 16) * 16]
    found = []
    for rows, columns, depth in product(heights, (64, 128, 256), (32, 64)):
        divides = groups == 1 or own % rows == 0
        down = rows // 32 if divides and rows > 32 else 1
        # A group that nothing divides is a warp's from top to bottom: of a tall one few columns.
        shares = (columns // 64, columns // 32, *([columns // 16] if rows > _SUMS else []))
        for across, (implicit, stages) in product(shares, ((1, 1), (1, 2), (0, 3), (0, 4))):
            shared = 2 * stages * (rows * (depth + _APART) + depth * (columns + _APART))
            sums = rows * columns // (_LANES * down * across)
            if shared <= _SHARED and sums <= _SUMS and 2 <= down * across <= 16:
                found.append(MmaTile(rows, columns, depth, down, across, stages, implicit))

    def cost(tile: MmaTile) -> float:
        waste = filled(own, tile.rows) * filled(windows, tile.columns)
        return waste * (1 + 16 / tile.rows + 16 / tile.columns)

    return sorted(found, key=cost)
