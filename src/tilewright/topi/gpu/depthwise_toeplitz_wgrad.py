"""The gradient of a depthwise convolution by a large filter in TF32, channels first.

The products of :func:`~tilewright.topi.nn.depthwise_toeplitz.depthwise_toeplitz_wgrad`: the
filter's gradient by one image is that image convolved with dy, so a warp sums ``tiles`` times 16
rows of ``columns`` of a filter over the images of its chunk. The rows of dy lie in shared memory,
from where each thread takes the elements of their matrices
(:mod:`~tilewright.topi.gpu.toeplitz_tf32`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tilewright.schedule import Schedule
from tilewright.topi.gpu.toeplitz import ToeplitzDeclaration, load_image
from tilewright.topi.gpu.toeplitz_gradient import declare_chunks, share_out
from tilewright.topi.gpu.toeplitz_tf32 import ROWS, fill, fits, idle, multiply
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.band_tiles import GradientTile
from tilewright.topi.stages import scheduled


def declare_gradient(p: Conv, tile: GradientTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    return declare_chunks(Toeplitz(p, ROWS * tile.tiles, tile.columns, 1), tile.chunks, batch)


def schedule_split_gradient(
    d: ToeplitzDeclaration, tile: GradientTile = GradientTile()
) -> Schedule:
    """The schedule of what :func:`declare_gradient` makes with the same ``tile``."""
    made, teams = d.stages, min(tile.teams, tile.chunks)
    stages = (made.image, made.parts, made.taps, made.matrices, made.rows, made.sum)
    s = scheduled(d.output, *stages, d.sum)
    sums, _ = share_out(s, d, teams, 2)

    chunk, c, h, w = sums.op.axis
    i, q = sums.op.reduce_axis
    tiles, row = sums.split(h, factor=ROWS)
    sums.reorder(chunk, c, i, q, tiles, row, w)
    sums.unroll(tiles)
    load_image(d, s[made.image], sums, q, tile.stages)
    multiply(s, made, sums, 2, tiles, q, tiles)
    fill(s[made.taps], (sums, i), [("threadIdx.z", teams)])
    return s


def split_guesses(p: Conv) -> Iterator[tuple[float, GradientTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    height, width = p.kernel
    for columns, tiles in product((16, 32, 64), (1, 2, 4)):
        if columns >= 2 * max(16, width) or ROWS * tiles >= 2 * max(ROWS, height):
            continue
        cut = Toeplitz(p, ROWS * tiles, columns, 1)
        down, across = cut.tiles
        products = down * across * tiles * cut.products
        for stages, teams in product((2, 1), (2, 1, 4)):
            rows = teams * cut.kernel[0]
            if teams > p.batch or not fits(cut, rows, tiles, tiles * (stages - 1), 1):
                continue
            for chunks in dict.fromkeys(teams * n for n in (1, 2, 4, 8, 16)):
                if chunks > max(teams, p.batch // 2):
                    continue
                again = 1 + 1 / (4 * tiles)  # elements of a matrix are gathered for fewer products
                near = 1 + abs(stages - 2) / 16 + abs(teams - 2) / 16 + chunks / 256
                warps = chunks * p.out_channels * down * across
                yield (
                    products * again * near * idle(warps),
                    GradientTile(tiles, columns, chunks, teams, stages),
                )
