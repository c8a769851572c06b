"""The tiles worth trying for sums of products of boxes over a cluster on Hopper, best guess first.

The guess is that of :mod:`~tilewright.topi.gpu.box_products`, of a part of the steps, and what it
takes to exchange parts and to wait for other blocks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.topi.gpu.box_lines import copying
from tilewright.topi.gpu.box_shapes import boxes_of, turned_shapes
from tilewright.topi.gpu.box_sizes import CHANNELS, Sizes, channels_of, convolution_of, suited
from tilewright.topi.gpu.box_times import rates_of, resident_blocks, time_of
from tilewright.topi.gpu.machine import BARRIERS, MACHINE
from tilewright.topi.gpu.produced_boxes import rows_brought, slower
from tilewright.topi.nn.box_phases import is_phased
from tilewright.topi.nn.box_problems import sliced, widths
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import LANES, ROWS, BoxProductTile
from tilewright.topi.pieces.cluster_sums import lanes_of, parts_bytes, rows_of
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.problem import Problem

#: Blocks of a cluster, and the most blocks, in all, of an SM.
SIZES, _CROWD = (2, 4, 8), 4
#: Warpgroups of a tile whose results are rows.
_GROUPS = (1, 2)
#: Columns of an instruction are a multiple of that.
_LEAST = 8
#: Channels of a tile whose results are rows, at least.
_NARROWEST = 32
#: Steps that are in shared memory at once, and the most of a block of which all are.
_STAGES, _ALL = 6, 9
#: Microseconds in which blocks meet whose factors have 16 bits, and others; and bytes that one
#: reads from others in one.
_MEETING, _MEETING_OTHERS, _EXCHANGED = 1.35, 1.8, 45_000
#: Microseconds that blocks of 16 bits take more than predicted whose channels are rows, of one
#: warpgroup, and of several, which hide from each other what they wait for (ConvNeXt-T, batch 8).
_ALONE = (0.3, -0.8)
#: How many times as long as predicted they take where rows begin within sectors.
_WITHIN = 0.96
#: SMs that have blocks of clusters at once, by their size: of groups of SMs some are left.
SLOTS = {2: MACHINE.sms, 4: 120, 8: 112}
#: Steps of a block, at least: with fewer, clusters begin later than the others end.
_STEPS = 5


def exchange(results: int, count: int, halves: bool) -> float:
    """Microseconds that ``count`` blocks of a cluster take for the parts of a tile's results, of
    factors of 16 bits or others."""
    return (_MEETING if halves else _MEETING_OTHERS) + exchanged(results, count)


def exchanged(results: int, count: int) -> float:
    """What of that they read from one another."""
    return 4 * results * (count - 1) / (count * _EXCHANGED)


@functools.lru_cache(maxsize=64)
def cluster_times(problem: Problem) -> dict[BoxProductTile, float]:
    """For :func:`~tilewright.topi.sketches.box_clusters.schedule_box_clusters`: tiles, and what
    they are predicted to take, in microseconds."""
    p = suited(problem)
    if p is None or p.pass_ == "wgrad" or p.groups > 1 or p.block or is_phased(p):
        return {}
    whole = problem.result_dtype == "int32"  # sums as they are
    short = dtype(problem.result_dtype).bytes < dtype(p.accumulate).bytes
    if not (short or whole) or are_apart(p) or sliced(p) > 1:
        return {}
    of = Sizes.of(p, problem.result_dtype)
    steps, found = of.taps * of.parts, dict[BoxProductTile, float]()
    parts = [n for n in SIZES if steps % n == 0 or (of.taps == 1 and _have_steps(steps, n))]
    before, rates, slow = copying(convolution_of(problem), p), rates_of(p), max(slower(p))
    halves, results = widths(p.dtype).chunk == 8, math.prod(of.extents)
    for rows, channels, box, turned in _shapes(problem, p, of) if parts else ():
        tiles = of.boxes(box) * -(-p.result_channels // channels)
        a_step = (rows + channels) * of.depth
        sides = (channels, rows) if turned else (rows, channels)
        for count in parts:
            threads = sides[0] // ROWS * LANES
            if count * tiles > _CROWD * MACHINE.sms:
                break
            lanes = lanes_of(rows * channels, count, threads)
            # Where one thread has all rows, others would choose registers by their place.
            if not lanes or (
                not turned and results <= rows_of(rows, channels // lanes, count, threads)
            ):
                continue
            kept = BARRIERS + parts_bytes(rows, channels) + of.staged(problem, 0, channels)
            own = -(-steps // count)
            if own < _STEPS:
                continue
            capacity = (MACHINE.block_shared - kept) // a_step
            deep = [own + 1] if halves and own <= _ALL else []
            for most in (*deep, _STAGES):
                stages = min(most, own + 1, capacity)
                if stages < 2:
                    continue
                resident = resident_blocks(problem, *sides, stages * a_step + kept)
                if count * tiles <= resident * SLOTS[count]:
                    break
            else:
                continue
            cost = time_of(
                problem, *sides, of.depth * of.terms, own, count * tiles, stages, resident,
                of.written / count, own * a_step, turned=turned, rates=rates, sharing=count,
            )  # fmt: skip
            if halves and own <= stages:  # all of which are asked for at once
                cost -= rates.wait * own / (stages - 1)
            if slow > 1:
                brought = rows_brought(slow, rows + channels, own, count * tiles)
                cost = max(cost, brought) * (_WITHIN if brought else 1)
            if halves and turned and problem.constants:
                cost += _ALONE[sides[0] > ROWS]
            tile = BoxProductTile.of(box, channels, stages, count, turned=int(turned))
            found[tile] = before + exchange(rows * channels, count, halves) + cost
    return found


def _shapes(
    problem: Problem, p: Convolution, of: Sizes
) -> Iterator[tuple[int, int, tuple[int, ...], bool]]:
    """Results and channels of a tile, its box, and whether its channels are rows; none where even
    the largest are too many."""
    every = [c for c in channels_of(problem, p) if c in CHANNELS and c >= _NARROWEST]
    results, most = math.prod(of.extents), max(_GROUPS) * ROWS * CHANNELS[0]
    if SIZES[0] * results * p.result_channels > _CROWD * MACHINE.sms * most:
        return
    for groups in _GROUPS:
        for box, channels in product(boxes_of(of, ROWS * groups), every):
            yield ROWS * groups, channels, box, False
    if max(of.extents[1:]) == 1:
        yield from turned_shapes(p, of.extents, True)
    if results < ROWS and max(of.extents[1:]) == 1:
        few, single = -(-results // _LEAST) * _LEAST, (1,) * (len(of.extents) - 1)
        for groups in _GROUPS:
            yield few, ROWS * groups, (few, *single), True


def _have_steps(steps: int, count: int) -> bool:
    """Whether each of ``count`` blocks has some steps, where all but the last have as many."""
    return (count - 1) * -(-steps // count) < steps
