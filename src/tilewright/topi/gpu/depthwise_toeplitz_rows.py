"""Depthwise convolution with large filters on tensor cores, for few images, channels first.

The products of :func:`~tilewright.topi.nn.depthwise_toeplitz.depthwise_toeplitz_rows`, whose rows
are rows of an image: a warp sums ``tiles`` times 16 rows of ``columns`` outputs. A matrix serves
one image only, so it is never stored: each thread takes its elements from the rows of the filter,
in shared memory, into the registers that the instruction reads.

Of float32 the same in TF32 (:mod:`~tilewright.topi.gpu.toeplitz_tf32`).
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
from tilewright.topi.gpu.toeplitz_tf32 import LANES, ROWS, fill, fits, multiply
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, depthwise_toeplitz_rows
from tilewright.topi.operators.conv import Conv

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
    cut = Toeplitz(p, ROWS * tile.tiles, tile.columns, tile.teams)
    return declare_images(cut, depthwise_toeplitz_rows, batch)


def schedule_rows(d: ToeplitzDeclaration, tile: RowTile = RowTile()) -> Schedule:
    """The schedule of what :func:`declare_rows` makes of a problem with the same ``tile``."""
    s, group = begin(d, Team(LANES, tile.groups, tile.teams), 1, matrices=False)
    sums, matrices = s[d.stages.sum], s[d.stages.matrices]
    sums.compute_at(s[d.output], group)
    a = product_axes(d, sums, 1)
    tiles, row = sums.split(a.h, factor=ROWS)
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
        if columns >= 2 * max(16, width) or ROWS * tiles >= 2 * max(ROWS, height):
            continue
        cut = Toeplitz(p, ROWS * tiles, columns, 1)
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


def schedule_split_rows(d: ToeplitzDeclaration, tile: RowTile = RowTile()) -> Schedule:
    """The same in TF32, of what :func:`declare_rows` makes with the same ``tile``."""
    cut, made = d.cut, d.stages
    team = Team(LANES, tile.groups, tile.teams)
    s, group = begin(d, team, 1, matrices=False, taps=False)
    sums = s[made.sum]
    sums.set_scope("fragment")
    sums.compute_at(s[d.output], group)
    n, c, h, w = sums.op.axis
    q, phase = sums.op.reduce_axis
    for axis, whole in ((h, cut.rows), (w, cut.columns)):
        sums.align_bounds(axis, whole)
    across, w = sums.split(w, factor=cut.columns)
    tiles, row = sums.split(h, factor=ROWS)
    sums.reorder(across, c, n, q, phase, tiles, row, w)
    sums.unroll(tiles)
    fill(s[made.taps], (s[d.output], s[d.output].leaf_iter_vars[0]), team.others)
    load_image(d, s[made.image], sums, phase, tile.stages)
    multiply(s, made, sums, 2, tiles, phase, tiles)
    return s


def suits_split_rows(p: Conv) -> bool:
    """The same in float32."""
    return suits(p, ("float32",)) and p.stride[0] == 1


def split_guesses(p: Conv) -> Iterator[tuple[float, RowTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    height, width = p.result_image
    for columns, tiles in product((16, 32, 64), (1, 2, 4)):
        if columns >= 2 * max(16, width) or ROWS * tiles >= 2 * max(ROWS, height):
            continue
        cut = Toeplitz(p, ROWS * tiles, columns, 1)
        down, across = cut.tiles
        products = down * across * tiles * cut.products
        for stages in (2, 1):
            if not fits(cut, cut.kernel[0], tiles, tiles * (stages - 1), 1):
                continue
            for groups, teams in product((1, 2, 4), (1, 2, 4)):
                if groups <= down and teams <= p.batch and groups * teams <= 4:
                    again = 1 + 1 / (2 * tiles)  # elements of a matrix are gathered for fewer
                    near = 1 + abs(stages - 2) / 16 + (groups * teams - 1) / 64
                    yield (
                        products * again * near,
                        RowTile(tiles, columns, groups, teams, stages),
                    )
