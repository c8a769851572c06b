"""Which problems suit products of tiles, and the tiles worth trying for one, after the cycles that
they are predicted to take.

A core multiplies two tiles in 16 cycles and has the result after 52 (Intel's optimization manual,
chapter on AMX), so that it is busy with four sums in flight. A tile is loaded in 8 cycles from the
first-level cache.
"""

from __future__ import annotations

import math
from itertools import product

from tilewright.target.target import Target
from tilewright.topi.cpu.flat_tiles import reading
from tilewright.topi.cpu.flat_tiles import suits as is_flat_windows
from tilewright.topi.nn.byte_dots import constant
from tilewright.topi.nn.matrix_tiles import SIDE, BandTile, TileCut
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.problem import Problem

#: Tiles down and across that leave registers for what they are made of.
_SHAPES = ((2, 2), (4, 1), (1, 4), (3, 1), (1, 3), (1, 2), (2, 1), (6, 1), (1, 1))
_MULTIPLY, _LATENCY, _LOAD, _LOAD_FAR = 16, 52, 8, 24
#: Cycles of a tile's sums from its register to the result, of 64 bytes of the image that are
#: stored, and of those of the filter that are packed; what these take longer where channels are
#: not last.
_STORE, _LINE, _PACKED, _TURNED = 130.0, 3.0, 16.0, 8.0
#: Bytes that stay in the first-level cache, and what a task takes beside.
_FIRST, _TASK = 2**15, 1000.0
#: Vectors of products that take a cycle, the unit of prices.
_A_CYCLE = 2.0
#: How many tiles are worth trying.
_MOST = 24


def suits(p: Problem) -> bool:
    """Whether it is of bfloat16 with sums in float32, or of 8-bit integers, and a product or a
    convolution whose groups fill a tile's columns."""
    if not p.is_quantized and (p.dtype, p.accumulate) != ("bfloat16", "float32"):
        return False
    if isinstance(p, Gemm):
        return p.batch == 1 and p.pass_ == "forward"
    if not isinstance(p, Convolution) or not is_flat_windows(p):
        return False
    return p.groups == 1 or min(p.multiplier, p.channels // p.groups) >= SIDE


def band_tiles(p: Convolution | Gemm, target: Target) -> list[BandTile]:
    """For :func:`~tilewright.topi.sketches.matrix_tiles.schedule_matrix_tiles`, the best guess
    first."""
    found = {}
    phases = 1 if isinstance(p, Gemm) or p.pass_ == "forward" else math.prod(p.stride)
    for (down, across), band, parts in product(_SHAPES, (1, 2, 4, 7, 8, 14, 28, 56), (1, 2, 4, 8)):
        tile = BandTile(down, across, band, parts)
        cut = TileCut(p, tile)
        fours = -(-cut.groups[1] // (SIDE * across))
        if across * SIDE % phases or parts > fours or (across > 1 and fours * across > fours + 3):
            continue
        if band > 1 and TileCut(p, BandTile(down, across, band // 2 or 1, parts)).bands == 1:
            continue
        found[tile] = band_price(p, tile, target)
    return sorted(found, key=lambda tile: found[tile])[:_MOST] or [BandTile(1, 1, 1, 1)]


def band_price(p: Convolution | Gemm, t: BandTile, target: Target) -> float:
    """The time of a tile in that of a vector of products, with what reading the filter takes, to be
    compared with other schedules."""
    from tilewright.runtime.llvm_host import thread_count

    cut, threads = TileCut(p, t), thread_count(target)
    count = cut.groups[0]
    steps = math.prod(cut.taps) * cut.blocks
    columns = cut.columns // t.across
    mine = -(-columns // t.parts)  # groups of tiles across of a task
    batch = 1 if isinstance(p, Gemm) else p.batch
    tasks = -(-batch * cut.bands * count * t.parts // threads)
    # What is multiplied with all else is read from farther away where it is large.
    far = steps * t.across * 1024 > _FIRST
    loads = t.down * _LOAD + t.across * (_LOAD_FAR if far else _LOAD)
    step = max(t.down * t.across * _MULTIPLY, _LATENCY, loads)
    last = p.layout.endswith("C")
    sums = cut.tiles // t.down * mine * (steps * step + t.down * t.across * _STORE)
    sums += 0 if last else cut.tiles * mine * t.across * _STORE * _TURNED
    pixels = cut.tiles * SIDE + cut.pixels - (cut.bands - 1) * cut.band * cut.row
    pixels = min(pixels, cut.pixels)
    phases = 1 if cut.windows is None else math.prod(cut.windows.stride)
    image = pixels * phases * cut.blocks * (_LINE if last else _LINE * _TURNED * SIDE)
    whole = count * columns * t.across * steps * 1024
    packed = 0.0 if constant(p) else whole / 64 * _PACKED / threads
    cost = tasks * (sums + image + _TASK) + packed
    return _A_CYCLE * cost + reading(whole, count * t.parts, int(pixels * 64 * cut.blocks), tasks)
