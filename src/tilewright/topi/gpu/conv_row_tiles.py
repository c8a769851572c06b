"""The tiles worth trying for convolutions whose pixels are normalised, best guess first.

The guess is a time: what threads multiply and load from the first-level cache, and what each waits
for by itself.
"""

from __future__ import annotations

import functools
import math
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.target.devices import WARP, WIDEST
from tilewright.target.target import Target
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.conv_program import ConvProgram
from tilewright.topi.pieces.rows import rows_of
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.conv_rows import ConvRowTile

#: Pixels of a thread, and channels of a vector; threads of a block at least, and at most.
_COLUMNS, _VECTORS, _LEAST, _MOST = (1, 2, 4, 7, 8), (2, 4, 8), 64, 512
#: Registers of sums and of what a row of taps reads.
_HELD = 96
#: Microseconds of a kernel that does nothing, of a warp's row of taps until it is there, and of a
#: reduction among its threads.
_BEGIN, _ROW, _REDUCED = 2.0, 0.12, 0.12
#: Cycles of an SM for 32 loads of 8 bytes.
_LOAD = 2.0

#: Microseconds of a depthwise convolution by itself, and for a million products more.
_ALONE, _MILLION = 1.9, 0.043


def depthwise_time(p: Conv) -> float:
    """Microseconds that a kernel of its own takes for a convolution within a network."""
    return _ALONE + _MILLION * 1e-6 * p.nominal_flops / 2


def suits_conv_rows(p: Problem) -> bool:
    """Whether it is a depthwise convolution with channels last in 16 bits, and what is made of a
    pixel's channels and of reductions of them, without what is added to its results."""
    if not isinstance(p, ConvProgram) or dtype(p.dtype).bits != 16:
        return False
    conv = p.inner
    plain = conv.is_depthwise and conv.channels_last and conv.rank == 2 and conv.multiplier == 1
    if not plain or "output" in p.epilogue_shapes or p.result.shape != conv.result.shape:
        return False
    rows = rows_of(p.program)
    return rows is not None and rows.rank == 3 and rows.whole and bool(_tiles(p))


def conv_row_tiles(p: ConvProgram, target: Target) -> list[ConvRowTile]:
    """For :func:`~tilewright.topi.sketches.conv_rows.schedule_conv_rows`, the best guess first."""
    found = _tiles(p)
    return sorted(found, key=lambda tile: found[tile])


def conv_row_price(p: ConvProgram, tile: ConvRowTile, target: Target) -> float:
    """What a tile is predicted to take, in microseconds."""
    return _tiles(p)[tile]


@functools.lru_cache(maxsize=64)
def _tiles(p: ConvProgram) -> dict[ConvRowTile, float]:
    """Tiles, and what they are predicted to take."""
    conv, found = p.inner, dict[ConvRowTile, float]()
    rows, (high, wide), (down, across) = rows_of(p.program), conv.out_image, conv.kernel
    assert rows is not None
    size = dtype(p.dtype).bytes
    for columns, vector in product(_COLUMNS, _VECTORS):
        if conv.channels % vector or vector * size > WIDEST or columns >= 2 * wide:
            continue
        vectors, seen = conv.channels // vector, (columns - 1) * conv.stride[1] + across
        for turns in (1, 2, 3, 4):
            lanes = vectors // turns
            held = columns * vector * (1 + turns / 2) + (seen + across) * vector / 2
            if vectors % turns or lanes > _MOST or held > _HELD:
                continue
            groups = max(1, _LEAST // lanes)
            if groups > 1 and lanes & (lanes - 1):
                groups = 1
            threads, pixels = groups * lanes, -(-wide // columns) * high * conv.batch
            warps = -(-threads // WARP)
            blocks = -(-pixels // groups)
            own = down * turns * (columns * across * vector + (seen + across) * (1 + vector))
            loads = down * turns * (seen + across) * _LOAD * vector * size / 8
            busy = -(-blocks // MACHINE.sms)
            cycles = max(busy * warps * own / 4, busy * warps * loads, own)
            waits = down * turns * _ROW + rows.reductions * columns * _REDUCED
            rounds = max(1.0, busy * threads / 1024)
            found[ConvRowTile(columns, groups, lanes, vector)] = (
                _BEGIN + cycles / MACHINE.clock + rounds * waits * math.sqrt(1 / rounds)
            )
    return found
