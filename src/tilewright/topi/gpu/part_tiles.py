"""The tiles worth trying for products with banded matrices in TF32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from tilewright.target.devices import STATIC_SHARED
from tilewright.topi.gpu.banded_tiles import suits, suits_gradient, warp_shapes
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_tiles import ROWS, GradientTile, RowTile, WarpTile

#: Warps that a large GPU executes at a time, of as many registers as these need.
_AT_A_TIME = 1056
#: Registers of a thread that fragments may take.
_REGISTERS = 192


def suits_images(p: Conv) -> bool:
    """Whether products of images are for a problem."""
    return suits(p, ("float32",))


def suits_rows(p: Conv) -> bool:
    """Whether products of rows of images are for a problem: not one of large strides, whose rows
    are read in part."""
    return suits_images(p) and p.stride[0] == 1


def suits_gradients(p: Conv) -> bool:
    """Whether products of rows of filters are for a problem."""
    return suits_gradient(p, ("float32",))


def _fits(cut: Bands, rows: int, sums: int, ahead: int, apart: int, kept: int = 0) -> bool:
    """Whether ``rows`` rows of taps, and fragments, have room where they are to lie.

    Parameters
    ----------
    sums, ahead, apart : tiles of 16 that a warp sums, of rows of an image that it has loaded ahead,
        and of those that it has taken apart.
    kept : matrices that the compiler keeps for the next row of the image.
    """
    held = (sums + 1) * cut.columns // 2 + (ahead + cut.parts * apart) * cut.depth // 2
    held += (1 + kept) * cut.parts * (cut.depth + cut.columns) // 4
    return held <= _REGISTERS and rows * cut.taps * 4 * cut.parts <= STATIC_SHARED


def _idle(warps: int) -> float:
    """How many times longer a GPU takes because the last of ``warps`` warps are alone."""
    return max(1.0, math.ceil(warps / _AT_A_TIME) * _AT_A_TIME / warps)


def _cuts(p: Conv, height: int, width: int) -> Iterator[tuple[int, int, Bands, int]]:
    """Columns of a product of rows, tiles of these, what they are cut to, and how much is
    multiplied, for results of this height and width."""
    for columns, tiles in product((16, 32, 64), (1, 2, 4)):
        if columns < 2 * max(16, width) and ROWS * tiles < 2 * max(ROWS, height):
            cut = Bands(p, 1, ROWS * tiles, columns)
            yield columns, tiles, cut, math.prod(cut.tiles) * tiles * cut.products


def image_guesses(p: Conv) -> Iterator[tuple[float, WarpTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    for columns, rows, images in warp_shapes(p):
        cut = Bands(p, ROWS * images, rows, columns)
        down, across = cut.tiles
        products = down * across * cut.steps * cut.products * rows
        for groups, stages in ((2, 2), (4, 2), (1, 2), (2, 1), (4, 1)):
            ahead, kept = images * (stages - 1), (rows - 1) * (stages > 1)
            if groups > down or not _fits(cut, cut.matrices, images * rows, ahead, images, kept):
                continue
            most = -(-p.batch // (ROWS * images))
            for teams in dict.fromkeys((min(2, most), min(4, most), 1)):
                again = 1 + 1 / (8 * images) + 1 / (4 * rows)  # for fewer products
                near = 1 + abs(stages - 2) / 16 + abs(groups - 2) / 8 + abs(teams - 2) / 8
                blocks = -(-p.batch // (ROWS * images * teams)) * p.result_channels * across
                tile = WarpTile(rows, columns, images, groups, teams, -(-down // groups), stages)
                yield products * again * near * _idle(blocks * groups * teams), tile


def row_guesses(p: Conv) -> Iterator[tuple[float, RowTile]]:
    """The same of rows of images."""
    for columns, tiles, cut, products in _cuts(p, *p.result_image):
        for stages in (2, 1):
            if not _fits(cut, cut.kernel[0], tiles, tiles * (stages - 1), 1):
                continue
            for groups, teams in product((1, 2, 4), (1, 2, 4)):
                if groups <= cut.tiles[0] and teams <= p.batch and groups * teams <= 4:
                    again = 1 + 1 / (2 * tiles)  # elements of a matrix are gathered for fewer
                    near = 1 + abs(stages - 2) / 16 + (groups * teams - 1) / 64
                    tile = RowTile(tiles, columns, groups, teams, stages)
                    yield products * again * near, tile


def gradient_guesses(p: Conv) -> Iterator[tuple[float, GradientTile]]:
    """The same of rows of filters."""
    for columns, tiles, cut, products in _cuts(p, *p.kernel):
        for stages, teams in product((2, 1), (2, 1, 4)):
            rows = teams * cut.kernel[0]
            if teams > p.batch or not _fits(cut, rows, tiles, tiles * (stages - 1), 1):
                continue
            for chunks in dict.fromkeys(teams * n for n in (1, 2, 4, 8, 16)):
                if chunks > max(teams, p.batch // 2):
                    continue
                again = 1 + 1 / (4 * tiles)  # elements of a matrix are gathered for fewer products
                near = 1 + abs(stages - 2) / 16 + abs(teams - 2) / 16 + chunks / 256
                warps = chunks * p.out_channels * math.prod(cut.tiles)
                tile = GradientTile(tiles, columns, chunks, teams, stages)
                yield products * again * near * _idle(warps), tile
