"""The tiles of products of matrices on CUDA cores that are worth trying, the best guess first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.target.devices import H200, REGISTERS, WARP
from tilewright.topi.gpu.conv2d_lanes import LANES, LaneTile
from tilewright.topi.gpu.register_model import divisor

#: Sums of a thread, at most, and blocks that share a sum.
_SUMS, _CHUNKS = 64, (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
#: Cycles of an SM that a block waits in each of its steps, for what it copies and for its own;
#: instructions of a load of a vector, of what copies a number of the weights, of the columns;
#: registers of a thread beside sums and what it multiplies.
_WAIT, _LOAD, _WEIGHT, _COLUMN, _OTHERS = 900.0, 3.0, 6.0, 20.0, 40
#: Cycles of a launch, and bytes that memory moves for an SM in a cycle.
LAUNCH, BYTES = 4000.0, 16.0
#: Threads of an SM, and blocks, at most.
_THREADS, _BLOCKS = 2048, 32


def conv2d_lanes_tiles(
    filters: int,
    groups: int = 1,
    windows: int = 2**20,
    depth: int = 2**10,
    units: int = H200.sms,
) -> list[LaneTile]:
    """Tiles for convolutions with given output channels, groups and windows, ``depth`` products a
    sum, on a GPU with as many SMs, the fastest by :func:`lane_cycles` first."""
    found = {}
    for tile in _tiles(filters // groups, groups > 1):
        for chunks in (1, *_CHUNKS):
            split = replace(tile, chunks=chunks)
            if chunks == 1 or (tile.implicit and 2 * tile.depth * chunks <= depth):
                found[split] = lane_cycles(split, filters, groups, windows, depth, units)
    best: dict[LaneTile, LaneTile] = {}  # of each number of chunks one more than all in one
    for tile in sorted(found, key=lambda t: found[t]):
        if tile.chunks > 1:
            best.setdefault(replace(tile, chunks=1), tile)
    return [
        t for t in sorted(found, key=lambda t: found[t])
        if t.chunks == 1 or best[replace(t, chunks=1)] is t
    ]  # fmt: skip


def _tiles(own: int, grouped: bool) -> Iterator[LaneTile]:
    heights = [rows for rows in (8, 16, 32, 64, 128) if rows < 2 * own]
    if grouped:
        heights = [rows for rows in heights if own % rows == 0]
    for rows, columns, depth in product(
        heights or [divisor(own, 16)], (256, 128, 64, 32), (8, 16)
    ):
        for each, across in product((8, 4, 2, 1), (8, 16, 32, 64)):
            threads, sums = rows // each * across, each * columns // across
            whole = rows % each == 0 and columns % (across * LANES) == 0
            if not whole or sums > _SUMS or not 32 <= threads <= 256:
                continue
            for implicit, stages in ((1, 1), (1, 2), (0, 2), (0, 3)):
                yield LaneTile(rows, columns, depth, rows // each, across, stages, implicit)


def lane_cycles(
    t: LaneTile, filters: int, groups: int, windows: int, depth: int, units: int
) -> float:
    """Cycles that a GPU of ``units`` SMs takes for a product, as
    :func:`conv2d_lanes_tiles` has it."""
    down, across = -(-filters // groups // t.rows), -(-windows // t.columns)
    blocks, steps = groups * down * across * t.chunks, -(-depth // (t.depth * t.chunks))
    threads = t.down * t.across
    rows, columns = t.rows // t.down, t.columns // t.across
    each = t.depth * (rows * columns + _LOAD * (rows + columns) / LANES)
    each += t.depth * (_WEIGHT * t.rows + _COLUMN * t.columns) / threads
    issued = each * -(-threads // WARP) / 4
    registers = rows * columns + rows + columns + _OTHERS
    fit = min(REGISTERS // (registers * threads), _THREADS // threads, _BLOCKS)
    own = -(-blocks // units)
    beside = max(1, min(own, fit))
    found = math.ceil(own / beside) * steps * max(beside * issued, _WAIT + issued) + LAUNCH
    if t.chunks > 1:
        found += LAUNCH + 8 * t.chunks * filters * windows / (BYTES * units)
    return found
