"""The tiles worth trying for :mod:`~tilewright.topi.gpu.depthwise_plane_bands`, best guess first.

The guess is a time, of what tensor cores multiply, what a multiprocessor issues, what comes through
the second-level cache and what memory moves. Its numbers are those of an H200; which of these tiles
is taken there, records and the trees of the choice decide.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_plane_bands import PlaneBandTile, band_cut, meetings
from tilewright.topi.gpu.machine import Machine, sees_nothing
from tilewright.topi.gpu.pair_tiles import PRODUCT
from tilewright.topi.gpu.window import MULTIPROCESSORS
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.nn.depthwise_plane_bands import OUTPUTS, PIECE, PIXELS, PlaneBandCut
from tilewright.topi.problem import Problem

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
#: Strips and groups of a product's rows: a power of two each, at most so many rows together.
_POWERS, _ROWS = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6, 7, 8, 14)
#: Warps of a block at most; channels and warps down an image of a block.
_WARPS, _CHANNELS, _DOWN = 16, (1, 2), (1, 2, 4)
#: Tiles of a block, one after the other.
_TURNS = (1, 2)
#: Instructions for a piece that a thread copies; microseconds that pieces take, that a box takes,
#: and each of its rows; bytes a microsecond that come through the second-level cache.
PER_PIECE, _PIECES, _BOX, _LINE, _CACHE = 20, 0.7, 1.0, 0.004, 4e6


def plane_band_tiles(p: Problem, target: Target) -> list[PlaneBandTile]:
    """Tiles that fit."""
    return list(_ranked(p))


def suits_plane_bands(p: Problem) -> bool:
    """Whether products with bands are for a problem: one of 16 bits, whose rows are multiples of 4
    bytes long, with filters that fit registers."""
    return (
        p.rank == 2
        and p.pass_ != "wgrad"
        and p.dtype in ("float16", "bfloat16")
        and p.accumulate == "float32"
        and p.multiplier == 1
        and _width(p) % 2 == 0
        and (p.pass_ == "forward" or p.stride == (1, 1))
        and not sees_nothing(p)
        and any(cost < math.inf for cost, _ in _tiles(p))
    )


def _width(p: Problem) -> int:
    """Of the image that is read."""
    return p.out_image[1] if p.pass_ == "dgrad" else p.width


@functools.lru_cache(64)
def _ranked(p: Problem) -> tuple[PlaneBandTile, ...]:
    found = heapq.nsmallest(_MOST, _tiles(p), key=lambda pair: pair[0])
    return tuple(dict.fromkeys(tile for cost, tile in found if cost < math.inf))


def _tiles(p: Problem) -> Iterator[tuple[float, PlaneBandTile]]:
    """Tiles, with the microseconds that they are thought to take."""
    ways = (1, 0) if _width(p) % PIECE == 0 else (0,)
    warps = list(_warps(p))
    most = _WASTE * min((_waste(p, bare) for bare in warps), default=1.0)
    for bare in warps:
        own, high = OUTPUTS * bare.groups, bare.rows * bare.strips
        across = {-(-p.result_image[1] // (own * parts)) for parts in (1, 2)}
        down = [d for d in _DOWN if d == 1 or (d - 1) * high < p.result_image[0]]
        for y, x, channels in product(down, across, _CHANNELS):
            if p.channels % channels or y * x * channels > _WARPS:
                continue
            made = replace(bare, down=y, across=x, channels=channels)
            if _waste(p, made) <= most:
                for stages, boxed in product((1, 2), ways):
                    yield from _turned(p, replace(made, stages=stages, boxed=boxed))


def _warps(p: Problem) -> Iterator[PlaneBandTile]:
    """What warps may compute: for so many rows, the ways to count the rows of a product that
    compute the least in vain."""
    one = band_cut(p, PlaneBandTile(1, 1, 1, 1, 1, 1))
    if one.kernel[0] * one.parts > _LONGEST:
        return
    pairs = [(strips, groups) for strips, groups in product(_POWERS, repeat=2)]
    for rows in _ROWS:
        tiles = [PlaneBandTile(rows, *pair, 1, 1, 1) for pair in pairs if math.prod(pair) <= 16]
        cut = band_cut(p, tiles[0])
        if products(cut) <= _CODE and registers(cut) <= _MOST_REGISTERS:
            yield from heapq.nsmallest(_WAYS, tiles, key=lambda tile: _waste(p, tile))


def _waste(p: Problem, tile: PlaneBandTile) -> float:
    """Results that are computed by those that the images have."""
    sizes = zip((p.batch, *p.result_image), (tile.matrix[0], *tile.size[:2]), strict=True)
    return math.prod(whole(n, size) / n for n, size in sizes)


def _turned(p: Problem, tile: PlaneBandTile) -> Iterator[tuple[float, PlaneBandTile]]:
    """The same in blocks of few tiles, which start as others end, and in as many blocks as
    multiprocessors hold at once; where a product has more images than there are, of one tile."""
    cut = band_cut(p, tile)
    resident, count = residents(cut, tile), tiles_of(p, cut)
    if not resident:
        return
    once = -(-count * cut.grid[0] // (resident * MULTIPROCESSORS))
    most = count if tile.matrix[0] <= p.batch else 1
    for turns in sorted({t for t in (*_TURNS, once) if tile.stages <= t <= most}):
        made = replace(tile, turns=turns)
        yield _micros(p, cut, made, resident), made


def products(cut: PlaneBandCut) -> int:
    """Products of a warp in a turn."""
    return cut.met * cut.parts


def loads(cut: PlaneBandCut) -> int:
    """Loads of 8 bytes a thread of a warp in a turn."""
    return len(cut.read) * cut.parts * 2


def bands(cut: PlaneBandCut) -> int:
    """Registers of a thread with the bands of its filter."""
    return 2 * cut.kernel[0] * cut.parts


def registers(cut: PlaneBandCut) -> int:
    """Registers of a thread: sums, bands, pixels, and others."""
    return bands(cut) + 4 * cut.rows + 8 + _OTHERS


def shared(cut: PlaneBandCut, tile: PlaneBandTile) -> int:
    """Bytes of shared memory of a block: images and results, which take the place of an image
    where no other is on its way."""
    image, results = math.prod(cut.box), tile.matrix[0] * math.prod(tile.size)
    return SIZE * (tile.stages * image + results if tile.stages > 1 else max(image, results))


def pieces(cut: PlaneBandCut) -> int:
    """Copies of a tile, where threads copy it."""
    return math.prod(cut.box) // cut.piece


def tiles_of(p: Problem, cut: PlaneBandCut) -> int:
    """Tiles of the images, of some channels."""
    return -(-p.batch // cut.matrix[0]) * cut.grid[1] * cut.grid[2]


def conflicts(cut: PlaneBandCut, tile: PlaneBandTile) -> int:
    """How many times as long as it might a warp's load takes, for banks that threads meet."""
    _, channels, rows, pitch = cut.box
    apart = channels * rows, tile.rows * cut.stride[0]
    return meetings(pitch // PIECE, apart, cut.stride[1], tile.strips, tile.groups)


def residents(cut: PlaneBandCut, tile: PlaneBandTile) -> int:
    """Blocks that a multiprocessor holds; 0 where it cannot hold one, or a box is too large, or
    boxes beside one another would begin where none can."""
    _, _, rows, pitch = cut.box
    apart = tile.size[1] * cut.stride[1]  # from a box to the one beside it
    if tile.boxed and (max(rows, pitch) > LARGEST or (cut.grid[2] > 1 and apart % PIECE)):
        return 0
    warps = tile.down * tile.across * tile.channels
    return Machine.resident(warps, registers(cut), shared(cut, tile) + Machine.OWN)


def _micros(p: Problem, cut: PlaneBandCut, tile: PlaneBandTile, resident: int) -> float:
    """The microseconds that a tile is thought to take, of which so many are resident."""
    tiles, warps = tiles_of(p, cut) * cut.grid[0], tile.down * tile.across * tile.channels
    blocks = -(-tiles_of(p, cut) // tile.turns) * cut.grid[0]
    waves = math.ceil(blocks / (resident * MULTIPROCESSORS))
    issued = products(cut) + 3 * loads(cut) + 6 * tile.rows + 20
    if not tile.boxed:
        issued += PER_PIECE * pieces(cut) // (32 * warps)
    multiplied, read = (
        products(cut) * PRODUCT[PIXELS // 2] / 4,
        3 * loads(cut) * conflicts(cut, tile),
    )
    work = math.hypot(multiplied, read, issued * Machine.ISSUE)
    made = 8 * bands(cut) * Machine.ISSUE
    busy = warps * (tiles * work + blocks * made) / Machine.CYCLES / MULTIPROCESSORS
    if waves < 4:
        busy *= waves * resident * MULTIPROCESSORS / blocks
    deep, channels, rows, pitch = cut.box
    load = _BOX + _LINE * deep * channels * rows if tile.boxed else _PIECES
    waits = waves * tile.turns * load * (0.35 if tile.stages > 1 else 1.0)
    results = math.prod(cut.result) * SIZE
    written = p.batch * p.channels * results
    box = deep * channels * rows * max(pitch * SIZE, 80)
    cache = (tiles * box + written) / _CACHE
    moved = written + p.batch * math.prod(cut.image) * p.channels * SIZE
    own = (busy**3 + cache**3 + waits**3) * (1 + 0.3 / resident) ** 3
    return float((own + (moved / Machine.MEMORY) ** 3) ** (1 / 3))
