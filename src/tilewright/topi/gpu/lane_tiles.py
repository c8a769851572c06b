"""The tiles of products of matrices on CUDA cores that are worth trying, the best guess first."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import gcd

from tilewright.target.devices import H200, REGISTERS, SCHEDULERS, WARP
from tilewright.topi.gpu.conv2d_lanes import LANES, LaneTile
from tilewright.topi.gpu.register_model import divisor

#: Sums of a thread, at most, blocks that share a sum, and tiles that are worth trying.
_SUMS, _CHUNKS, _MOST = 64, (2, 3, 4, 6, 8, 12, 16, 24, 32, 48), 48
#: Cycles that a block waits in a step for what it copies; instructions of a load of four columns,
#: for the banks that it keeps busy, of what copies a number of the weights, and one of the columns,
#: and of the barriers of a step; registers of a thread beside sums and what it multiplies.
_WAIT, _LOAD, _WEIGHT, _COLUMN, _BARRIERS, _OTHERS = 450.0, 11.0, 5.0, 16.0, 18.0, 37
#: Warps of an SM beside which there is always one that may issue; how sharply the longer of two
#: times hides the other; cycles of storing a sum.
_FEW, _SHARP, _STORE = 2.4, 2.5, 90.0
#: Cycles of a launch, and bytes of parts of sums that memory moves for an SM in a cycle.
_LAUNCH, _BYTES = 8400.0, 6.0
#: Threads of an SM, and blocks, at most.
_THREADS, _BLOCKS = 2048, 32


@functools.lru_cache(256)
def conv2d_lanes_tiles(
    filters: int,
    groups: int = 1,
    windows: int = 2**20,
    depth: int = 2**10,
    units: int = H200.sms,
) -> list[LaneTile]:
    """Tiles for convolutions with given output channels, groups and windows, ``depth`` products a
    sum, on a GPU with as many SMs, the fastest by :func:`lane_cycles` first."""
    what = filters, groups, windows, depth, units
    found: dict[LaneTile, float] = {}
    for tile in _tiles(filters // groups, groups > 1):
        parts = [n for n in _CHUNKS if 2 * tile.depth * n <= depth]
        split = [(lane_cycles(t, *what), t) for n in parts if (t := replace(tile, chunks=n))]
        found[tile] = lane_cycles(tile, *what)
        if split:
            least, tile = min(split, key=lambda pair: pair[0])
            found[tile] = least
    best = sorted(found, key=lambda t: found[t])[:_MOST]
    return [
        replace(tile, implicit=implicit, stages=stages)
        for tile in best
        for implicit, stages in ((1, 1), (1, 2), (0, 2), (0, 3))
    ]


def _tiles(own: int, grouped: bool) -> Iterator[LaneTile]:
    heights = [rows for rows in (8, 16, 32, 64, 128) if rows < 2 * own]
    if grouped:
        heights = [rows for rows in heights if own % rows == 0]
    for rows, columns, depth in product(heights or [divisor(own, 16)], (256, 128, 64, 32), (8, 16)):
        most = gcd(rows, 8)
        for each, across in product((most, gcd(most, 4)), (8, 16, 32, 64)):
            threads, sums = rows // each * across, each * columns // across
            whole = columns % (across * LANES) == 0
            if whole and sums <= _SUMS and WARP <= threads <= 256:
                yield LaneTile(rows, columns, depth, rows // each, across)


def lane_cycles(
    t: LaneTile, filters: int, groups: int, windows: int, depth: int, units: int
) -> float:
    """Cycles that a GPU of ``units`` SMs takes for the products of
    :func:`conv2d_lanes_tiles`; fitted to 900 kernels of three networks on an H200, of which it
    misses the mean by 7%."""
    tiles = groups * -(-filters // groups // t.rows) * -(-windows // t.columns)
    steps, own = -(-depth // (t.depth * t.chunks)), -(-tiles * t.chunks // units)
    threads, rows, columns = t.down * t.across, t.rows // t.down, t.columns // t.across
    warps, sums = -(-threads // WARP), rows * columns
    multiplied = t.depth * (sums + _LOAD * columns / LANES)
    copied = t.depth * (_WEIGHT * t.rows + _COLUMN * t.columns) / threads
    held = sums + rows + columns + _OTHERS
    fit = min(REGISTERS // (held * threads), _THREADS // threads, _BLOCKS)
    beside = max(1, min(own, fit))
    issued = beside * warps * (multiplied + copied + _BARRIERS) / SCHEDULERS
    issued *= 1 + _FEW / (beside * warps)
    step: float = (issued**_SHARP + (_WAIT + multiplied) ** _SHARP) ** (1 / _SHARP)
    found = own / beside * steps * step + _STORE * sums + _LAUNCH
    if t.chunks > 1:
        found += _LAUNCH + 4 * (t.chunks + 1) * filters * windows / (_BYTES * units)
    return found
