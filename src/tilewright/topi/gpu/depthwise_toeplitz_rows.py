"""Depthwise convolution with large filters on tensor cores, for few images, channels first.

The products of :func:`~tilewright.topi.nn.depthwise_toeplitz.depthwise_toeplitz_rows`, whose rows
are rows of an image: a warp sums ``tiles`` times 16 rows of ``columns`` outputs. A matrix serves
one image only, so it is never stored: each thread takes its elements from the rows of the filter,
in shared memory, into the registers that the instruction reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright.schedule import Schedule
from tilewright.target.instructions import mma_bf16, mma_f16
from tilewright.topi.cut import declare_images
from tilewright.topi.gpu.toeplitz import (
    Team,
    ToeplitzDeclaration,
    begin,
    load_image,
    product_axes,
    suits,
)
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, depthwise_toeplitz_rows
from tilewright.topi.operators.conv import Conv

_LANES, _ROWS = 32, 16
_INSTRUCTIONS = {"float16": mma_f16, "bfloat16": mma_bf16}
#: Warps that keep a large GPU busy: of fewer, some SMs have less to do.
_BUSY = 2000
#: Registers of a thread that sums and rows of images may take.
_REGISTERS = 160


@dataclass(frozen=True)
class RowTile:
    """A warp computes 16 * ``tiles`` rows of ``columns`` outputs of one image; a block has
    ``groups`` of them down an image, for each of ``teams`` images. Input rows are loaded ``stages -
    1`` filter rows ahead."""

    tiles: int = 2
    columns: int = 32
    groups: int = 1
    teams: int = 1
    stages: int = 2


def declare_rows(p: Conv, tile: RowTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    cut = Toeplitz(p, _ROWS * tile.tiles, tile.columns, tile.teams)
    return declare_images(cut, depthwise_toeplitz_rows, batch)


def schedule_rows(d: ToeplitzDeclaration, tile: RowTile = RowTile()) -> Schedule:
    """The schedule of what :func:`declare_rows` makes of a problem with the same ``tile``."""
    s, group = begin(d, Team(_LANES, tile.groups, tile.teams), 1, matrices=False)
    sums, matrices = s[d.stages.sum], s[d.stages.matrices]
    sums.compute_at(s[d.output], group)
    a = product_axes(d, sums, 1)
    tiles, row = sums.split(a.h, factor=_ROWS)
    sums.reorder(
        a.across, a.c, a.n, a.q, a.phase, a.chunk, a.step, a.pair, tiles,
        row, a.quarter, a.side, a.half, a.thread, a.low,
    )  # fmt: skip
    sums.unroll(a.pair, tiles)
    sums.tensorize(row, _INSTRUCTIONS[d.problem.dtype])
    load_image(d, s[d.stages.image], sums, a.phase, tile.stages)
    matrices.set_scope("fragment")
    matrices.compute_at(sums, a.pair)
    return s


def suits_rows(p: Conv) -> bool:
    """Whether :func:`schedule_rows` is for a problem: not one of large strides, whose rows are read
    in part."""
    return suits(p) and p.stride[0] == 1


def guesses(p: Conv) -> Iterator[tuple[float, RowTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    height, width = p.result_image
    for columns, tiles in product((16, 32, 64), (1, 2, 4)):
        if columns >= 2 * max(16, width) or _ROWS * tiles >= 2 * max(_ROWS, height):
            continue
        cut = Toeplitz(p, _ROWS * tiles, columns, 1)
        down, across = cut.tiles
        products = down * across * tiles * cut.depth * columns
        for stages in (2, 3, 1):
            if tiles * (columns * 2 + stages * cut.depth // 4) > _REGISTERS:
                continue
            for groups, teams in product((1, 2, 4), (1, 2, 4)):
                if groups <= down and teams <= p.batch and groups * teams <= 4:
                    again = 1 + 2 / tiles  # elements of a matrix are gathered for fewer products
                    near = 1 + abs(stages - 2) / 32 + (groups * teams - 1) / 64
                    idle = max(1.0, _BUSY / (p.batch * p.result_channels * down * across)) ** 0.5
                    yield (
                        products * again * near * idle,
                        RowTile(tiles, columns, groups, teams, stages),
                    )
