"""Tiles of gradients by the filter in TF32 whose columns threads turn, the best guess first."""

from __future__ import annotations

import functools
import math

from tilewright.topi.gpu.box_products import has_windows
from tilewright.topi.gpu.box_sizes import convolution_of, suited
from tilewright.topi.gpu.machine import MACHINE, MEMORY
from tilewright.topi.gpu.produced_gradients import bytes_moved
from tilewright.topi.nn.box_problems import by_pixels, widths
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import ROWS, BoxGradientTile
from tilewright.topi.problem import Problem

#: Filters, channels and stages of a tile, of which all threads turn as many vectors.
_TILES = ((128, 128, 4), (128, 256, 3), (64, 128, 3), (64, 64, 4))
#: Microseconds of a step, at least, and more for each result; how many times as long where TMA
#: brings windows; until a block has its first step; bytes that an SM stores in one; those of a
#: launch that adds parts, and how much counts of what memory takes for them; and how far the slower
#: of steps and memory hides the other (H200, ResNet-50's layers at batch 64).
_STEP, _LEAST, _RESULT, _WINDOWS, _BEGIN, _STORED = 0.2, 0.65, 2.9e-5, 1.12, 1.9, 36_000
_LAUNCH, _ADDED, _POWER = 1.4, 1.2, 6


def _brought(problem: Problem) -> Convolution | None:
    """The gradient by the filter in TF32, in one group, that a problem is, if TMA can bring its
    operands as they lie."""
    p, conv = suited(problem), convolution_of(problem)
    if p is None or conv is None or p.pass_ != "wgrad" or p.dtype != "float32" or p.groups > 1:
        return None
    return p if p == by_pixels(conv) and (p != conv or has_windows(problem)) else None


@functools.lru_cache(maxsize=64)
def turned_gradient_times(problem: Problem) -> dict[BoxGradientTile, float]:
    """For :func:`~tilewright.topi.sketches.turned_gradient.schedule_turned_gradient`: tiles, and
    what they are predicted to take, in microseconds."""
    p, found = _brought(problem), dict[BoxGradientTile, float]()
    if p is None:
        return found
    taps, memory = math.prod(p.kernel), bytes_moved(problem, p) / MEMORY
    steps = -(-p.batch * math.prod(p.out_image) // widths(p.dtype).row)
    longer = 1 if max(p.image) == 1 else _WINDOWS
    for rows, columns, stages in _TILES:
        if rows >= 2 * max(ROWS, p.out_channels) or columns >= 2 * max(ROWS, p.channels):
            continue
        tiles = taps * -(-p.out_channels // rows) * -(-p.channels // columns)
        splits = max(1, min(steps, MACHINE.sms // tiles))
        rounds, results = -(-tiles * splits // MACHINE.sms), rows * columns
        each = longer * max(_LEAST, _STEP + _RESULT * results)
        issue = rounds * -(-steps // splits) * each
        cost = _BEGIN + float((issue**_POWER + memory**_POWER) ** (1 / _POWER))
        cost += rounds * 4 * results / _STORED
        if splits > 1:
            every = taps * p.out_channels * p.channels
            cost += _LAUNCH + _ADDED * 4 * splits * every / MEMORY
        found[BoxGradientTile(rows, columns, stages, splits)] = cost
    return found
