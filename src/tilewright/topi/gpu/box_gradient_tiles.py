"""The tiles worth trying for gradients by the filter from boxes on Hopper, best guess first.

The guess is that of :mod:`~tilewright.topi.gpu.box_products`, and what it takes to add parts.
"""

from __future__ import annotations

import functools
import math
from itertools import product

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.gpu.box_lines import crossing
from tilewright.topi.gpu.box_products import has_windows
from tilewright.topi.gpu.box_shapes import GROUPS, clusters
from tilewright.topi.gpu.box_sizes import STAGES, convolution_of, suited
from tilewright.topi.gpu.box_times import (
    SUMS_OF_PIXELS,
    crossed_steps,
    resident_blocks,
    time_of,
)
from tilewright.topi.gpu.machine import BARRIERS, MACHINE, MEMORY
from tilewright.topi.gpu.produced_boxes import most_stages
from tilewright.topi.gpu.produced_gradients import Sums, bytes_moved
from tilewright.topi.nn.box_factors import reach
from tilewright.topi.nn.box_filter_sums import LINE, of_row, pixels
from tilewright.topi.nn.box_problems import MOST_COLUMNS, ROW, by_pixels, widths
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import ROWS, BoxGradientTile
from tilewright.topi.problem import Problem

#: Where pixels are summed in parts, in microseconds: the launch that adds them, a part, and of what
#: is moved what memory moves.
_SUM, _SUM_PART, _SUM_MOVED = 0.03, 0.1, 1.5
#: Channels of a tile; and how much of the time is left where a producer copies boxes.
_CHANNELS, _PRODUCED = (256, 192, 128, 64), 0.99
#: Microseconds of an SM for a row of pixels that are strides apart and have no whole rows, or less.
_STRIDED, _STRIDED_PART = 0.0036, 0.0052
#: Filters and channels of a tile that a producer copies, at least, where there are as many.
_SQUARE = 128
#: How many times as long steps take whose pixels follow one another over rows and images.
_WINDOWS = 1.1
#: Blocks for each SM beyond which a sum in more parts gains nothing.
_CROWD = 8


def _follow(problem: Problem, p: Convolution) -> bool:
    """Whether a step has pixels that follow one another, which TMA copies windows of, where those
    of a box would be in images of their own."""
    conv = convolution_of(problem)
    if p.groups > 1 or conv is None or p != by_pixels(conv):
        return False
    return pixels(p)[0] == widths(p.dtype).row and math.prod(p.kernel) > 1 and has_windows(problem)


@functools.lru_cache(maxsize=64)
def gradient_times(
    problem: Problem, *, whole: bool = False, windows: bool = False
) -> dict[BoxGradientTile, float]:  # fmt: skip
    """For :func:`~tilewright.topi.sketches.box_gradient.schedule_box_gradient`, where pixels are
    what is summed: tiles, of ``whole`` boxes, or whose pixels follow one another (``windows``), and
    what they are predicted to take, in microseconds."""
    p = suited(problem)
    if p is None or p.pass_ != "wgrad" or p.dtype == "float32":
        return {}
    if windows and not _follow(problem, p):
        return {}
    conv = convolution_of(problem)
    # Of groups that are joined and images that are copied uneven parts took up to a third longer.
    even = conv is not None and p != by_pixels(conv)
    if whole and even:  # for which taps that share boxes have sketches of their own
        return {}
    own = p.channels // p.groups
    extents, box = (p.batch, *p.out_image), pixels(p, LINE if whole else 1)
    steps, every = math.prod(-(-e // n) for e, n in zip(extents, box, strict=True)), math.prod(box)
    if windows:
        steps = -(-math.prod(extents) // every)
    taps, found = math.prod(p.kernel), dict[BoxGradientTile, float]()
    rows = ((p.out_channels, ROW), (p.channels, of_row(p) if whole else ROW))
    crossed = sum(crossing(2 * n, 2 * min(n, row)) for n, row in rows) - 1
    short = taps > 1 and max(p.stride) > 1 and p.channels % ROW
    strided = (_STRIDED if own >= ROW else _STRIDED_PART) / MACHINE.sms
    strided *= short and not (whole or windows)

    def bounded(tile: BoxGradientTile, tiles: int, cost: float) -> float:
        rows = tiles * tile.splits * -(-steps // tile.splits) * every
        return max(cost, rows * -(-tile.channels // ROW) / tile.x_to * strided)

    if p.groups == 1 and not (whole or even):
        apart = 0.0 if windows or max(p.image) == 1 else math.log(box[0], every)
        made = Sums(
            bytes_moved(problem, p), p.out_channels, own, taps, steps, apart=apart,
            longer=crossed_steps(crossed) * (_WINDOWS if windows else 1),
        )  # fmt: skip
        return {
            tile: bounded(tile, made.count(tile.filters, tile.channels), cost)
            for tile, cost in made.tiles()
        }
    alike = p.out_channels if p.groups == 1 else p.multiplier  # filters that read the same channels
    for high, wide, filters, channels in _of_whole(p) if whole else _of_taps(p):
        if p.groups > 1 and p.multiplier % filters:
            continue
        tiles = taps // (high * wide) * -(-p.out_channels // filters) * -(-own // channels)
        seen = math.prod(reach(p, box, high)) if whole else every
        of_dy, of_x = 2 * -(-filters // ROW) * ROW * every, 2 * channels * seen
        shared = [(1, 1)] if whole else list(clusters(-(-own // channels), -(-alike // filters)))
        most = most_stages(filters, channels, of_dy + of_x)
        # Small tiles, and narrow ones, bring more than the cache moves meanwhile.
        small = filters < min(_SQUARE, p.out_channels) or channels < min(_SQUARE, own)
        narrow = min(filters, channels) < _SQUARE < max(filters, channels)
        most = None if whole or small or narrow else most
        alone = [(most, 1)] if most else []
        for stages, producer in [*((n, 0) for n in STAGES), *alone]:
            memory = stages * (of_dy + of_x) + BARRIERS
            resident = resident_blocks(problem, filters * high, channels * wide, memory)
            if not resident:
                continue
            for splits in _pixel_parts(steps, tiles, even):
                size, own_steps = 4 if splits > 1 else 2, -(-steps // splits)
                moved = 4 * splits * p.out_channels * own * taps
                for dy_to, x_to in shared:
                    brought = own_steps * (of_dy / dy_to + of_x / x_to)
                    cost = time_of(
                        problem, filters * high, channels * wide, 2 * every, own_steps,
                        tiles * splits, stages, resident, size, brought, cluster=dy_to * x_to,
                        crossing=crossed, rates=SUMS_OF_PIXELS,
                    )  # fmt: skip
                    tile = BoxGradientTile(
                        filters, channels, stages, splits, dy_to, x_to, high if whole else 0,
                        producer,
                    )  # fmt: skip
                    cost = bounded(tile, tiles, cost * (_PRODUCED if producer else 1))
                    if splits > 1:
                        cost += _SUM + _SUM_PART * splits + _SUM_MOVED * moved / MEMORY
                    found[tile] = cost
    return found


def _of_taps(p: Convolution) -> list[tuple[int, int, int, int]]:
    """Rows of taps and taps of a row that a block has, of which there is one, and filters and
    channels."""
    own = p.channels // p.groups
    return [
        (1, 1, groups * ROWS, channels)
        for groups, channels in product(GROUPS, _CHANNELS)
        if groups * ROWS <= max(ROWS, p.out_channels) and ROW <= channels <= max(ROW, own)
    ]


def _of_whole(p: Convolution) -> list[tuple[int, int, int, int]]:
    """The same of whole boxes: some rows of taps of a plane, with all taps of each; none where
    neighbours in dy do not see neighbours, or there is a tap alone."""
    (*_, high, wide), channels = p.kernel, of_row(p)
    if p.stride[-1] > 1 or high * wide == 1 or wide * channels > MOST_COLUMNS:
        return []
    # Of a few rows a block has all: one with more filters took up to 1.6 times as long.
    few = high <= max(GROUPS)
    return [
        (rows, wide, groups * ROWS, channels)
        for groups, rows in product((1,) if few else GROUPS, (high,) if few else (1, 2, 3, 4))
        if rows * groups <= max(GROUPS) and high % rows == 0
        and groups * ROWS <= max(ROWS, p.out_channels)
        and max(reach(p, pixels(p, LINE), rows)) <= LARGEST
    ]  # fmt: skip


def _pixel_parts(steps: int, tiles: int, even: bool) -> list[int]:
    """In how many parts pixels may be summed: in one, or so that each SM has up to as many blocks,
    and in no fewer that have as many steps at most; or those that are ``even``."""
    if even:
        most = max(1, _CROWD * MACHINE.sms // tiles)
        return [n for n in range(1, min(steps, most) + 1) if steps % n == 0]
    each = {-(-steps // max(1, n * MACHINE.sms // tiles)) for n in range(1, _CROWD + 1)}
    return sorted({1, *(-(-steps // own) for own in each)})
