"""The gradient of a depthwise convolution by a large filter on Hopper's tensor cores, channels
first.

The products of :mod:`~tilewright.topi.nn.depthwise_row_products`. A block has a channel and rows of
its filter: it copies images to shared memory in the background, some at a time, from where
instructions of its warpgroups read both operands; all sums stay in registers until the end. Then
they go through shared memory, where their diagonals are summed. Each tap is summed by one thread
in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule, create_schedule
from tilewright.target.devices import REGISTERS
from tilewright.target.instructions import wgmma
from tilewright.target.target import Target
from tilewright.topi.columns import Tiles, combinations, listed, pick
from tilewright.topi.cut import CutDeclaration, declare_sums
from tilewright.topi.gpu.banded_tiles import SHARED
from tilewright.topi.gpu.staging import LANES, stage_blocks
from tilewright.topi.nn.depthwise_row_products import (
    DEPTH,
    RowProducts,
    RowProductStages,
    depthwise_row_products,
)
from tilewright.topi.operators.conv import Conv

#: Outputs of the widest instruction that is used, and of all instructions of a block, by thread.
_WIDEST, _SUMS = 256, REGISTERS // 2


RowProductDeclaration = CutDeclaration[RowProducts, RowProductStages]


@dataclass(frozen=True)
class RowProductTile:
    """A warpgroup multiplies ``together`` rows of x; a block has ``groups`` warpgroups and copies
    the rows of ``images`` images for ``steps`` positions of dy at once, ``stages - 1`` times
    ahead."""

    together: int = 4
    groups: int = 4
    images: int = 16
    steps: int = 34
    stages: int = 2


def declare_row_products(p: Conv, tile: RowProductTile, batch: Any = None) -> RowProductDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    return declare_sums(_cut(p, tile), depthwise_row_products, batch)


def schedule_row_products(
    d: RowProductDeclaration, tile: RowProductTile = RowProductTile()
) -> Schedule:
    """The schedule of what :func:`declare_row_products` makes with the same ``tile``."""
    cut, made = d.cut, d.stages
    s = create_schedule(d.output.op)
    kept = s.cache_write(made.products, "fragment")
    out, sums, products, parts = s[d.output], s[made.sums], s[kept], s[made.products]
    ty = te.thread_axis((0, tile.groups), "threadIdx.y")

    c, k, h, w = out.op.axis
    h, tap = out.split(h, factor=cut.taps)
    h, j = out.split(h, factor=tile.together)
    rows, group = out.split(h, factor=tile.groups)
    out.reorder(c, k, rows, j, group, tap, w)
    block = out.fuse(c, k, rows)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.unroll(j)
    out.bind(group, ty)
    taps, tap = out.split(tap, factor=min(cut.taps, LANES // 32))
    across, w = out.split(w, factor=32)
    out.reorder(taps, across, tap, w)
    x = out.fuse(tap, w)
    out.bind(x, te.thread_axis("threadIdx.x"))
    if made.sums is not d.output:
        sums.set_scope("local")
        sums.compute_at(out, x)
    sums.unroll(sums.op.reduce_axis[0])

    parts.set_scope("shared")
    parts.compute_at(out, j)
    parts.storage_align(parts.op.axis[4], 32, 8)
    c, group, _, b, ow, w = parts.op.axis
    _, pair = parts.split(w, factor=2)
    parts.vectorize(pair)
    parts.bind(group, ty)

    products.compute_at(out, block)
    c, group, j, b, ow, w = products.op.axis
    products.bind(group, ty)
    whole = ((group, tile.groups), (j, tile.together), (b, cut.taps), (ow, cut.width))
    for axis, extent in (*whole, (w, cut.columns)):
        products.align_bounds(axis, extent)
    i, t, n = products.op.reduce_axis
    wide, low = products.split(ow, factor=8)
    across, column = products.split(w, factor=8)
    step, n = products.split(n, factor=DEPTH)
    eight, n = products.split(n, factor=8)
    turn, t = products.split(t, factor=cut.steps)
    turn = products.fuse(i, turn)
    products.reorder(c, turn, group, t, step, b, wide, low, j, across, column, eight, n)
    products.unroll(step)
    width = tile.together * cut.columns
    products.tensorize(b, wgmma(width, d.problem.dtype, "i", "j"))

    for tensor, extent in ((made.x, d.problem.image[1]), (made.dy, d.problem.out_image[1])):
        stage = s[tensor]
        stage.compute_at(products, turn)
        stage.pipeline(tile.stages)
        outer = list(stage.op.axis[:-4])
        if tensor is made.x:  # rows come as they do in the image
            outer[-2:] = reversed(outer[-2:])
        stage_blocks(stage, outer, extent, tile.groups)
    return s


def suits_row_products(p: Conv) -> bool:
    """Whether :func:`schedule_row_products` is for a problem: one of stride 1 down the image, whose
    rows are at most 64 wide, and even, so that they can be copied in the background."""
    return (
        p.rank == 2
        and p.pass_ == "wgrad"
        and p.dtype in ("float16", "bfloat16")
        and p.accumulate == "float32"
        and p.stride[0] == 1
        and p.dilation[0] == 1
        and max(p.image[1], p.out_image[1]) <= 64
        and p.image[1] % 2 == 0
        and p.out_image[1] % 2 == 0
        and len(_ranked(p)) > 0
    )


def row_product_tiles(p: Conv, target: Target) -> Sequence[RowProductTile]:
    """Tiles that fit shared memory, the best guess first."""
    return _ranked(p)


@lru_cache(64)
def _ranked(p: Conv) -> Tiles[RowProductTile]:
    size, bare = dtype(p.dtype).bytes, RowProducts(p, 1, 1, 1, 1)
    together, groups, images, stages, turns = combinations(
        (1, 2, 4, 8, 16, 32), (1, 2, 4), (16, 32, 64), (2, 3, 4), (1, 2, 4, 8)
    )
    steps = -(-bare.positions // (turns * bare.taps)) * bare.taps
    tile = RowProductTile(together, groups, images, steps, stages)
    cut, width = _cut(p, tile), together * bare.columns
    kept = width * groups * 64  # sums of a block
    space = stages * cut.staged * size + groups * 64 * (cut.columns + 8) * 4
    fits = ((turns == 1) | (steps >= 4)) & (width >= 16) & (width <= _WIDEST) & (kept <= _SUMS)
    fits &= (images < 2 * max(16, p.batch)) & (space <= SHARED)
    fits &= cut.rows * cut.taps < 2 * np.maximum(p.kernel[0], together * cut.taps)
    products = cut.blocks * cut.rows * cut.positions * cut.columns
    again = 1 + 64 / width + 0.2 * cut.blocks + 0.05 * turns
    alone = np.where(2 * space <= SHARED, 1.0, 1.02)
    near = 1 + (abs(stages - 3) + images / 16) / 32
    order = np.argsort(products * again * alone * near, kind="stable")
    return listed(pick(tile, order[fits[order]]))


def _cut(p: Conv, tile: RowProductTile) -> RowProducts:
    return RowProducts(p, tile.images, tile.steps, tile.together, tile.groups)
