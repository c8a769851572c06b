"""Depthwise convolution with large filters in TF32, for few images, channels first.

The products of :func:`~tilewright.topi.nn.depthwise_toeplitz.depthwise_toeplitz_rows`, whose rows
are rows of an image: a warp sums ``tiles`` times 16 rows of ``columns`` outputs. A matrix serves
one image only, so it is never stored (:mod:`~tilewright.topi.gpu.toeplitz_tf32`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tilewright.schedule import Schedule
from tilewright.topi.cut import declare_images
from tilewright.topi.gpu.toeplitz import Team, ToeplitzDeclaration, begin, load_image, suits
from tilewright.topi.gpu.toeplitz_tf32 import LANES, ROWS, fill, fits, multiply
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, depthwise_toeplitz_rows
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.band_tiles import RowTile


def declare_rows(p: Conv, tile: RowTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    cut = Toeplitz(p, ROWS * tile.tiles, tile.columns, tile.teams)
    return declare_images(cut, depthwise_toeplitz_rows, batch)


def schedule_split_rows(d: ToeplitzDeclaration, tile: RowTile = RowTile()) -> Schedule:
    """The schedule of what :func:`declare_rows` makes with the same ``tile``."""
    cut, made = d.cut, d.stages
    team = Team(LANES, tile.groups, tile.teams)
    s, group = begin(d, team, 1)
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
    """Whether :func:`schedule_split_rows` is for a problem: not one of large strides, whose rows
    are read in part."""
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
