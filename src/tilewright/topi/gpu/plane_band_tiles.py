"""The tiles worth trying for products of planes with bands of filters, best guess first.

The guess is a time, of what tensor cores multiply, what an SM issues, what comes through
the second-level cache and what memory moves. Its numbers are those of an H200; which of these tiles
is taken there, records and the trees of the choice decide.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.columns import Array, best, columns, combinations, listed, pick
from tilewright.topi.gpu.machine import ISSUE, MACHINE, MEMORY, is_planar, occupancy, slides
from tilewright.topi.gpu.pair_tiles import PRODUCT
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.plane_band_cuts import CHUNK, PIXELS, band_cut, row_conflicts
from tilewright.topi.pieces.strip_tiles import PLANE_OUTPUTS, PlaneBandTile

#: Bytes of an element.
SIZE = 2
#: Products for a row of results at most, by what was measured: with as many as filters of thirteen
#: rows need, two for each, others are as fast on small images.
_LONGEST = 26
#: Registers of a thread beside bands, sums and pixels, and at most.
_OTHERS, _MOST_REGISTERS = 40, 200
#: Products written out at most; tiles that are worth trying; ways to count the rows of a product
#: for as many rows of results; results that may be computed by the fewest that can be.
_CODE, _MOST, _WAYS, _WASTE = 1024, 120, 5, 1.4
#: Strips and groups of a product's rows: a power of two each, at most this many rows together.
_POWERS, _ROWS = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6, 7, 8, 14)
#: Warps of a block at most; channels and warps down an image of a block.
_WARPS, _CHANNELS, _DOWN = 16, (1, 2), (1, 2, 4)
#: Tiles of a block, one after the other.
_TURNS = (1, 2)
#: Instructions for a chunk that a thread copies; microseconds that chunks take, that a box takes,
#: and each of its rows; what they reach of the second-level cache's bandwidth.
PER_CHUNK, _CHUNKS, _BOX, _LINE, _CACHE = 20, 0.7, 1.0, 0.004, 4 / 7


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
    if not len(blocks.rows):
        return ()
    cost, found = _turned(p, blocks)
    return listed(pick(found, best(cost, _MOST)))


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


def _turned(p: Conv, bare: Any) -> tuple[Array, Any]:
    """The same in blocks of few tiles, which start as others end, and in as many blocks as SMs hold
    at once; where a product has more images than there are, of one tile. The microseconds that they
    are predicted to take come first."""
    variants = (1, 0) if _width(p) % CHUNK == 0 else (0,)
    own, stages, boxed = combinations(range(len(bare.rows)), (1, 2), variants)
    tile = pick(bare, own, stages=stages, boxed=boxed)
    alone: Any = band_cut(p, bare)
    cut = replace(
        alone, rows=tile.rows, matrix=tile.matrix, tile=tile.size, row_stride=alone.row_stride[own]
    )
    resident, count = _resident(cut, tile), tiles_of(p, cut)
    once = -(-count * cut.grid[0] // (np.maximum(resident, 1) * MACHINE.sms))
    turns = np.sort(np.stack([*(np.full_like(once, t) for t in _TURNS), once], axis=1), axis=1)
    most = np.where(tile.matrix[0] <= p.batch, count, 1)
    some = (turns >= stages[:, None]) & (turns <= most[:, None]) & (resident > 0)[:, None]
    some[:, 1:] &= turns[:, 1:] != turns[:, :-1]
    which, turn = np.nonzero(some)
    turns = turns[which, turn]
    micros = _micros(p, cut, tile, row_conflicts(alone)[own], resident, which, turns)
    return micros, pick(tile, which, turns=turns)


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


def shared(cut: Any, tile: Any) -> Any:
    """Bytes of shared memory of a block: images and results, which take the place of an image
    where no other is on its way."""
    image, results = math.prod(cut.box), tile.matrix[0] * math.prod(tile.size)
    one = np.maximum(image, results)
    return SIZE * np.where(tile.stages > 1, tile.stages * image + results, one)


def chunks(cut: Any) -> Any:
    """Copies of a tile, where threads copy it."""
    return math.prod(cut.box) // cut.chunk


def tiles_of(p: Conv, cut: Any) -> Any:
    """Tiles of the images, of some channels."""
    return -(-p.batch // cut.matrix[0]) * cut.grid[1] * cut.grid[2]


def _resident(cut: Any, tile: Any) -> Array:
    """Blocks that an SM holds; 0 where it cannot hold one, or a box is too large, or
    boxes beside one another would begin where none can."""
    _, _, rows, row_stride = cut.box
    apart = tile.size[1] * cut.stride[1]  # from a box to the one beside it
    strange = (np.maximum(rows, row_stride) > LARGEST) | ((cut.grid[2] > 1) & (apart % CHUNK > 0))
    warps = tile.down * tile.across * tile.channels
    resident = occupancy(MACHINE, warps, registers(cut), shared(cut, tile))
    return np.where((tile.boxed > 0) & strange, 0, resident)


def _micros(
    p: Conv, cut: Any, tile: Any, conflicts: Array, resident: Array,
    which: Array, turns: Array,
) -> Array:  # fmt: skip
    """The predicted microseconds of tiles ``which``, with ``turns`` each, of which ``resident`` are
    in an SM and whose loads have ``conflicts``."""
    along, warps = cut.grid[0], tile.down * tile.across * tile.channels
    tiles = tiles_of(p, cut) * along
    own = PER_CHUNK * chunks(cut) // (32 * warps)
    issued = products(cut) + 3 * loads(cut) + 6 * tile.rows + 20 + np.where(tile.boxed, 0, own)
    multiplied, read = products(cut) * PRODUCT[PIXELS // 2] / 4, 3 * loads(cut) * conflicts
    work = np.sqrt(multiplied**2 + read**2 + (issued * ISSUE) ** 2)
    images_per_mma, channels, rows, row_stride = cut.box
    lines = images_per_mma * channels * rows
    load = np.where(tile.boxed, _BOX + _LINE * lines, _CHUNKS)
    load *= np.where(tile.stages > 1, 0.35, 1.0)
    written = p.batch * p.channels * math.prod(cut.result) * SIZE
    cache = (tiles * lines * np.maximum(row_stride * SIZE, 80) + written) / (_CACHE * MACHINE.cache)
    moved = written + p.batch * math.prod(cut.image) * p.channels * SIZE

    resident = resident[which]
    blocks = -(-tiles_of(p, cut)[which] // turns) * along[which]
    waves = np.ceil(blocks / (resident * MACHINE.sms))
    made = blocks * (8 * bands(cut) * ISSUE)
    busy = warps[which] * ((tiles * work)[which] + made) / MACHINE.clock / MACHINE.sms
    busy *= np.where(waves < 4, waves * resident * MACHINE.sms / blocks, 1.0)
    waits = waves * turns * load[which]
    slowest = (busy**3 + cache[which] ** 3 + waits**3) * (1 + 0.3 / resident) ** 3
    return np.asarray(np.cbrt(slowest + (moved / MEMORY) ** 3))
