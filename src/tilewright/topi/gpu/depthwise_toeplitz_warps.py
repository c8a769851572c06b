"""Depthwise convolution with large filters on the tensor cores of any GPU since Ampere.

As :mod:`~tilewright.topi.gpu.depthwise_toeplitz`, with the instructions of one warp: a warp sums
``rows`` rows of ``columns`` outputs of 16 or 32 images. It loads matrices from shared memory into
its registers, 16 by 16 at a time, so that 32 images need half as many loads as 16 for each product.
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
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, depthwise_toeplitz
from tilewright.topi.operators.conv import Conv

_LANES, _IMAGES = 32, 16
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
    images = _IMAGES * tile.images * tile.teams
    cut = Toeplitz(p, tile.rows, tile.columns, images)
    return declare_images(cut, depthwise_toeplitz, batch)


def schedule_warps(d: ToeplitzDeclaration, tile: WarpTile = WarpTile()) -> Schedule:
    """The schedule of what :func:`declare_warps` makes of a problem with the same ``tile``."""
    multiply, load = _INSTRUCTIONS[d.problem.dtype]
    s, group = begin(d, Team(_LANES, tile.groups, tile.teams), tile.turns)
    sums = s[d.stages.sum]
    matrices = s.cache_read(d.stages.matrices, "fragment", [d.stages.sum])
    sums.compute_at(s[d.output], group)
    a = product_axes(d, sums, _IMAGES * tile.images)
    many, n = sums.split(a.n, factor=_IMAGES)
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
        if images > max(1, -(-p.batch // _IMAGES)):
            continue
        cut = Toeplitz(p, rows, columns, _IMAGES * images)
        size = shared_bytes(cut)
        if size > limit:
            continue
        down, across = cut.tiles
        products = down * across * cut.steps * cut.depth * rows * columns
        for groups, stages in ((2, 2), (4, 2), (1, 2), (2, 3)):
            held = images * (rows * columns // 2 + stages * cut.depth // 4)
            if groups > down or held > _REGISTERS:
                continue
            most = -(-p.batch // (_IMAGES * images))
            for teams in dict.fromkeys((min(2, most), min(4, most), 1)):
                again = 1 + 1 / images  # matrices are loaded for fewer products
                alone = 1.0 if groups * teams >= 4 and 2 * size <= limit else 1.25
                tile = WarpTile(rows, columns, images, groups, teams, -(-down // groups), stages)
                yield products * again * alone * (1 + 16 / (rows * columns)), tile
