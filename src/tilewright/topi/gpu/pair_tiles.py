"""The tiles worth trying for products of pairs of channels, best guess first.

The guess is a time (:mod:`~tilewright.topi.gpu.staged_times`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.columns import Array, columns
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.gpu.machine import CHANNELS, is_planar, slides
from tilewright.topi.gpu.staged_times import Work, brought, in_turns, spare_of
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.pair_cuts import pair_cut
from tilewright.topi.pieces.strip_tiles import CHANNELS as OF_A_PAIR
from tilewright.topi.pieces.strip_tiles import PairTile, SparsePairTile

#: Registers of a thread beside what it multiplies, and at most.
_OTHERS, _MOST_REGISTERS = 40, 250
#: Products written out at most; ways to count the rows of a product for as many rows of results.
_CODE, _WARPS = 1024, 6
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
    tile: Any = columns(kind, _warps(p, kind))
    # A block with more images than there are has one tile.
    longest = np.where(tile.images_per_mma <= p.batch, np.inf, 1)
    return in_turns(tile, work(p, tile), longest)


def work(p: Conv, tile: Any) -> Work:
    """What blocks of tiles do."""
    cut: Any = pair_cut(p, tile)
    rows, across = cut.seen(tile.high, tile.wide)
    results, warps = tile.high * tile.wide, tile.down * tile.across * tile.lots
    sizes = (tile.images_per_mma, tile.high, tile.wide, tile.channels)
    extents = (p.batch, *p.result_image, p.channels)
    *tiles, beside = (-(-n // size) for n, size in zip(extents, sizes, strict=True))
    stored = tile.images_per_mma * results * tile.channels // (64 * warps)
    step = p.stride if p.pass_ == "forward" else (1, 1)
    images = math.prod(p.result_image) + math.prod(cut.image)
    return Work(
        warps=warps, registers=registers(cut),
        staged=2 * tile.images_per_mma * rows * across * tile.channels,
        kept=2 * tile.images_per_mma * results * (tile.channels + _PIECE),
        line=math.prod(tiles), beside=beside,
        products=products(cut) * PRODUCT[cut.pixels] / PRODUCT[8],
        loads=loads(cut) * load_passes(tile, across, rows, step),
        issued=6 * tile.rows * tile.pairs + stored, once=12 * bands(cut),
        brought=brought(tile.images_per_mma * rows * across, tile.channels * 2),
        moved=2 * p.batch * p.channels * images * np.where(beside > 1, 1.15, 1.0),
        fits=np.maximum(rows, across) <= LARGEST,
        spare=spare_of(extents[1:] + extents[:1], sizes[1:] + sizes[:1], (rows, across)),
    )  # fmt: skip


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
        (rows, *combined[k], pairs, 1, 1, lot)
        for (rows, pairs), best_of in zip(some, least, strict=True)
        for k in best_of
        for lot in lots[pairs]
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
