"""The tiles worth trying for products with banded matrices, in 16 bits and in TF32, and the
problems that they are for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from tilewright.target.devices import COMMON_SHARED, H200, REGISTERS, STATIC_SHARED
from tilewright.target.target import Target
from tilewright.topi.gpu.machine import HALVES, is_planar, sees_nothing
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_tiles import (
    GROUP_LANES,
    GROUP_ROWS,
    ROWS,
    GradientTile,
    RowTile,
    ToeplitzTile,
    WarpTile,
)

#: Bytes of shared memory that blocks may take on GPUs with the most.
SHARED = H200.block_shared
#: Outputs of the widest instruction, and registers of a thread beside those of products.
_WIDEST, _OTHER = 256, 36
#: Warps that keep a large GPU busy: of fewer, some SMs have less to do.
_BUSY = 2000
#: Registers of a thread that sums and rows of images may take, where the rows of a product are rows
#: of an image, and where they are images.
_ROW_REGISTERS, _WARP_REGISTERS = 160, 192


def suits(p: Conv, types: Sequence[str] = HALVES) -> bool:
    """Whether a problem of one of some types can be cut so."""
    slides = p.pass_ == "forward" or (p.stride == (1, 1) and p.multiplier == 1)
    return is_planar(p, types) and slides and not sees_nothing(p)


def suits_gradient(p: Conv, types: Sequence[str] = HALVES) -> bool:
    """Whether a gradient by the filter of one of some types can be cut so: not one of large
    dilations, whose rows are read in part."""
    return is_planar(p, types) and p.dilation[0] == 1 and not sees_nothing(p)


def suits_rows(p: Conv) -> bool:
    """Whether products of rows of an image are for a problem: not one of large strides, whose rows
    are read in part."""
    return suits(p) and p.stride[0] == 1


def _cuts(p: Conv, height: int, width: int) -> Iterator[tuple[int, int, Bands, int]]:
    """Columns of a product, tiles of its rows, what these are cut to, and how much is multiplied,
    for results of this height and width."""
    for columns, tiles in product((16, 32, 64), (1, 2, 4)):
        if columns < 2 * max(16, width) and ROWS * tiles < 2 * max(ROWS, height):
            cut = Bands(p, 1, ROWS * tiles, columns)
            yield columns, tiles, cut, math.prod(cut.tiles) * tiles * cut.multiplied


def row_guesses(p: Conv) -> Iterator[tuple[float, RowTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    for columns, tiles, cut, products in _cuts(p, *p.result_image):
        down, across = cut.tiles
        for stages in (2, 3, 1):
            if tiles * (columns * 2 + stages * cut.depth // 4) > _ROW_REGISTERS:
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


def suits_warps(p: Conv) -> bool:
    """Whether products of images by warps are for a problem: one whose filters fit shared
    memory."""
    return suits(p) and next(_warp_guesses(p, COMMON_SHARED), None) is not None


def warp_tiles(p: Conv, target: Target) -> list[WarpTile]:
    """Tiles whose matrices fit the target's shared memory, the best guess first."""
    limit = max(target.limits.shared_memory, COMMON_SHARED)
    return [tile for _, tile in sorted(_warp_guesses(p, limit), key=lambda pair: pair[0])]


def warp_shapes(p: Conv) -> Iterator[tuple[int, int, int]]:
    """Columns, rows and sixteens of images of tiles that are not mostly beyond the results."""
    height, width = p.result_image
    for columns, rows, images in product((16, 32, 64), (1, 2, 4, 8), (1, 2)):
        if columns >= 2 * max(16, width) or rows >= 2 * height:
            continue
        if images <= max(1, -(-p.batch // ROWS)):
            yield columns, rows, images


def _warp_guesses(p: Conv, limit: int) -> Iterator[tuple[float, WarpTile]]:
    """Tiles, with how slow they are predicted to be."""
    for columns, rows, images in warp_shapes(p):
        cut = Bands(p, ROWS * images, rows, columns)
        size = cut.matrix_bytes
        if size > limit:
            continue
        down, across = cut.tiles
        products = down * across * cut.steps * cut.depth * rows * columns
        for groups, stages in ((2, 2), (4, 2), (1, 2), (2, 3)):
            held = images * (rows * columns // 2 + stages * cut.depth // 4)
            if groups > down or held > _WARP_REGISTERS:
                continue
            most = -(-p.batch // (ROWS * images))
            for teams in dict.fromkeys((min(2, most), min(4, most), 1)):
                again = 1 + 1 / images  # matrices are loaded for fewer products
                alone = 1.0 if groups * teams >= 4 and 2 * size <= limit else 1.25
                tile = WarpTile(rows, columns, images, groups, teams, -(-down // groups), stages)
                yield products * again * alone * (1 + 16 / (rows * columns)), tile


def toeplitz_guesses(p: Conv) -> Iterator[tuple[float, ToeplitzTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    height, width = p.result_image
    for columns, rows in product((8, 16, 32, 64), (1, 2, 4, 8, 16)):
        if columns >= 2 * max(8, width) or rows >= 2 * height or rows * columns > _WIDEST:
            continue
        cut = Bands(p, GROUP_ROWS, rows, columns)
        size = cut.matrix_bytes
        if size > SHARED:
            continue
        down, across = cut.tiles
        products = down * across * cut.steps * cut.depth * rows * columns
        narrow = 1 + 64 / (rows * columns)  # registers are read for fewer products
        for groups, stages in ((2, 4), (4, 2), (2, 2), (1, 4), (1, 2), (2, 3), (4, 3)):
            held = rows * columns // 2 + stages * cut.depth // 4 + _OTHER
            if groups > down or groups * GROUP_LANES * held > REGISTERS:
                continue
            # Two blocks of an SM load and store while the other multiplies.
            alone = 1.25 if 2 * size > SHARED else 1.0
            # Four warpgroups leave no room for another block, and share the matrices.
            alone *= 1.01 if groups * rows * columns > 256 else 1.0
            # Of the widest products the compiler takes some apart where it moves their registers.
            alone *= 1.25 if rows * columns == _WIDEST else 1.0
            tile = ToeplitzTile(rows, columns, groups, -(-down // groups), stages)
            wanted = 4 if rows < 8 else 2
            swapped = rows < 8 and groups * stages == 8
            near = 1 + (0 if swapped else abs(stages - wanted) + abs(groups - 2)) / 64
            yield products * narrow * alone * near, tile


def gradient_guesses(p: Conv) -> Iterator[tuple[float, GradientTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    for columns, tiles, cut, products in _cuts(p, *p.kernel):
        down, across = cut.tiles
        rows = 2 * cut.kernel[0] * cut.taps
        for stages, teams in product((2, 3, 1), (4, 2, 1, 8)):
            held = tiles * (columns * 2 + stages * cut.depth // 4)
            if held > _ROW_REGISTERS or teams > p.batch or teams * rows > STATIC_SHARED:
                continue
            blocks = p.out_channels * down * across
            for chunks in dict.fromkeys((teams, 2 * teams, 4 * teams)):
                if chunks > max(teams, p.batch):
                    continue
                idle = max(1.0, 400 / (blocks * chunks // teams))
                again = 1 + 4 / tiles  # elements of a matrix are gathered for fewer products
                near = 1 + (abs(stages - 2) + abs(teams - 4)) / 32 + chunks / 256
                yield (
                    products * again * idle * near,
                    GradientTile(tiles, columns, chunks, teams, stages),
                )


#: Warps that a large GPU executes at a time, of as many registers as these need.
_AT_A_TIME = 1056
#: Registers of a thread that fragments may take.
_PART_REGISTERS = 192


def suits_part_images(p: Conv) -> bool:
    """Whether products of images are for a problem."""
    return suits(p, ("float32",))


def suits_part_rows(p: Conv) -> bool:
    """Whether products of rows of images are for a problem: not one of large strides, whose rows
    are read in part."""
    return suits_part_images(p) and p.stride[0] == 1


def suits_part_gradients(p: Conv) -> bool:
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
    return held <= _PART_REGISTERS and rows * cut.taps * 4 * cut.parts <= STATIC_SHARED


def _idle(warps: int) -> float:
    """How many times longer a GPU takes because the last of ``warps`` warps are alone."""
    return max(1.0, math.ceil(warps / _AT_A_TIME) * _AT_A_TIME / warps)


def part_guesses(p: Conv) -> Iterator[tuple[float, WarpTile]]:
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


def part_row_guesses(p: Conv) -> Iterator[tuple[float, RowTile]]:
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


def part_gradient_guesses(p: Conv) -> Iterator[tuple[float, GradientTile]]:
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
