"""Convolution as a product of matrices on the CUDA cores of any GPU, at full precision, and the
tiles that are worth trying, the best guess first.

A block computes ``rows`` output channels of a group by ``columns`` windows from tiles in shared
memory, a thread some neighbouring rows by groups of four columns, which it reads as vectors.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import gcd

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.schedule.matmul import Whole
from tilewright.target.devices import COMMON_SHARED, H200, REGISTERS, SCHEDULERS, WARP
from tilewright.te import Tensor
from tilewright.topi.gpu.conv2d_products import begin_products
from tilewright.topi.gpu.register_model import divisor
from tilewright.topi.parameters import flag

#: Neighbouring columns of a thread.
LANES = 4


@dataclass(frozen=True)
class LaneTile:
    """A block computes ``rows`` by ``columns`` sums, over ``depth`` products at once, with
    ``down`` by ``across`` threads, which divide ``rows`` and a quarter of ``columns``; tiles are
    loaded ``stages - 1`` ahead. ``implicit`` is as in
    :class:`~tilewright.topi.gpu.conv2d_mma.MmaTile`. ``chunks`` blocks share the products of a
    sum, which another kernel adds."""

    rows: int = 64
    columns: int = 128
    depth: int = 16
    down: int = 8
    across: int = 16
    stages: int = 1
    implicit: int = flag()
    chunks: int = 1

    @property
    def whole(self) -> Whole:
        """What the declaration's matrices are to be filled up to."""
        return self.rows, self.columns, self.depth * self.chunks

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block, of numbers of 32 bits."""
        return 4 * self.stages * self.depth * (self.rows + self.columns)


def schedule_conv2d_lanes(output: Tensor, tile: LaneTile = LaneTile()) -> Schedule:
    """The schedule of a program of one sum of products, and of what is fused to it;
    see :func:`~tilewright.topi.fusion.find_products`."""
    found = begin_products(output, tile, tile.chunks)
    s, out, total = found.schedule, found.out, found.schedule[found.product]
    tx = te.thread_axis((0, tile.across), "threadIdx.x")
    ty = te.thread_axis((0, tile.down), "threadIdx.y")
    turns = tile.columns // (tile.across * LANES)
    m, p = found.tile
    down, m = out.split(m, factor=min(tile.rows // tile.down, found.rows))
    p, lane = out.split(p, factor=LANES)
    turn, p = out.split(p, factor=tile.across)
    out.reorder(turn, down, p, m, lane)
    out.bind(turn, te.thread_axis((0, turns), "vthread", name="turn"))
    out.bind(down, ty)
    out.bind(p, tx)
    out.unroll(m)
    if found.pixels % LANES == 0 and turns == 1:
        out.vectorize(lane)
    else:
        out.unroll(lane)

    total.set_scope("local")
    total.compute_at(out, p)
    left = s.cache_read(found.weights, "local", [found.product])
    right = s.cache_read(found.columns, "local", [found.product])
    *outer, m, p = total.op.axis
    (k,) = total.op.reduce_axis
    total.align_bounds(m, tile.rows // tile.down)
    total.align_bounds(p, LANES)
    step, k = total.split(k, factor=tile.depth)
    total.reorder(*outer, step, k, m, p)
    total.unroll(k, m, p)
    for tensor in (left, right):
        stage = s[tensor]
        stage.compute_at(total, k)
        *outer, last = stage.op.axis
        if tensor is left:  # whose rows lie side by side
            last, lane = stage.split(outer.pop(), factor=gcd(tile.rows // tile.down, LANES))
            stage.reorder(*outer, stage.op.axis[-1], last, lane)
            stage.unroll(*outer, stage.op.axis[-1], last)
        else:
            lane = last
            stage.unroll(*outer)
        stage.vectorize(lane)
    for tensor in (found.weights, found.columns):
        stage = s[tensor]
        found.copy(tensor, (ty, tx), tile.depth, turned=True)
        stage.set_scope("shared")
        stage.compute_at(total, step)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
    return s


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
