"""The tiles of products of matrices on CUDA cores that are worth trying, the best guess first."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import gcd

from tilewright.target.devices import COMMON_SHARED, H200, REGISTERS, SCHEDULERS, WARP
from tilewright.topi.gpu.conv2d_lanes import LANES, LaneTile
from tilewright.topi.gpu.register_model import divisor

#: Sums of a thread, at most, blocks that share a sum, and tiles that are worth trying.
_SUMS, _CHUNKS, _MOST = 64, (2, 3, 4, 6, 8, 12, 16, 24, 32, 48), 48
#: Cycles that a block waits in a step for what it copies; instructions of a load of four columns,
#: for the banks that it keeps busy, of what copies a number of the weights, and one of the columns,
#: one of the same taps in each step, and one in a vector.
_WAIT, _LOAD, _WEIGHT, _COLUMN, _SAME, _VECTOR = 240.0, 13.0, 8.0, 16.0, 13.0, 7.0
#: Instructions of a step beside these; registers of a thread beside sums and what it multiplies.
_BARRIERS, _OTHERS = 9.0, 36
#: Warps of an SM beside which there is always one that may issue; cycles of storing a sum.
_FEW, _STORE = 1.2, 112.0
#: Cycles of a launch, and bytes of parts of sums that memory moves for an SM in a cycle.
_LAUNCH, _BYTES = 8900.0, 8.0
#: Products of a step; of steps of whole windows, taps that repeat, at most, and products.
_DEPTHS = (8, 16)
_WINDOW, _LEAST, _DEEPEST = 18, 7, 18
#: Threads of an SM, and blocks, at most.
_THREADS, _BLOCKS = 2048, 32


@functools.lru_cache(256)
def conv2d_lanes_tiles(
    filters: int,
    groups: int = 1,
    windows: int = 2**20,
    depth: int = 2**10,
    units: int = H200.sms,
    taps: tuple[int, ...] = (),
    run: int = 1,
) -> list[LaneTile]:
    """Tiles for convolutions with given output channels, groups and windows, on a GPU with as many
    SMs, the fastest by :func:`lane_cycles` first.

    Sums have ``depth`` products, by the axes of ``taps``: channels before the taps of a window.
    ``run`` windows are contiguous in memory.
    """
    inner = itertools.accumulate(reversed(taps[1:]), operator.mul)
    row = max((n for n in inner if n <= _WINDOW), default=1)
    what = filters, groups, windows, depth, units, row, run
    found: dict[LaneTile, float] = {}
    for tile in _tiles(filters // groups, groups > 1, row):
        parts = [n for n in _CHUNKS if 2 * tile.depth * n <= depth]
        split = [(lane_cycles(t, *what), t) for n in parts if (t := replace(tile, chunks=n))]
        found[tile] = lane_cycles(tile, *what)
        if split:
            least, tile = min(split, key=lambda pair: pair[0])
            found[tile] = least
    best = sorted(found, key=lambda t: found[t])[:_MOST]
    staged = (
        replace(tile, implicit=implicit, stages=stages)
        for tile in best
        for implicit, stages in ((1, 1), (1, 2), (0, 2), (0, 3))
    )
    return [tile for tile in staged if tile.shared <= COMMON_SHARED]


def _tiles(own: int, grouped: bool, taps: int) -> Iterator[LaneTile]:
    repeat = range(taps * -(-_LEAST // taps), _DEEPEST + 1, taps) if taps > 1 else ()
    heights = [rows for rows in (8, 16, 32, 64, 128) if rows < 2 * own]
    if grouped:
        heights = [rows for rows in heights if own % rows == 0]
    depths, heights = dict.fromkeys((*_DEPTHS, *repeat)), heights or [divisor(own, 16)]
    for rows, columns, depth in product(heights, (256, 128, 64, 32), depths):
        most = gcd(rows, 8)
        for each, across in product((most, gcd(most, 4)), (8, 16, 32, 64)):
            threads, sums = rows // each * across, each * columns // across
            whole = columns % (across * LANES) == 0
            if depth not in _DEPTHS and not _repeats(columns, depth, threads, taps):
                continue
            if whole and sums <= _SUMS and WARP <= threads <= 256:
                yield LaneTile(rows, columns, depth, rows // each, across)


def _repeats(columns: int, depth: int, threads: int, taps: int) -> bool:
    """Whether what a thread copies in a step is of the same taps in each."""
    apart = max(1, threads // columns)
    whole = (threads % columns == 0) or (columns % threads == 0)
    return whole and depth % apart == 0 and (depth // apart) % taps == 0


def lane_cycles(
    t: LaneTile,
    filters: int,
    groups: int,
    windows: int,
    depth: int,
    units: int,
    taps: int,
    run: int,
) -> float:
    """Cycles that a GPU of ``units`` SMs takes for the products of :func:`conv2d_lanes_tiles`,
    which after ``taps`` of them are of the same taps again; fitted to 2,400 kernels of three
    networks on an H200, which it misses by 8% in the mean."""
    tiles = groups * -(-filters // groups // t.rows) * -(-windows // t.columns)
    steps, own = -(-depth // (t.depth * t.chunks)), -(-tiles * t.chunks // units)
    threads, rows, columns = t.down * t.across, t.rows // t.down, t.columns // t.across
    warps, sums = -(-threads // WARP), rows * columns
    multiplied = t.depth * (sums + _LOAD * columns / LANES)
    # Where a thread has the same taps in each step, all that depends on them is computed once.
    same = taps > 1 and _repeats(t.columns, t.depth, threads, taps)
    each = _SAME if same else _COLUMN if run % LANES else _VECTOR
    copied = t.depth * (_WEIGHT * t.rows + each * t.columns) / threads
    held = sums + rows + columns + _OTHERS
    fit = min(REGISTERS // (held * threads), _THREADS // threads, _BLOCKS)
    beside = max(1, min(own, fit))
    issued = beside * warps * (multiplied + copied + _BARRIERS) / SCHEDULERS
    issued *= 1 + _FEW / (beside * warps)
    step = math.hypot(issued, _WAIT + multiplied + copied)
    found = own / beside * steps * step + _STORE * sums + _LAUNCH
    if t.chunks > 1:
        found += _LAUNCH + 4 * (t.chunks + 1) * filters * windows / (_BYTES * units)
    return found
