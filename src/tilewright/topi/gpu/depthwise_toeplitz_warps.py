"""Depthwise convolution with large filters on the tensor cores of any GPU since Ampere.

As :mod:`~tilewright.topi.gpu.depthwise_toeplitz`, with the instructions of one warp: a warp sums
``rows`` rows of ``columns`` outputs of 16 or 32 images. It loads matrices from shared memory into
its registers, 16 by 16 at a time, so that 32 images need half as many loads as 16 for each product.

Of float32 the same in TF32 (:mod:`~tilewright.topi.gpu.toeplitz_tf32`), three products for one
where the problem is to be exact. A warp loads one row of the images after another into registers
and takes them apart there; blocks of a matrix without taps are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright.schedule import Schedule
from tilewright.target.devices import COMMON_SHARED
from tilewright.target.instructions import (
    ldmatrix_b_blocks_bf16,
    ldmatrix_b_blocks_f16,
    mma_bf16,
    mma_f16,
)
from tilewright.target.target import Target
from tilewright.topi.cut import declare_images
from tilewright.topi.gpu.toeplitz import (
    Team,
    ToeplitzDeclaration,
    begin,
    load_image,
    product_axes,
    shared_bytes,
    suits,
)
from tilewright.topi.gpu.toeplitz_tf32 import LANES, ROWS, fill, fits, idle, multiply
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, depthwise_toeplitz
from tilewright.topi.operators.conv import Conv

_INSTRUCTIONS = {
    "float16": (mma_f16, ldmatrix_b_blocks_f16),
    "bfloat16": (mma_bf16, ldmatrix_b_blocks_bf16),
}
#: Registers of a thread that sums and rows of images may take.
_REGISTERS = 192


@dataclass(frozen=True)
class WarpTile:
    """A warp computes ``rows`` by ``columns`` outputs of 16 * ``images`` images at once, ``turns``
    times from above down the image; a block has ``groups`` of them down the image, for each of
    ``teams`` times as many images. Input rows are loaded ``stages - 1`` ahead."""

    rows: int = 2
    columns: int = 32
    images: int = 2
    groups: int = 2
    teams: int = 2
    turns: int = 4
    stages: int = 2


def declare_warps(p: Conv, tile: WarpTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    images = ROWS * tile.images * tile.teams
    cut = Toeplitz(p, tile.rows, tile.columns, images)
    return declare_images(cut, depthwise_toeplitz, batch)


def schedule_warps(d: ToeplitzDeclaration, tile: WarpTile = WarpTile()) -> Schedule:
    """The schedule of what :func:`declare_warps` makes of a problem with the same ``tile``."""
    multiply, load = _INSTRUCTIONS[d.problem.dtype]
    s, group = begin(d, Team(LANES, tile.groups, tile.teams), tile.turns)
    sums = s[d.stages.sum]
    matrices = s.cache_read(d.stages.matrices, "fragment", [d.stages.sum])
    sums.compute_at(s[d.output], group)
    a = product_axes(d, sums, ROWS * tile.images)
    many, n = sums.split(a.n, factor=ROWS)
    pairs, pair = sums.split(a.pair, factor=2)
    sums.reorder(
        a.across, a.c, a.q, a.phase, a.chunk, a.step, a.h, pairs, many, pair,
        n, a.quarter, a.side, a.half, a.thread, a.low,
    )  # fmt: skip
    sums.unroll(a.h, pairs, many, pair)
    sums.tensorize(n, multiply)
    load_image(d, s[d.stages.image], sums, a.phase, tile.stages)

    loads = s[matrices]
    loads.compute_at(sums, pairs)
    *outer, jo, ko, ji, ki = loads.op.axis
    loads.reorder(*outer, jo, ji, ko, ki)
    loads.tensorize(jo, load)
    return s


def suits_warps(p: Conv) -> bool:
    """Whether :func:`schedule_warps` is for a problem: one whose filters fit shared memory."""
    return suits(p) and next(_tiles(p, COMMON_SHARED), None) is not None


def warp_tiles(p: Conv, target: Target) -> list[WarpTile]:
    """Tiles whose matrices fit the target's shared memory, the best guess first."""
    limit = max(target.limits.shared_memory, COMMON_SHARED)
    return [tile for _, tile in sorted(_tiles(p, limit), key=lambda pair: pair[0])]


def _tiles(p: Conv, limit: int) -> Iterator[tuple[float, WarpTile]]:
    """Tiles, with how slow they are predicted to be."""
    height, width = p.result_image
    for columns, rows, images in product((16, 32, 64), (1, 2, 4, 8), (1, 2)):
        if columns >= 2 * max(16, width) or rows >= 2 * height:
            continue
        if images > max(1, -(-p.batch // ROWS)):
            continue
        cut = Toeplitz(p, rows, columns, ROWS * images)
        size = shared_bytes(cut)
        if size > limit:
            continue
        down, across = cut.tiles
        products = down * across * cut.steps * cut.depth * rows * columns
        for groups, stages in ((2, 2), (4, 2), (1, 2), (2, 3)):
            held = images * (rows * columns // 2 + stages * cut.depth // 4)
            if groups > down or held > _REGISTERS:
                continue
            most = -(-p.batch // (ROWS * images))
            for teams in dict.fromkeys((min(2, most), min(4, most), 1)):
                again = 1 + 1 / images  # matrices are loaded for fewer products
                alone = 1.0 if groups * teams >= 4 and 2 * size <= limit else 1.25
                tile = WarpTile(rows, columns, images, groups, teams, -(-down // groups), stages)
                yield products * again * alone * (1 + 16 / (rows * columns)), tile


def schedule_split(d: ToeplitzDeclaration, tile: WarpTile = WarpTile()) -> Schedule:
    """The same in TF32, of what :func:`declare_warps` makes with the same ``tile``."""
    cut, made = d.cut, d.stages
    team = Team(LANES, tile.groups, tile.teams)
    s, group = begin(d, team, tile.turns, matrices=False, taps=False)
    sums = s[made.sum]
    sums.set_scope("fragment")
    sums.compute_at(s[d.output], group)
    n, c, h, w = sums.op.axis
    q, phase = sums.op.reduce_axis
    for axis, whole in ((n, ROWS * tile.images), (h, cut.rows), (w, cut.columns)):
        sums.align_bounds(axis, whole)
    across, w = sums.split(w, factor=cut.columns)
    many, n = sums.split(n, factor=ROWS)
    sums.reorder(across, c, q, phase, h, many, n, w)
    sums.unroll(h)
    sums.unroll(many)
    fill(s[made.taps], (s[d.output], s[d.output].leaf_iter_vars[0]), team.others)
    load_image(d, s[made.image], sums, phase, tile.stages)
    multiply(s, made, sums, 0, many, h, phase)
    return s


def split_guesses(p: Conv) -> Iterator[tuple[float, WarpTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    height, width = p.result_image
    for columns, rows, images in product((16, 32, 64), (1, 2, 4, 8), (1, 2)):
        if columns >= 2 * max(16, width) or rows >= 2 * height:
            continue
        if images > max(1, -(-p.batch // ROWS)):
            continue
        cut = Toeplitz(p, rows, columns, ROWS * images)
        down, across = cut.tiles
        products = down * across * cut.steps * cut.products * rows
        for groups, stages in ((2, 2), (4, 2), (1, 2), (2, 1), (4, 1)):
            taps = cut.stride[0] * cut.matrices
            ahead, kept = images * (stages - 1), (rows - 1) * (stages > 1)
            if groups > down or not fits(cut, taps, images * rows, ahead, images, kept):
                continue
            most = -(-p.batch // (ROWS * images))
            for teams in dict.fromkeys((min(2, most), min(4, most), 1)):
                again = 1 + 1 / (8 * images) + 1 / (4 * rows)  # for fewer products
                near = 1 + abs(stages - 2) / 16 + abs(groups - 2) / 8 + abs(teams - 2) / 8
                blocks = -(-p.batch // (ROWS * images * teams)) * p.result_channels * across
                tile = WarpTile(rows, columns, images, groups, teams, -(-down // groups), stages)
                yield products * again * near * idle(blocks * groups * teams), tile
