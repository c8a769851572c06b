"""Tiles of gradients by the input in TF32 whose filter threads hold, the best guess first.

What they take is predicted as of boxes that a producer copies (:mod:`.produced_boxes`); no kernel
turns the filter first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

from tilewright.target.boxes import MOST_DIMENSIONS
from tilewright.topi.gpu.box_products import has_windows
from tilewright.topi.gpu.box_shapes import boxes_of
from tilewright.topi.gpu.box_sizes import Sizes, convolution_of, suited
from tilewright.topi.gpu.machine import BARRIERS, MACHINE, most_registers
from tilewright.topi.gpu.produced_boxes import RATES, in_turn, predicted
from tilewright.topi.nn.box_phases import is_phased
from tilewright.topi.nn.box_problems import by_pixels, filled_up, widths
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import LANES, ROWS, BoxProductTile
from tilewright.topi.problem import Problem

#: Fitted to 49 tiles of 20 of ResNet-50's layers at batch 64 on an H200, to 9 %.
_RATES = replace(
    RATES, products=0.678, narrow=47.4, cache=0.434, memory=0.862, stored=35_200, last=148_000,
    begin=0.3, step=0.271, power=1.75, uneven=1.064, tall=1.0,
)  # fmt: skip
#: Those of several phases, whose blocks have a tile each: none hides what another waits for and
#: stores, which took 2 microseconds more in each round of 3x3 layers with strides.
_PHASED = replace(_RATES, begin=2.3)
#: Channels of a tile, and the most of which half as many are one; results where several boxes
#: follow one another, and of boxes; rounds of tiles that SMs may have.
_CHANNELS, _NARROW, _RESULTS, _ROUNDS = (64, 128, 256), 128, (64, 96, 128, 192), 4
#: Results are a multiple of the first; warps of a group, and registers of a thread beside its sums
#: and what it multiplies; steps for which a block has memory, at least and at most.
_EIGHT, _WARPS, _OTHERS, _STAGES = 8, 4, 24, (3, 8)


def held(problem: Problem) -> Convolution | None:
    """The gradient by the input in TF32, in one group, that a problem is, if TMA can bring both of
    its factors as they lie."""
    p = convolution_of(problem)
    if p is None or p.pass_ != "dgrad" or p.precision != "tf32" or p.groups > 1:
        return None
    if problem.epilogue or not p.channels_last or suited(problem) is None:
        return None
    # A map of the filter has channels, two digits of those that are summed, of which the lower one
    # has half a step, and taps.
    dimensions = 3 + (len(p.kernel) if is_phased(p) else sum(k > 1 for k in p.kernel))
    w = widths(p.dtype)
    half = w.step(filled_up(p)) // 2
    fits = p.channels % w.chunk == 0 and p.out_channels % half == 0
    return by_pixels(p) if fits and dimensions <= MOST_DIMENSIONS else None


@functools.lru_cache(maxsize=64)
def held_times(problem: Problem) -> dict[BoxProductTile, float]:
    """For :func:`~tilewright.topi.sketches.held_products.schedule_held_products`: tiles, and what
    they are predicted to take, in microseconds."""
    p, found = held(problem), dict[BoxProductTile, float]()
    if p is None:
        return found
    of, (least, most) = Sizes.of(p, problem.result_dtype), _STAGES
    for channels in _CHANNELS:
        if channels >= 2 * max(ROWS, p.channels) or 2 * channels <= min(_NARROW, p.channels):
            continue
        if of.phases > 1 and p.channels % channels:  # conditions would be around sums
            continue
        parts = -(-p.channels // channels) * of.phases
        registers = most_registers(channels // ROWS * _WARPS + 1)
        for box, number in _boxes(problem, of, parts):
            rows = math.prod(box)
            stages = (MACHINE.block_shared - BARRIERS) // ((rows + channels) * of.depth)
            multiplied = (rows + widths(p.dtype).row) * ROWS // LANES
            if stages < least or multiplied + _OTHERS > registers:
                continue
            tiles = number * parts
            each = 1 if of.phases > 1 else in_turn(number, tiles, MACHINE.sms)
            tile = BoxProductTile.of(
                box, channels, min(stages, most), boxes=each, turned=1, staged=channels
            )
            found[tile] = predicted(
                problem, p, of, of.mean * of.parts, tiles, tile,
                rates=_RATES if of.phases == 1 else _PHASED,
            )  # fmt: skip
    return found


def held_form(problem: Problem, tile: BoxProductTile) -> str:
    """The declaration that a tile is for."""
    single = max(tile.box[1:]) == 1 and has_windows(problem)
    return "held pixels" if single else "held boxes"


def _boxes(problem: Problem, of: Sizes, parts: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Boxes of results, and how many have all: any number of those that follow one another, where
    TMA brings windows or each sees one pixel; else powers of two."""
    results, single = math.prod(of.extents), (1,) * (len(of.extents) - 1)
    if max(of.extents[1:]) > 1 and not has_windows(problem):
        for n in _RESULTS:
            if n & (n - 1) == 0:
                yield from ((box, of.boxes(box)) for box in boxes_of(of, n) if max(box[1:]) > 1)
        return
    tiles = (max(1, n * MACHINE.sms // parts) for n in range(1, _ROUNDS + 1))
    sizes = {*_RESULTS, *(-(-results // (n * _EIGHT)) * _EIGHT for n in tiles)}
    for n in sorted(sizes):
        if ROWS <= n < 256:
            yield (n, *single), -(-results // n)
