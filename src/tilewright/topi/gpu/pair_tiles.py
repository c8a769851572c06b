"""The tiles worth trying for products of pairs of channels, best guess first.

The guess is a time, of what tensor cores multiply, what shared memory is read for, what comes
through the second-level cache and what memory moves. Its numbers are those of an H200; which of
these tiles is taken there, records and the trees of the choice decide.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.columns import Array, best, columns, listed, pick
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.gpu.machine import (
    CACHE,
    CHANNELS,
    ISSUE,
    MACHINE,
    MEMORY,
    busy,
    is_planar,
    micros,
    occupancy,
    slides,
)
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.pair_cuts import pair_cut
from tilewright.topi.pieces.strip_tiles import CHANNELS as OF_A_PAIR
from tilewright.topi.pieces.strip_tiles import PairTile, SparsePairTile

#: Registers of a thread beside what it multiplies, and at most.
_OTHERS, _MOST_REGISTERS = 40, 250
#: Registers that compilers may do without.
_SPARED = 24
#: Products written out at most; tiles that are worth trying, and of how many each for as many rows.
_CODE, _MOST, _WARPS = 1024, 160, 6
#: Strips and groups of a product's rows: a power of two each, at most this many rows together.
_POWERS = (1, 2, 4, 8, 16)
_ROWS, _PAIRS = (1, 2, 3, 4, 5, 6, 7, 8, 14), (4, 2)
#: Lots of channels: how many numbers are tried, and the channels that they come next to.
_LOTS, _CHANNELS, _WIDE = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 18), 5, 28
#: Elements of 16 bits in 16 bytes.
_PIECE = 8
#: Registers of bands at most, of products that skip zeros: with more of them compilers spill.
_MOST_BANDS = 112
#: Cycles of an SM sub-partition for a product of this many pixels
#: (``benchmarks/mma_rates.py``).
PRODUCT = {4: 4.1, 8: 6.1, 16: 8.1}


def pair_tiles(p: Conv) -> Sequence[PairTile]:
    """Tiles that fit."""
    return _ranked(p, PairTile)


def sparse_pair_tiles(p: Conv) -> Sequence[PairTile]:
    """Tiles that fit, of products that skip zeros."""
    return _ranked(p, SparsePairTile)


def suits_pairs(p: Conv) -> bool:
    """Whether products of pairs of channels are for a problem: one of 16 bits, whose pixels begin
    at multiples of 16 bytes, with filters that fit registers."""
    return is_planar(p) and p.channels % CHANNELS == 0 and slides(p)


def suits_sparse_pairs(p: Conv) -> bool:
    """Whether products that skip zeros are: the same, with filters so wide that these products take
    less time than those that multiply them."""
    if not suits_pairs(p):
        return False
    sparse, dense = pair_cut(p, SparsePairTile()), pair_cut(p, PairTile())
    return sparse.parts * PRODUCT[sparse.pixels] < dense.parts * PRODUCT[dense.pixels]


@functools.lru_cache(64)
def _ranked(p: Conv, kind: type[PairTile]) -> Sequence[PairTile]:
    tiles = _warps(p, kind)
    if not tiles:
        return ()
    cost, found = _turned(p, columns(kind, tiles))
    return listed(pick(found, best(cost, _MOST)))


def _warps(p: Conv, kind: type[PairTile]) -> list[tuple[int, ...]]:
    """What warps may compute: for given rows and pairs, the variants to count the rows of a product
    that read the least; in lots of channels."""
    combined = [(s, g) for s in _POWERS for g in _POWERS if s * g <= kind.places]
    bare = columns(kind, [(rows, *combined[0], pairs) for rows in _ROWS for pairs in _PAIRS])
    cut: Any = pair_cut(p, bare)
    fits = (registers(cut) <= _MOST_REGISTERS) & (products(cut) <= _CODE)
    if cut.sparse:
        fits &= bands(cut) <= _MOST_BANDS
    some = [(r, n) for r, n in zip(bare.rows[fits], bare.pairs[fits], strict=True)]
    read = _read(p, columns(kind, [(r, *sg, n) for r, n in some for sg in combined]))
    least = np.argsort(read.reshape(-1, len(combined)), axis=1, kind="stable")[:, :_WARPS].tolist()
    lots = {n: _lots(p, n) for n in _PAIRS}
    return [
        (rows, *combined[k], pairs, 1, 1, lot, 1, stages)
        for (rows, pairs), best_of in zip(some, least, strict=True)
        for k in best_of
        for lot in lots[pairs]
        for stages in (1, 2)
    ]


def _read(p: Conv, tile: Any) -> Array:
    """Pixels that are read for each result that the images have."""
    sizes = zip(
        (p.batch, *p.result_image), (tile.images_per_mma, tile.high, tile.wide), strict=True
    )
    waste = math.prod(whole(n, size) / n for n, size in sizes)
    seen = pair_cut(p, tile).seen(tile.high, tile.wide)
    return np.asarray(waste * math.prod(seen) / (tile.high * tile.wide))


def _lots(p: Conv, pairs: int) -> list[int]:
    """Lots of channels of blocks, in whole chunks of 16 bytes, without much waste, as many as
    rows of a box are not short, where the problem has them."""
    own = pairs * OF_A_PAIR
    fitting = [
        lots
        for lots in _LOTS
        if lots * own % _PIECE == 0 and whole(p.channels, lots * own) <= 1.15 * p.channels
    ]
    return sorted(fitting, key=lambda lots: abs(math.log(lots * own / _WIDE)))[:_CHANNELS]


def products(cut: Any) -> Any:
    """Products of a warp in a turn."""
    return cut.met * cut.parts * cut.pairs


def loads(cut: Any) -> Any:
    """Loads of 16 bytes a thread of a warp in a turn."""
    first, last = cut.read_rows
    return (last - first) * cut.parts * cut.pixels * cut.pairs // (16 if cut.sparse else 8)


def bands(cut: Any) -> Any:
    """Registers of a thread with the bands of its filters."""
    return cut.kernel[0] * cut.parts * cut.pixels // 4 * cut.pairs


def registers(cut: Any) -> Any:
    """Registers of a thread: sums, bands, pixels, and others."""
    return bands(cut) + (4 * cut.rows + 6) * cut.pairs + _OTHERS


def _count(p: Conv, tile: Any) -> tuple[Any, Any]:
    """Tiles of the images, and blocks side by side for all channels."""
    extents = (p.batch, *p.result_image, p.channels)
    sizes = (tile.images_per_mma, tile.high, tile.wide, tile.channels)
    *tiles, beside = (-(-n // size) for n, size in zip(extents, sizes, strict=True))
    return math.prod(tiles), beside


def _turned(p: Conv, tile: Any) -> tuple[Array, Any]:
    """The same in as many blocks as SMs hold at once, twice as many, or of two tiles each; and as
    they would hold if compilers did with fewer registers, as an option makes them do. The
    microseconds that they are predicted to take come first."""
    count, beside = _count(p, tile)
    most = np.where(tile.images_per_mma <= p.batch, count, 1)
    resident = np.stack([_resident(p, tile, spared) for spared in (0, _SPARED)], axis=1)
    resident[:, 1] *= resident[:, 1] != resident[:, 0]
    filled = np.maximum(resident, 1) * MACHINE.sms
    even = [-(-(count * beside)[:, None] // (waves * filled)) for waves in (1, 2)]
    turns = np.sort(np.stack([np.full_like(filled, 2), *even], axis=2), axis=2)
    some = (turns >= tile.stages[:, None, None]) & (turns <= most[:, None, None])
    some[:, :, 1:] &= turns[:, :, 1:] != turns[:, :, :-1]
    alone = tile.stages == 1
    turns[alone], some[alone] = 1, (True, False, False)
    which, spared, turn = np.nonzero(some & (resident > 0)[:, :, None])
    micros = _micros(p, tile, which, turns[which, spared, turn], resident[which, spared])
    return micros, pick(tile, which, turns=turns[which, spared, turn])


def _resident(p: Conv, tile: Any, spared: int = 0) -> Array:
    """Blocks that an SM holds, of threads with ``spared`` registers less than they are predicted to
    take; 0 where it cannot hold one."""
    cut: Any = pair_cut(p, tile)
    rows, columns = cut.seen(tile.high, tile.wide)
    pixels, results = rows * columns, tile.high * tile.wide
    numbers = tile.stages * pixels * tile.channels + results * (tile.channels + _PIECE)
    warps = tile.down * tile.across * tile.lots
    space = 2 * tile.images_per_mma * numbers
    resident = occupancy(MACHINE, warps, registers(cut) - spared, space)
    return np.where(np.maximum(rows, columns) > LARGEST, 0, resident)


def load_passes(tile: Any, columns: Array, rows: Array, stride: tuple[int, int]) -> Array:
    """How many times as long as it might a warp's load of pixels takes, for banks that threads
    conflict: of boxes of that width and height."""
    pixel = tile.channels * 2
    # Threads whose bytes are read at once, as those of others are; words as the first of each.
    lane = np.arange(16)[None, :] % (128 // (2 * tile.own))[:, None]
    strips, groups, swizzle = (x[:, None] for x in (tile.strips, tile.groups, tile.swizzle))
    group, strip, image = lane // 4 % groups, lane // 4 // groups % strips, lane // 4 // groups
    row = image // strips * rows[:, None] + strip * (tile.rows * stride[0])[:, None]
    column = group * (tile.outputs * stride[1]) + lane % 4
    if isinstance(tile, SparsePairTile):
        column += lane & 4  # threads of odd rows read other pixels first
    at = (row * columns[:, None] + column) * pixel[:, None]
    at ^= np.where(swizzle > 0, at >> 3 & swizzle - 16, 0)
    return bank_conflicts(at, 4)


def _micros(p: Conv, tile: Any, which: Array, turns: Array, resident: Array) -> Array:
    """The predicted microseconds of tiles ``which``, with ``turns`` each, of which ``resident`` are
    in an SM."""
    cut: Any = pair_cut(p, tile)
    height, width = p.result_image
    count, beside = _count(p, tile)
    rows, columns = cut.seen(tile.high, tile.wide)
    warps = tile.down * tile.across * tile.lots
    step = p.stride if p.pass_ == "forward" else (1, 1)
    read = loads(cut) * load_passes(tile, columns, rows, step)
    made = 12 * bands(cut)  # instructions for a warp's bands
    stored = tile.images_per_mma * tile.high * tile.wide * tile.channels // (64 * warps)
    others = 6 * tile.rows * tile.pairs + stored
    multiplied = products(cut) * PRODUCT[cut.pixels] / PRODUCT[8]
    work = busy(np.rint(multiplied), read, others)
    written = p.batch * height * width * p.channels * 2
    # Short rows take as long as longer ones.
    box = tile.images_per_mma * rows * columns * np.maximum(tile.channels * 2 + 12, 80)
    cache = (count * beside * box + written) / CACHE
    moved = p.batch * math.prod(cut.image) * p.channels * 2 + written
    memory = moved / MEMORY * np.where(beside > 1, 1.15, 1.0)

    blocks = -(-count[which] // turns) * beside[which]
    waves = blocks / (resident * MACHINE.sms)
    issue = warps[which] * ((count * beside * work)[which] + blocks * made[which] * ISSUE)
    issue *= (1 + 5 / (resident * warps[which])) / MACHINE.clock / MACHINE.sms
    alone = np.where(resident == 1, 1.4, 1.0)  # nothing moves while one block computes
    issue, cache, memory = (x * alone for x in (issue, cache[which], memory[which]))
    waits = np.where(tile.stages == 1, 1.5, 1.0)[which]
    return np.asarray(micros(issue, cache, memory, waves, waits, resident))
