"""The tiles worth trying for products of planes with bands of filters, best guess first.

The guess is a time (:mod:`~tilewright.topi.gpu.staged_times`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.target.devices import WARP
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.columns import Array, columns, combinations, pick
from tilewright.topi.gpu.machine import is_planar, slides
from tilewright.topi.gpu.pair_tiles import PRODUCT
from tilewright.topi.gpu.staged_times import Work, brought, in_turns, spare_of
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.plane_band_cuts import CHUNK, PIXELS, band_cut, row_conflicts
from tilewright.topi.pieces.strip_tiles import PLANE_OUTPUTS, PlaneBandTile

#: Bytes of an element.
_SIZE = 2
#: Products for a row of results at most, by what was measured: with as many as filters of thirteen
#: rows need, two for each, others are as fast on small images.
_LONGEST = 26
#: Registers of a thread beside bands, sums and pixels, and at most.
_OTHERS, _MOST_REGISTERS = 40, 200
#: Products written out at most; ways to count the rows of a product for as many rows of results;
#: results that may be computed by the fewest that can be.
_CODE, _WAYS, _WASTE = 1024, 5, 1.4
#: Strips and groups of a product's rows: a power of two each, at most this many rows together.
_POWERS, _ROWS = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6, 7, 8, 14)
#: Warps of a block at most; channels and warps down an image of a block.
_WARPS, _CHANNELS, _DOWN = 16, (1, 2), (1, 2, 4)
#: Instructions for a chunk that a thread copies.
_PER_CHUNK = 20


def suits_plane_bands(p: Conv) -> bool:
    """Whether products with bands are for a problem: one of 16 bits, whose rows are multiples of 4
    bytes long, with filters that fit registers."""
    return is_planar(p) and _width(p) % 2 == 0 and slides(p)


def _width(p: Conv) -> int:
    """Of the image that is read."""
    return p.out_image[1] if p.pass_ == "dgrad" else p.width


@functools.lru_cache(64)
def plane_band_tiles(p: Conv) -> Sequence[PlaneBandTile]:
    """Tiles that fit."""
    warps = _warps(p)
    blocks = columns(PlaneBandTile, _blocks(p, warps))
    least = _waste(p, columns(PlaneBandTile, [(*warp, 1, 1, 1) for warp in warps]))
    blocks = pick(blocks, _waste(p, blocks) <= _WASTE * least.min(initial=math.inf))
    own, boxed = combinations(range(len(blocks.rows)), (1, 0) if _width(p) % CHUNK == 0 else (0,))
    tile = pick(blocks, own, boxed=boxed)
    # A block with more images than there are has one tile.
    return in_turns(tile, work(p, tile), np.where(tile.matrix[0] <= p.batch, np.inf, 1))


def work(p: Conv, tile: Any) -> Work:
    """What blocks of tiles do."""
    cut: Any = band_cut(p, tile)
    images_per_mma, channels, rows, row_stride = cut.box
    number, lines = tile.down * tile.across * tile.channels, images_per_mma * channels * rows
    apart = tile.size[1] * cut.stride[1]  # from a box to the one beside it
    strange = (np.maximum(rows, row_stride) > LARGEST) | ((cut.grid[2] > 1) & (apart % CHUNK > 0))
    images = math.prod(cut.image) + math.prod(cut.result)
    copied = _PER_CHUNK * chunks(cut) // (WARP * number)
    return Work(
        warps=number, registers=registers(cut), staged=_SIZE * lines * row_stride,
        kept=_SIZE * tile.matrix[0] * math.prod(tile.size),
        line=tiles_of(p, cut), beside=cut.grid[0],
        products=products(cut) * PRODUCT[PIXELS // 2] / PRODUCT[8],
        loads=3 * loads(cut) * row_conflicts(cut) / 4,
        issued=3 * loads(cut) + 6 * tile.rows + 20 + np.where(tile.boxed, 0, copied),
        once=8 * bands(cut), brought=brought(lines, row_stride * _SIZE),
        moved=_SIZE * p.batch * p.channels * images, fits=(tile.boxed == 0) | ~strange,
        spare=spare_of(
            (*p.result_image, p.batch), (*tile.size[:2], images_per_mma), (rows, row_stride)
        ),
    )  # fmt: skip


def _blocks(p: Conv, warps: Sequence[tuple[int, int, int]]) -> list[tuple[int, ...]]:
    """Rows, strips and groups of warps, and warps and channels of a block."""
    height, width = p.result_image
    return [
        (rows, strips, groups, y, x, channels)
        for rows, strips, groups in warps
        for y in _DOWN
        for x in {-(-width // (PLANE_OUTPUTS * groups * parts)) for parts in (1, 2)}
        for channels in _CHANNELS
        if (y == 1 or (y - 1) * rows * strips < height)
        and p.channels % channels == 0
        and y * x * channels <= _WARPS
    ]


def _warps(p: Conv) -> list[tuple[int, int, int]]:
    """What warps may compute: for given rows, the variants to count the rows of a product that
    compute the least without use."""
    pairs = [(s, g) for s in _POWERS for g in _POWERS if s * g <= 16]
    bare = columns(PlaneBandTile, [(rows, 1, 1, 1, 1, 1) for rows in _ROWS])
    cut: Any = band_cut(p, bare)
    if cut.kernel[0] * cut.parts > _LONGEST:
        return []
    fits = bare.rows[(products(cut) <= _CODE) & (registers(cut) <= _MOST_REGISTERS)].tolist()
    every = columns(PlaneBandTile, [(rows, *pair, 1, 1, 1) for rows in fits for pair in pairs])
    waste = _waste(p, every).reshape(-1, len(pairs))
    least = np.argsort(waste, axis=1, kind="stable")[:, :_WAYS].tolist()
    return [(rows, *pairs[k]) for rows, of in zip(fits, least, strict=True) for k in of]


def _waste(p: Conv, tile: Any) -> Array:
    """Results that are computed by those that the images have."""
    sizes = zip((p.batch, *p.result_image), (tile.matrix[0], *tile.size[:2]), strict=True)
    return np.asarray(math.prod(whole(n, size) / n for n, size in sizes))


def products(cut: Any) -> Any:
    """Products of a warp in a turn."""
    return cut.met * cut.parts


def loads(cut: Any) -> Any:
    """Loads of 8 bytes a thread of a warp in a turn."""
    first, last = cut.read_rows
    return (last - first) * cut.parts * 2


def bands(cut: Any) -> Any:
    """Registers of a thread with the bands of its filter."""
    return 2 * cut.kernel[0] * cut.parts


def registers(cut: Any) -> Any:
    """Registers of a thread: sums, bands, pixels, and others."""
    return bands(cut) + 4 * cut.rows + 8 + _OTHERS


def chunks(cut: Any) -> Any:
    """Copies of a tile, where threads copy it."""
    return math.prod(cut.box) // cut.chunk


def tiles_of(p: Conv, cut: Any) -> Any:
    """Tiles of the images, of some channels."""
    return -(-p.batch // cut.matrix[0]) * cut.grid[1] * cut.grid[2]
