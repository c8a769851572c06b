"""Which problems suit products of tiles, and the tiles worth trying for one, after the cycles that
they are predicted to take.

A core multiplies two tiles in 16 cycles and has the result after 52 (Intel's optimization manual,
chapter on AMX), so that it is busy with four sums in flight. A tile is loaded in 8 cycles from the
first-level cache.
"""

from __future__ import annotations

import math
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.cpu.flat_tiles import reading
from tilewright.topi.cpu.flat_tiles import suits as is_flat_windows
from tilewright.topi.nn.byte_dots import constant
from tilewright.topi.nn.matrix_tiles import SIDE, TileCut
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.matrix_tiles import BandTile

#: Tiles down and across that leave registers for what they are made of.
_SHAPES = ((2, 2), (4, 1), (1, 4), (3, 1), (2, 1), (1, 2), (6, 1), (1, 1))
_MULTIPLY, _LATENCY = 16, 52
#: Cycles of a tile that is loaded from the first-level cache, from the second, and where rows
#: overlap and begin anywhere; how much of that products do not hide.
_LOAD, _LOAD_FAR, _LOAD_OVERLAPPING, _SEEN = 8, 40, 120, 0.4
#: Cycles of a tile's sums from its register to the result, and how many more where they leave the
#: first-level cache, of which twice as many where they leave the second; of 64 bytes of the image
#: that are stored, and of those of the filter that are packed; what these take longer where
#: channels are not last.
_STORE, _STORE_FAR, _LINE, _PACKED, _TURNED = 130.0, 40.0, 3.0, 16.0, 8.0
#: Of sums of few products, how much longer that takes for each other tile that is held with it, and
#: what those that are held together take beside.
_BESIDE, _BEGIN = 10.0, 30.0
#: Bytes that stay in the caches of the first and the second level, and cycles that a task takes
#: beside.
_FIRST, _SECOND, _TASK = 2**15, 2**20, 150.0
#: Vectors of products that take a cycle, the unit of prices.
_A_CYCLE = 2.0


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


def band_times(p: Convolution | Gemm, target: Target) -> dict[BandTile, float]:
    """For :func:`~tilewright.topi.sketches.matrix_tiles.schedule_matrix_tiles`, with what each
    takes."""
    cut, found = TileCut(p), {}
    most = -(-cut.groups[1] // SIDE)
    for (down, across), parts in product(_SHAPES, (1, 2, 4, 8)):
        if across > most or parts > -(-most // across):
            continue
        for band in _bands(cut, down):
            tile = BandTile(down, across, band, parts)
            found[tile] = band_price(p, tile, target)
    return found


def _bands(cut: TileCut, down: int) -> list[int]:
    """Sizes of bands, each of other rows."""
    if cut.windows is None:
        whole = -(-cut.rows // (SIDE * down))
        return [n for n in (1, 2, 4, 7, 14, 28) if n < whole] + [whole]
    sizes = (1, 2, 4, 8, 16, 32, 64, cut.rows)
    return list(dict.fromkeys(cut.rows_of(n, down) for n in sizes if n <= cut.rows))


def band_price(p: Convolution | Gemm, t: BandTile, target: Target) -> float:
    """The time of a tile in that of a vector of products, with what reading the filter takes, to be
    compared with other schedules."""
    from tilewright.runtime.llvm_host import thread_count

    cut, threads = TileCut(p), thread_count(target)
    rows = cut.rows_of(t.band, t.down)
    bands, tiles = -(-cut.rows // rows), -(-min(rows, cut.rows) * cut.row // SIDE)
    tiles = -(-tiles // t.down) * t.down  # of a task
    count, per, _ = cut.groups
    steps = math.prod(cut.taps) * cut.blocks
    columns = -(-per // (SIDE * t.across))
    mine = -(-columns // t.parts)  # groups of tiles across of a task
    batch = 1 if isinstance(p, Gemm) else p.batch
    tasks = -(-batch * bands * count * t.parts // threads)
    last = p.layout.endswith("C")
    pixels = min(tiles * SIDE + cut.reach, cut.pixels)
    phases = 1 if cut.windows is None else math.prod(cut.windows.stride)
    lines = pixels * phases * cut.blocks if cut.joined == 1 else pixels * cut.unit * phases / 64
    held, sums = 64 * lines, tiles * t.across * SIDE * 64
    # Taps read the same pixels one after the other.
    left = _LOAD + (_LOAD_FAR - _LOAD) / math.prod(cut.taps) * (held > _FIRST)
    loads = t.down * (left if cut.joined == 1 else _LOAD_OVERLAPPING)
    loads += t.across * (_LOAD_FAR if steps * t.across * 1024 > _FIRST else _LOAD)
    sums_held = t.down * t.across
    step = max(sums_held * _MULTIPLY, _LATENCY) + _SEEN * loads
    own = held + sums + min(rows, cut.rows) * cut.row * -(-per // t.parts) * dtype(p.dtype).bytes
    store = _STORE + _STORE_FAR * ((own > _FIRST) + 2 * (held + sums > _SECOND))
    store += _STORE * _TURNED * (not last)
    group = steps * step + sums_held * store
    if steps * _MULTIPLY < _STORE:  # the epilogue of those before hides what products wait for
        store += _BESIDE * (sums_held - 1)
        group = sums_held * (steps * _MULTIPLY + store) + steps * _SEEN * loads + _BEGIN
    work = tiles // t.down * mine * group
    line = _LINE * (2 if held > _FIRST else 1) if last else _LINE * _TURNED * SIDE
    whole = count * columns * t.across * steps * 1024
    packed = 0.0 if constant(p) else whole / 64 * _PACKED / threads
    cost = tasks * (work + lines * line + _TASK) + packed
    return _A_CYCLE * cost + reading(whole, count * t.parts, int(held), tasks)
