"""The tiles worth trying for products of pairs of channels, best guess first.

The guess is a time, of what tensor cores multiply, what shared memory is read for, what comes
through the second-level cache and what memory moves. Its numbers are those of an H200; which of
these tiles is taken there, records and the trees of the choice decide.
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
from tilewright.topi.gpu.depthwise_channel_pairs import PairTile, SparsePairTile, pair_cut
from tilewright.topi.gpu.machine import Machine, has_eights, sees_nothing
from tilewright.topi.gpu.window import MULTIPROCESSORS
from tilewright.topi.nn.depthwise_channel_pairs import CHANNELS, PairCut
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.problem import Problem

#: Registers of a thread beside what it multiplies, and at most.
_OTHERS, _MOST_REGISTERS = 40, 250
#: Registers that compilers may do without.
_SPARED = 24
#: Products written out at most; tiles that are worth trying, of so many for as many rows.
_CODE, _MOST, _WARPS = 1024, 160, 6
#: Strips and groups of a product's rows: a power of two each, at most so many rows together.
_POWERS = (1, 2, 4, 8, 16)
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 14)
#: Lots of channels; so many numbers of them are worth trying, which come next to so many channels.
_LOTS, _CHANNELS, _WIDE = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 18), 5, 28
#: Elements of 16 bits in 16 bytes.
_PIECE = 8
#: Registers of bands at most, of products that skip zeros: with more of them compilers spill.
_MOST_BANDS = 112
#: Cycles of a quarter of a multiprocessor for a product of so many pixels
#: (``benchmarks/mma_rates.py``).
PRODUCT = {4: 4.1, 8: 6.1, 16: 8.1}


def pair_tiles(p: Problem, target: Target) -> list[PairTile]:
    """Tiles that fit."""
    return list(_ranked(p, PairTile))


def sparse_pair_tiles(p: Problem, target: Target) -> list[PairTile]:
    """Tiles that fit, of products that skip zeros."""
    return list(_ranked(p, SparsePairTile))


def suits_pairs(p: Problem) -> bool:
    """Whether products of pairs of channels are for a problem: one of 16 bits, whose pixels begin
    at multiples of 16 bytes, with filters that fit registers."""
    suits = p.pass_ != "wgrad" and has_eights(p) and not sees_nothing(p)
    return suits and next(_tiles(p, PairTile), None) is not None


def suits_sparse_pairs(p: Problem) -> bool:
    """Whether products that skip zeros are: the same, with filters so wide that these products take
    less time than those that multiply them."""
    if p.pass_ == "wgrad" or not has_eights(p) or sees_nothing(p):
        return False
    sparse, dense = pair_cut(p, SparsePairTile()), pair_cut(p, PairTile())
    less = sparse.parts * PRODUCT[sparse.pixels] < dense.parts * PRODUCT[dense.pixels]
    return less and next(_tiles(p, SparsePairTile), None) is not None


@functools.lru_cache(64)
def _ranked(p: Problem, kind: type[PairTile]) -> tuple[PairTile, ...]:
    found = heapq.nsmallest(_MOST, _tiles(p, kind), key=lambda pair: pair[0])
    return tuple(dict.fromkeys(tile for cost, tile in found if cost < math.inf))


def _tiles(p: Problem, kind: type[PairTile]) -> Iterator[tuple[float, PairTile]]:
    """Tiles, with the microseconds that they are thought to take."""
    for tile in _warps(p, kind):
        for lots, stages in product(_lots(p, tile.pairs), (1, 2)):
            yield from _balanced(p, replace(tile, lots=lots, stages=stages))


def _balanced(p: Problem, tile: PairTile) -> Iterator[tuple[float, PairTile]]:
    """The same in as many blocks as multiprocessors hold at once, twice as many, or of two tiles
    each; and as they would hold if compilers did with fewer registers, which they do where they are
    told to."""
    count, beside = _count(p, tile)
    for spared in (0, _SPARED):
        resident = _resident(p, tile, spared)
        if not resident or (spared and resident == _resident(p, tile)):
            continue
        even = (-(-count * beside // (waves * resident * MULTIPROCESSORS)) for waves in (1, 2))
        most = count if tile.deep <= p.batch else 1
        turns = {1} if tile.stages == 1 else {t for t in (2, *even) if tile.stages <= t <= most}
        for t in sorted(turns):
            made = replace(tile, turns=t)
            yield _micros(p, made, resident), made


def _warps(p: Problem, kind: type[PairTile]) -> Iterator[PairTile]:
    """What warps may compute: for so many rows and pairs, the ways to count the rows of a product
    that read the least."""
    for rows, pairs in product(_ROWS, (4, 2)):
        tiles = [
            kind(rows, strips, groups, pairs)
            for strips, groups in product(_POWERS, repeat=2)
            if strips * groups <= kind.matrix
        ]
        cut = pair_cut(p, tiles[0])
        fits = registers(cut) <= _MOST_REGISTERS and not (cut.sparse and bands(cut) > _MOST_BANDS)
        if products(cut) <= _CODE and fits:
            yield from heapq.nsmallest(_WARPS, tiles, key=lambda tile: _read(p, tile))


def _read(p: Problem, tile: PairTile) -> float:
    """Pixels that are read for each result that the images have."""
    sizes = zip((p.batch, *p.result_image), (tile.deep, tile.high, tile.wide), strict=True)
    waste = math.prod(whole(n, size) / n for n, size in sizes)
    seen = pair_cut(p, tile).seen(tile.high, tile.wide)
    return waste * math.prod(seen) / (tile.high * tile.wide)


def _lots(p: Problem, pairs: int) -> list[int]:
    """Lots of channels of blocks, in whole pieces of 16 bytes, without much waste, and so many that
    rows of a box are not short, where the problem has them."""
    own = pairs * CHANNELS
    fitting = [
        lots
        for lots in _LOTS
        if lots * own % _PIECE == 0 and whole(p.channels, lots * own) <= 1.15 * p.channels
    ]
    return sorted(fitting, key=lambda lots: abs(math.log(lots * own / _WIDE)))[:_CHANNELS]


def products(cut: PairCut) -> int:
    """Products of a warp in a turn."""
    return cut.met * cut.parts * cut.pairs


def loads(cut: PairCut) -> int:
    """Loads of 16 bytes a thread of a warp in a turn."""
    return len(cut.read) * cut.parts * cut.pixels * cut.pairs // (16 if cut.sparse else 8)


def bands(cut: PairCut) -> int:
    """Registers of a thread with the bands of its filters."""
    return cut.kernel[0] * cut.parts * cut.pixels // 4 * cut.pairs


def registers(cut: PairCut) -> int:
    """Registers of a thread: sums, bands, pixels, and others."""
    return bands(cut) + (4 * cut.rows + 6) * cut.pairs + _OTHERS


def _count(p: Problem, tile: PairTile) -> tuple[int, int]:
    """Tiles of the images, and blocks side by side for all channels."""
    extents = (p.batch, *p.result_image, p.channels)
    sizes = (tile.deep, tile.high, tile.wide, tile.channels)
    *tiles, beside = (-(-n // size) for n, size in zip(extents, sizes, strict=True))
    return math.prod(tiles), beside


def _resident(p: Problem, tile: PairTile, spared: int = 0) -> int:
    """Blocks that a multiprocessor holds, of threads with so many registers less than they are
    thought to take; 0 where it cannot hold one."""
    cut = pair_cut(p, tile)
    rows, columns = cut.seen(tile.high, tile.wide)
    if max(rows, columns) > LARGEST:
        return 0
    pixels, results = rows * columns, tile.high * tile.wide
    numbers = tile.stages * pixels * tile.channels + results * (tile.channels + _PIECE)
    warps = tile.down * tile.across * tile.lots
    space = 2 * tile.deep * numbers + Machine.OWN
    return Machine.resident(warps, registers(cut) - spared, space)


def load_passes(tile: PairTile, columns: int, rows: int, stride: tuple[int, int]) -> int:
    """How many times as long as it might a warp's load of pixels takes, for banks that threads
    meet: of a box so many pixels wide and high."""
    pixel, own = tile.channels * 2, 2 * tile.own
    places: dict[int, set[int]] = {}
    for lane in range(128 // own):  # threads whose bytes are read at once, as those of others are
        group, strip = lane // 4 % tile.groups, lane // 4 // tile.groups % tile.strips
        image = lane // 4 // (tile.groups * tile.strips)
        row = image * rows + strip * tile.rows * stride[0]
        column = group * tile.outputs * stride[1] + lane % 4
        if isinstance(tile, SparsePairTile):
            column += lane & 4  # threads of odd rows read other pixels first
        at = (row * columns + column) * pixel
        at ^= at >> 3 & tile.swizzle - 16 if tile.swizzle else 0
        places.setdefault(at % 128 // own, set()).add(at)
    return max(map(len, places.values()))


def _micros(p: Problem, tile: PairTile, resident: int) -> float:
    """The microseconds that a tile is thought to take, of which so many are resident."""
    cut, (height, width) = pair_cut(p, tile), p.result_image
    count, beside = _count(p, tile)
    rows, columns = cut.seen(tile.high, tile.wide)
    warps = tile.down * tile.across * tile.lots
    blocks = -(-count // tile.turns) * beside
    waves = blocks / (resident * MULTIPROCESSORS)
    read = loads(cut) * load_passes(
        tile, columns, rows, p.stride if p.pass_ == "forward" else (1, 1)
    )
    made = 12 * bands(cut)  # instructions for a warp's bands
    stored = tile.deep * tile.high * tile.wide * tile.channels // (64 * warps)
    others = 6 * tile.rows * tile.pairs + stored
    multiplied = products(cut) * PRODUCT[cut.pixels] / PRODUCT[8]
    work = Machine.busy(round(multiplied), round(read), 1, others)
    busy = warps * (count * beside * work + blocks * made * Machine.ISSUE)
    busy *= (1 + 5 / (resident * warps)) / Machine.CYCLES / MULTIPROCESSORS
    written = p.batch * height * width * p.channels * 2
    # Short rows take as long as longer ones.
    box = tile.deep * rows * columns * max(tile.channels * 2 + 12, 80)
    cache = (count * beside * box + written) / Machine.CACHE
    read = p.batch * math.prod(cut.image) * p.channels * 2
    memory = (read + written) / Machine.MEMORY * (1.15 if beside > 1 else 1.0)
    slowest = math.pow(busy**4 + cache**4 + memory**4, 0.25)
    tail = math.ceil(waves) / waves if waves < 3 else 1.0
    alone = 1.4 if resident == 1 else 1.0  # nothing moves while one block computes
    waits = math.ceil(waves) * (1.5 if tile.stages == 1 else 1.0) / math.sqrt(resident)
    return slowest * tail * alone + waits
