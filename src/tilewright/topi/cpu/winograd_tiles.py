"""The tiles worth trying for Winograd's filtering on a CPU, after the time that they are predicted
to take: operations over the rate of products, bytes of the filter over bandwidth."""

from __future__ import annotations

from itertools import product
from math import prod

from tilewright.target.devices import last_level_bytes
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import features, lanes, power, registers
from tilewright.topi.cpu.flat_tiles import WRITTEN, reading
from tilewright.topi.nn.winograd import POINTS, Transforms
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.winograd import WinogradTile

#: Tiles of registers: tiles of the image by vectors of filters.
_SHAPES = (
    (7, 2), (8, 2), (6, 2), (4, 2), (12, 2), (7, 3), (8, 3), (4, 3), (4, 4), (5, 4), (6, 4),
    (14, 1), (8, 1), (4, 1), (2, 1), (1, 1),
)  # fmt: skip
#: How many of the former a task takes.
_TIMES = (1, 2, 3, 4, 6, 7)
#: What a vector of a point costs, in vectors of products: to transform the image to it and results
#: from it, and the filter where that is no constant.
_IMAGE, _RESULT, _FILTER = 9.0, 7.0, 8.0
#: How much longer writing the transformed filter takes than reading it.
_WRITTEN = 5.0
#: What an element costs, of images whose channels do not lie next to one another.
_TURNED = 2.0
#: How much of the second-level cache a task keeps for itself, and how much longer it takes where
#: that is too little.
_KEPT, _FARTHER = 0.75, 1.2


def suits(p: Problem) -> bool:
    """Whether it is a convolution that allows it."""
    return isinstance(p, Conv) and p.is_winograd


def winograd_times(p: Conv, target: Target) -> dict[WinogradTile, float]:
    """For :func:`~tilewright.topi.sketches.winograd.schedule_winograd`, with what each takes."""
    most = lanes(p, target)
    wide, limit, found = min(most, power(p.out_channels)), registers(target, most), {}
    for results, (rows, vectors) in product(POINTS, _SHAPES):
        step = vectors * wide
        count = _tiles(p, results)
        if rows * vectors > limit or (vectors > 1 and step > p.out_channels):
            continue
        if rows > max(count, 1) and rows > 1:
            continue
        for times, parts in product(_TIMES, (1, 2, 4)):
            if (times == 1 or rows * times < count + rows) and -(-p.out_channels // step) >= parts:
                tile = WinogradTile(results, rows, vectors, wide, rows * times, parts)
                found[tile] = winograd_price(p, tile, target)
    return found


def _tiles(p: Conv, results: int) -> int:
    return p.batch * prod(-(-e // results) for e in p.out_extents)


def winograd_price(p: Conv, t: WinogradTile, target: Target) -> float:
    """The time of a tile, in that of a vector of products."""
    from tilewright.runtime.caches import second_level
    from tilewright.runtime.llvm_host import thread_count

    threads, points = thread_count(target), Transforms(t.results).size ** 2
    count, filters = _tiles(p, t.results), -(-p.out_channels // t.parts)
    own = min(t.tiles, count)
    tasks = -(-count // t.tiles) * t.parts
    # An addition takes four cycles; a tile of few sums waits for it.
    step = max(t.rows * t.vectors, 0.6 * (t.rows + t.vectors), 4) + 0.5
    sums = points * (p.channels * step + 3 * t.rows * t.vectors)
    sums *= -(-own // t.rows) * -(-filters // t.channels)
    changed = points * own * (_IMAGE * -(-p.channels // t.lanes) + _RESULT * -(-filters // t.lanes))
    inside = 4 * points * own * (p.channels + t.channels)
    whole = 4 * points * p.channels * p.out_channels
    packed = points * p.channels * -(-p.out_channels // t.lanes) * _FILTER
    packed += _WRITTEN * reading(whole, 1, 0, 1)
    packed *= "filter" not in p.constants
    turned = prod(p.input_shape) * _TURNED * (not p.channels_last)
    stored = prod(p.output_shape) * _TURNED * (not p.channels_last) / tasks
    stored += own * t.results**2 * -(-filters // t.channels) * WRITTEN
    second = second_level()
    cost = (sums + changed) * (1.0 if inside <= _KEPT * second else _FARTHER) + stored + 500
    tasks, parts = -(-tasks // threads), max(1.0, t.parts / threads)
    slower = last_level_bytes(()) / last_level_bytes(features(target))
    read = slower * parts * reading(whole, t.parts, inside, tasks / parts, second)
    return float(tasks * cost + read + (packed + turned) / threads)
