"""The tiles worth trying for windows in rows, after the cycles that they are predicted to take."""

from __future__ import annotations

import math
from itertools import product

from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes, power, registers
from tilewright.topi.nn.flat_windows import FlatWindows
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.flat_windows import FlatTile
from tilewright.topi.template import DEPTHWISE

#: Tiles of single numbers by vectors.
_SHAPES = (
    (8, 2), (8, 3), (6, 4), (5, 4), (7, 3), (4, 4), (4, 6), (12, 2), (6, 2), (4, 3), (4, 2),
    (8, 1), (4, 1), (2, 4), (2, 2), (1, 4), (1, 1),
)  # fmt: skip
#: Cycles that an element costs: copied as it lies, copied by strides, turned, and packed.
_COPY, _STRIDED, _TURNED, _PACKED = 0.2, 0.7, 1.5, 2.0
#: Filters that are read at once, one number of each: more of them, a multiple of some kilobytes
#: apart, put one another out of a first-level cache of as many ways.
_FILTERS = 8
#: Bytes of the first-level cache that numbers of the filter keep, and times of a product in which a
#: vector of them comes from the second otherwise, if of 64 bytes.
_FIRST, _FROM_SECOND = 2**15, 4.6
#: Bytes that a task keeps in the second-level cache.
_KEPT = 2**19
#: Bytes of the second-level cache.
_SECOND = 2**20
#: Bytes that are read from the last-level cache, or from memory, while a vector is multiplied.
_NEAR, _FAR = 32, 11


def suits(p: Problem) -> bool:
    """Whether it is a convolution that is dense or in groups, in a type that vectors have, and no
    gradient of one with strides other than those of :class:`FlatWindows`."""
    if not isinstance(p, Convolution) or p.operator in DEPTHWISE:
        return False
    if p.channels_last is None or FlatWindows(p).factors not in ("float32", "float64"):
        return False
    if p.pass_ == "dgrad":
        return all(s == 1 or (s == 2 and d == 1) for s, d in zip(p.stride, p.dilation, strict=True))
    return p.pass_ == "forward"


def flat_tiles(p: Convolution, target: Target) -> list[FlatTile]:
    """For :func:`~tilewright.topi.sketches.flat_windows.schedule_flat`, the best guess first."""
    from tilewright.runtime.llvm_host import thread_count

    windows, threads = FlatWindows(p), thread_count(target)
    per, height, found = windows.filters[0], windows.result[0], {}
    phases = math.prod(windows.phases)
    bands = dict.fromkeys(min(n, height) for n in (height, 28, 14, 8, 4, 2, 1))
    most = lanes(p, target)
    for (rows, vectors), across in product(_SHAPES, (0, 1)):
        wide = min(most, power(per if across else windows.results))
        if rows * vectors > registers(target, most) or (not across and rows > _FILTERS):
            continue
        step = vectors * wide if across else rows
        if step > per and rows * vectors > 1:
            continue
        if p.groups > 1 and per % step:  # a tile is of one group
            continue
        if step % phases:  # and of all phases
            continue
        for band, parts in product(bands, (1, 2, 4)):
            tile = FlatTile(rows, vectors, wide, band, parts, across)
            pixels = band * _row(windows, tile)
            enough = pixels >= (rows if across else vectors * wide)
            if (enough or rows * vectors == 1 or phases > 1) and -(-per // step) % parts == 0:
                found[tile] = _cycles(windows, tile, threads)
    return sorted(found, key=lambda tile: found[tile])


def flat_price(p: Convolution, tile: FlatTile, target: Target) -> float:
    """The time of a tile in that of a vector of products, with what reading the filter takes, to be
    compared with other schedules."""
    from tilewright.runtime.llvm_host import thread_count

    w, threads = FlatWindows(p), thread_count(target)
    (per, own), bands = w.filters, -(-w.result[0] // tile.band)
    tasks = -(-p.batch * bands * p.groups * tile.parts // threads)
    nbytes = 4 * p.groups * per * own * math.prod(w.kernel)
    return _cycles(w, tile, threads) + reading(nbytes, p.groups * tile.parts, 0, tasks)


def reading(whole: int, parts: int, beside: int, times: float) -> float:
    """How long a thread reads one of ``parts`` of a filter of ``whole`` bytes as many times, in the
    time of a vector of products: once, where the second-level cache keeps it with the bytes
    ``beside``."""
    from tilewright.runtime.caches import last_level

    rate, nbytes = _NEAR if whole <= last_level() else _FAR, whole / parts
    return (times if nbytes + beside > _SECOND else min(times, 1.0)) * nbytes / rate


def _row(w: FlatWindows, t: FlatTile) -> int:
    """Results that are computed for a row of them."""
    return math.prod((w.result if t.across else w.stored)[1:])


def _cycles(w: FlatWindows, t: FlatTile, threads: int) -> float:
    p, (per, own) = w.problem, w.filters
    row_stride, taps = math.prod(w.stored[1:]), math.prod(w.kernel)
    bands, seen = -(-w.result[0] // t.band), t.band + w.stored[0] - w.result[0] - 1
    tasks = p.batch * bands * p.groups * t.parts
    pixels, single = t.band * _row(w, t), t.rows if t.across else t.vectors * t.lanes
    tiles = -(-pixels // single) * -(-per // t.channels) / t.parts
    # An addition takes four cycles; a tile of few sums waits for it.
    step = max(t.rows * t.vectors, 0.6 * (t.rows + t.vectors), 4) + 0.5
    if t.across and own * taps * t.channels * 4 > _FIRST:  # all of it for each tile
        step = max(step, _FROM_SECOND * t.vectors * t.lanes / 16)
    sums = tiles * (own * taps * step + 3 * t.rows * t.vectors)
    turned = bool(t.across) != p.channels_last
    moved = _TURNED * turned + (_STRIDED if set(w.stride) != {1} else _COPY)
    copied = own * seen * row_stride * math.prod(w.stride) * moved
    slab = own * seen * row_stride * math.prod(w.stride) * 4
    stored = t.band * math.prod(w.result[1:]) * per / t.parts * (_TURNED if turned else _COPY)
    packed = p.groups * per * own * taps * _PACKED * w.packs(bool(t.across))
    packed *= "filter" not in p.constants
    cost = sums * (1.1 if slab > _KEPT else 1.0) + copied + stored + 500
    return float(-(-tasks // threads) * cost + packed / threads)
