"""The tiles worth trying for products with banded matrices, in 16 bits and in TF32, and the
problems that they are for.

A guess counts what is multiplied, what is gathered or loaded for it again, and warps that a GPU
lacks; of large filters, trees choose among those that come first.
"""

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
#: Registers of a thread that sums and fragments may take, where the rows of a product are rows of
#: an image, where they are images, and in TF32.
_ROW_REGISTERS, _WARP_REGISTERS, _PART_REGISTERS = 160, 192, 192
#: By how many of a block's, chunks of images that are summed apart, of which TF32 needs more.
_CHUNKS = (1, 2, 4, 8, 16)
#: Rows of products that take as long as gathering what they are multiplied by, in 16 bits and in
#: TF32.
_GATHERED = (32, 8)


def suits(p: Conv, types: Sequence[str] = HALVES) -> bool:
    """Whether a problem of one of some types can be cut so."""
    slides = p.pass_ == "forward" or (p.stride == (1, 1) and p.multiplier == 1)
    return is_planar(p, types) and slides and not sees_nothing(p)


def suits_gradient(p: Conv, types: Sequence[str] = HALVES) -> bool:
    """Whether a gradient by the filter of one of some types can be cut so: not one of large
    dilations, whose rows are read in part."""
    return is_planar(p, types) and p.dilation[0] == 1 and not sees_nothing(p)


def suits_rows(p: Conv, types: Sequence[str] = HALVES) -> bool:
    """Whether products of rows of an image are for a problem: not one of large strides, whose rows
    are read in part."""
    return suits(p, types) and p.stride[0] == 1


def suits_warps(p: Conv) -> bool:
    """Whether products of images by warps are for a problem: one whose filters fit shared
    memory."""
    return suits(p) and next(_warp_guesses(p, COMMON_SHARED), None) is not None


def _slow(cut: Bands, products: float, rows: int, warps: int, stages: int, together: int) -> float:
    """How slow a tile is predicted to be that multiplies as much, in as many ``warps``: of
    ``rows`` of one of them at once, with loads ``stages - 1`` ahead, and of ``together`` in a
    block."""
    again = 1 + _GATHERED[cut.terms > 0] / rows
    near = 1 + abs(stages - 2) / 16 + (together - 1) / 64
    return products * again * near * math.sqrt(max(1.0, _BUSY / warps))


def _has_registers(cut: Bands, tiles: int, stages: int, rows: int) -> bool:
    """Whether a warp has registers for ``tiles`` of 16 rows, and a block shared memory for as many
    ``rows`` of taps."""
    if cut.terms:
        return stages < 3 and _fits(cut, rows, tiles, tiles * (stages - 1), 1)
    held = tiles * (cut.columns * 2 + stages * cut.depth // 4)
    return held <= _ROW_REGISTERS and 2 * rows * cut.taps <= STATIC_SHARED


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
        # In TF32 more warps gather more matrices, and none is idle.
        warps = _BUSY if cut.terms else p.batch * p.result_channels * math.prod(cut.tiles)
        for stages, groups, teams in product((2, 3, 1), (1, 2, 4), (1, 2, 4)):
            block = groups <= cut.tiles[0] and teams <= p.batch and groups * teams <= 4
            if block and _has_registers(cut, tiles, stages, cut.kernel[0]):
                cost = _slow(cut, products, ROWS * tiles, warps, stages, groups * teams)
                yield cost, RowTile(tiles, columns, groups, teams, stages)


def gradient_guesses(p: Conv) -> Iterator[tuple[float, GradientTile]]:
    """The same of gradients by the filter."""
    for columns, tiles, cut, products in _cuts(p, *p.kernel):
        for stages, teams in product((2, 3, 1), (4, 2, 1, 8)):
            if teams > p.batch or not _has_registers(cut, tiles, stages, teams * cut.kernel[0]):
                continue
            for chunks in (teams * n for n in _CHUNKS[: 5 if cut.terms else 3]):
                if chunks > max(teams, p.batch):
                    continue
                warps = chunks * p.out_channels * math.prod(cut.tiles)
                # Fewer images meet what is gathered.
                cost = _slow(cut, products, ROWS // 2 * tiles, warps, stages, 2)
                tile = GradientTile(tiles, columns, chunks, teams, stages)
                yield cost * (1 + chunks / 256 + abs(teams - 4) / 32), tile


def _images(p: Conv) -> Iterator[tuple[Bands, int, int]]:
    """How tiles of 16 images or 32 are cut that are not mostly beyond the results; of how many
    tiles a block may have others', of other images, and what is multiplied."""
    height, width = p.result_image
    for columns, rows, images in product((16, 32, 64), (1, 2, 4, 8), (1, 2)):
        if columns < 2 * max(16, width) and rows < 2 * height and images <= -(-p.batch // ROWS):
            cut = Bands(p, ROWS * images, rows, columns)
            multiplied = cut.products if cut.terms else cut.depth * columns
            yield cut, -(-p.batch // cut.images), math.prod(cut.tiles) * cut.steps * multiplied


def warp_tiles(p: Conv, target: Target) -> list[WarpTile]:
    """Tiles whose matrices fit the target's shared memory, the best guess first."""
    limit = max(target.limits.shared_memory, COMMON_SHARED)
    return [tile for _, tile in sorted(_warp_guesses(p, limit), key=lambda pair: pair[0])]


def _warp_guesses(p: Conv, limit: int) -> Iterator[tuple[float, WarpTile]]:
    """Tiles, with how slow they are predicted to be."""
    for cut, most, multiplied in _images(p):
        rows, columns, images, down = cut.rows, cut.columns, cut.images // ROWS, cut.tiles[0]
        for groups, stages in ((2, 2), (4, 2), (1, 2), (2, 3), (2, 1), (4, 1)):
            if cut.terms:
                ahead, kept = images * (stages - 1), (rows - 1) * (stages > 1)
                fits = _fits(cut, cut.matrices, images * rows, ahead, images, kept)
            else:
                held = images * (rows * columns // 2 + stages * cut.depth // 4)
                fits = held <= _WARP_REGISTERS and cut.matrix_bytes <= limit and stages > 1
            if groups > down or not fits or (cut.terms and stages > 2):
                continue
            for teams in dict.fromkeys((min(2, most), min(4, most), 1)):
                # Two blocks of an SM load and store while the other multiplies.
                single = not cut.terms and (groups * teams < 4 or 2 * cut.matrix_bytes > limit)
                warps = most * p.result_channels * cut.tiles[1] * groups
                products = multiplied * rows * (1 + 16 / (rows * columns))
                together = cut.images * (8 if cut.terms else 1)
                cost = _slow(cut, products, together, warps, stages, groups)
                tile = WarpTile(rows, columns, images, groups, teams, -(-down // groups), stages)
                far = (abs(teams - 2) + abs(groups - 2)) / 16 if cut.terms else abs(teams - 2) / 32
                yield cost * (1.25 if single else 1 + far), tile


def part_guesses(p: Conv) -> Iterator[tuple[float, WarpTile]]:
    """Those in TF32."""
    return _warp_guesses(p, 0)


def toeplitz_guesses(p: Conv) -> Iterator[tuple[float, ToeplitzTile]]:
    """The same of images by warpgroups."""
    height, width = p.result_image
    for columns, rows in product((8, 16, 32, 64), (1, 2, 4, 8, 16)):
        if columns >= 2 * max(8, width) or rows >= 2 * height or rows * columns > _WIDEST:
            continue
        cut = Bands(p, GROUP_ROWS, rows, columns)
        size, (down, across) = cut.matrix_bytes, cut.tiles
        # Registers are read for fewer products where these are narrow.
        products = down * across * cut.steps * cut.depth * (rows * columns + 64)
        for groups, stages in ((2, 4), (4, 2), (2, 2), (1, 4), (1, 2), (2, 3), (4, 3)):
            held = rows * columns // 2 + stages * cut.depth // 4 + _OTHER
            if size > SHARED or groups > down or groups * GROUP_LANES * held > REGISTERS:
                continue
            # Two blocks of an SM load and store while the other multiplies; of the widest products
            # the compiler takes some apart where it moves their registers.
            alone = 1.25 ** ((2 * size > SHARED) + (rows * columns == _WIDEST))
            near = 1 + (abs(stages - (4 if rows < 8 else 2)) + abs(groups - 2)) / 64
            tile = ToeplitzTile(rows, columns, groups, -(-down // groups), stages)
            yield products * alone * near, tile


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
