"""The tiles worth trying for :mod:`~tilewright.topi.sketches.row_bands`, best guess first.

The guess is a time (:mod:`~tilewright.topi.gpu.staged_times`), of tiles that registers have.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.target.devices import STATIC_SHARED
from tilewright.topi.columns import combinations, pick
from tilewright.topi.gpu.machine import MACHINE, is_planar
from tilewright.topi.gpu.staged_times import Work, spare_of, worth_trying
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.row_band_cuts import DEPTH, ROWS, SHARES, RowBands, RowBandTile

#: Registers of a thread beside its sums and what it loads, and how many of these count to these
#: where nothing is loaded ahead; most of a thread.
_OTHERS, _FEW, _MOST_HELD = 44, 24, 208
#: Products written out at most.
_CODE = 600
#: Instructions of a warp for a product and what belongs to it, and for a tile; how much longer they
#: take that no other warp hides, for each tile that is not loaded ahead.
_PRODUCT, _TILE, _LATENCY = 9, 60, 12.0


def suits_bands(p: Conv) -> bool:
    """Whether the schedule is for a gradient: one of 16 bits, with strides of at most two, whose
    filter reaches no further than eight rows of a phase of x: as many more than one of dy has a
    matrix."""
    return (
        is_planar(p)
        and max(p.stride) <= 2
        and p.out_image[1] > 1  # of one column nothing is moved
        and (p.kernel_h - 1) * p.dilation[0] // p.stride[0] <= ROWS
    )


@functools.lru_cache(64)
def gradient_band_tiles(p: Conv) -> Sequence[RowBandTile]:
    """Tiles that fit registers and shared memory: in as many blocks as SMs hold at once, or some
    more or less."""
    blocks, columns, warps, stages = combinations((1, 2, 4, 7), (16, 32, 64), (8, 4), (1, 2, 3))
    tile = RowBandTile(blocks, columns, warps, stages, stages)
    done = work(p, tile)
    resident = done.resident(stages)
    which, turn = combinations(np.flatnonzero(resident), range(4))
    fit, done = resident[which], done.pick(which)
    wanted = np.choose(turn, [fit, np.maximum(1, fit - 1), 2 * fit, 3 * fit]) * MACHINE.sms
    chunks = np.clip(wanted // p.out_channels, 1, done.line)
    tile = pick(tile, which, chunks=chunks)
    return worth_trying(tile, done.micros(-(-done.line // chunks), tile.stages))


def work(p: Conv, tile: Any) -> Work:
    """What blocks of tiles do."""
    (height, _), (sh, sw) = p.out_image, p.stride
    blocks, columns, warps, stages = tile.blocks, tile.columns, tile.warps, tile.stages
    cut: Any = RowBands(p, blocks, columns)
    products, held = blocks * columns // DEPTH * p.kernel_w * sh, _held(cut, stages)
    fits = ROWS * blocks < 2 * max(ROWS, height)
    fits &= columns < 2 * max(DEPTH, -(-p.image[1] // sw))
    fits &= (products * stages <= _CODE) & (held <= _MOST_HELD)
    fits &= warps * p.kernel_w * sh * 512 <= STATIC_SHARED
    rows = (blocks + 1) * sh * sw + blocks  # times eight, of ``columns`` columns
    seen = ROWS * columns * rows + ROWS * blocks * SHARES * sum(cut.around)
    return Work(
        warps=warps, registers=held, staged=0, kept=0,
        line=-(-p.batch * math.prod(cut.grid) // warps), beside=p.out_channels, products=0, loads=0,
        issued=products * _PRODUCT + _TILE, once=0, brought=2 * warps * seen, moved=p.bytes,
        fits=fits, latency=_LATENCY / stages,
        spare=spare_of((height, p.image[1]), (cut.rows, columns * sw), (ROWS * rows, columns)),
    )  # fmt: skip


def _held(cut: Any, stages: Any) -> Any:
    """The registers of a thread: its sums, what it loads, and others."""
    p, (sh, sw) = cut.problem, cut.problem.stride
    # What is loaded alone, as in rows of an odd width, has a register alone.
    of_x, of_dy = (1 if width % 2 else 2 for width in (p.image[1], p.out_image[1]))
    x, dy = sh * sw * cut.share / of_x, (cut.share + sum(cut.around)) / of_dy
    loaded = (cut.blocks + 1) * x + cut.blocks * dy
    # Two blocks of x and one of dy, and as many more as fit: of halves, all.
    loads = np.maximum(2 * x + dy - _FEW, loaded if of_x == 1 else 0)
    loads = np.where(stages > 1, stages * loaded, loads)
    return 8 * np.ceil((4 * p.kernel_w * sh + _OTHERS + loads) / 8).astype("int64")
