"""Depthwise convolution with large filters in TF32, for many images, channels first.

The products of :func:`~tilewright.topi.nn.depthwise_toeplitz.depthwise_toeplitz` with the
instructions of one warp (:mod:`~tilewright.topi.gpu.toeplitz_tf32`), three for one where the
problem is to be exact. A warp loads one row of the images after another into registers and takes
them apart there; blocks of a matrix without taps are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tilewright.schedule import Schedule
from tilewright.topi.cut import declare_images
from tilewright.topi.gpu.toeplitz import Team, ToeplitzDeclaration, begin, load_image
from tilewright.topi.gpu.toeplitz_tf32 import LANES, ROWS, fill, fits, idle, multiply
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, depthwise_toeplitz
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.band_tiles import WarpTile


def declare_warps(p: Conv, tile: WarpTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    images = ROWS * tile.images * tile.teams
    cut = Toeplitz(p, tile.rows, tile.columns, images)
    return declare_images(cut, depthwise_toeplitz, batch)


def schedule_split(d: ToeplitzDeclaration, tile: WarpTile = WarpTile()) -> Schedule:
    """The schedule of what :func:`declare_warps` makes with the same ``tile``."""
    cut, made = d.cut, d.stages
    team = Team(LANES, tile.groups, tile.teams)
    s, group = begin(d, team, tile.turns)
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
