"""The tiles worth trying for gradients by the filter from boxes on Hopper, best guess first.

The guess is that of :mod:`~tilewright.topi.gpu.box_products`, and what it takes to add parts.
"""

from __future__ import annotations

import functools
import math
from itertools import product

from tilewright.target.target import Target
from tilewright.topi.gpu.box_products import (
    BARRIERS,
    CHANNELS,
    GROUPS,
    MOST,
    STAGES,
    convolution_of,
    suited,
    time_of,
)
from tilewright.topi.gpu.machine import MACHINE, MEMORY
from tilewright.topi.nn.box_copies import ROW, by_pixels
from tilewright.topi.nn.box_windows import PIXELS, pixels
from tilewright.topi.pieces.box_tiles import ROWS, BoxGradientTile
from tilewright.topi.problem import Problem

#: Where pixels are summed in parts, in microseconds: the launch that adds them, a part, and of what
#: is moved what memory moves.
_SUM, _SUM_PART, _SUM_MOVED = 0.1, 0.025, 1.4
#: Blocks for each SM beyond which a sum in more parts gains nothing.
_CROWD = 8


def suits_gradient(problem: Problem) -> bool:
    """Whether pixels are what is summed."""
    p = suited(problem)
    return p is not None and p.pass_ == "wgrad"


def gradient_tiles(problem: Problem, target: Target) -> list[BoxGradientTile]:
    """For :func:`~tilewright.topi.sketches.box_gradient.schedule_box_gradient`."""
    found = _gradient_tiles(problem)
    return sorted(found, key=lambda tile: found[tile])[:MOST]


def best_gradient(problem: Problem) -> float:
    """Microseconds that the best tile is predicted to take."""
    return min(_gradient_tiles(problem).values(), default=math.inf)


@functools.lru_cache(maxsize=64)
def _gradient_tiles(problem: Problem) -> dict[BoxGradientTile, float]:
    """Tiles, and what they are predicted to take."""
    p = suited(problem)
    assert p is not None
    conv = convolution_of(problem)
    # Of groups that are joined and images that are copied uneven parts took up to a third longer.
    even = conv is not None and p != by_pixels(conv)
    own = p.channels // p.groups
    extents = (p.batch, *p.out_image)
    steps = math.prod(-(-e // n) for e, n in zip(extents, pixels(p), strict=True))
    taps, found = math.prod(p.kernel), dict[BoxGradientTile, float]()
    for groups, channels, stages in product(GROUPS, CHANNELS, STAGES):
        filters = groups * ROWS
        few = filters > max(ROWS, p.out_channels) or channels > max(ROW, own)
        if few or channels < ROW or (p.groups > 1 and p.multiplier % filters):
            continue
        tiles = taps * -(-p.out_channels // filters) * -(-own // channels)
        shared = 2 * stages * (filters + channels) * PIXELS + BARRIERS
        for splits in _pixel_parts(steps, tiles, even):
            size, own_steps = 4 if splits > 1 else 2, -(-steps // splits)
            brought = own_steps * (filters + channels) * 2 * PIXELS
            cost = time_of(problem, filters, channels, 2 * PIXELS, own_steps, tiles * splits,
                         stages, shared, size, brought)  # fmt: skip
            if cost is not None:
                moved = 4 * splits * p.out_channels * own * taps
                if splits > 1:
                    cost += _SUM + _SUM_PART * splits + _SUM_MOVED * moved / MEMORY
                found[BoxGradientTile(filters, channels, stages, splits)] = cost
    return found


def _pixel_parts(steps: int, tiles: int, even: bool) -> list[int]:
    """In how many parts pixels may be summed: in one, or so that each SM has up to as many blocks,
    and in no fewer that have as many steps at most; or those that are ``even``."""
    if even:
        most = max(1, _CROWD * MACHINE.sms // tiles)
        return [n for n in range(1, min(steps, most) + 1) if steps % n == 0]
    each = {-(-steps // max(1, n * MACHINE.sms // tiles)) for n in range(1, _CROWD + 1)}
    return sorted({1, *(-(-steps // own) for own in each)})
