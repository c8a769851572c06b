"""The tiles worth trying for :mod:`~tilewright.topi.sketches.row_bands`.

The best guess comes first: microseconds, of which all but the time of the memory is scaled by how
full an SM is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import product
from typing import TypeVar

from tilewright.target.devices import STATIC_SHARED
from tilewright.topi.gpu.machine import MACHINE, MEMORY, is_planar, occupancy
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.row_band_cuts import DEPTH, ROWS, SHARES, RowBands, RowBandTile

#: Registers of a thread beside its sums and what it loads, and how many of these count to these
#: where nothing is loaded ahead; most of a thread.
_OTHERS, _FEW, _MOST_HELD = 44, 24, 208
#: Products written out at most, and tiles that are worth trying.
_CODE, _MOST = 600, 60
#: Cycles of a scheduler for a product and what belongs to it, and for a tile; microseconds of a
#: load, of the ends, and of a second kernel.
_PRODUCT, _TILE, _LOAD, _ENDS, _SECOND = 9, 60, 0.9, 1.5, 1.0
#: What bands reach of the bandwidth of the second-level cache.
_CACHE = 5.5 / 7


def suits_bands(p: Conv) -> bool:
    """Whether the schedule is for a gradient: one of 16 bits, with strides of at most two, whose
    filter reaches no further than eight rows of a phase of x: as many more than one of dy has a
    matrix."""
    return (
        is_planar(p)
        and max(p.stride) <= 2
        and p.out_image[1] > 1  # of one column nothing is moved
        and (p.kernel_h - 1) * p.dilation[0] // p.stride[0] <= ROWS
    )


@functools.lru_cache(64)
def gradient_band_tiles(p: Conv) -> tuple[RowBandTile, ...]:
    """Tiles that fit registers and shared memory, the best guess first."""
    return diversify(_tiles(p), lambda t: (t.blocks, t.columns, t.warps, t.stages), _MOST)


def _tiles(p: Conv) -> Iterator[tuple[float, RowBandTile]]:
    """Tiles, with the microseconds that they are predicted to take."""
    (height, width), channels, (sh, sw) = p.out_image, p.out_channels, p.stride
    across, bytes_ = -(-p.image[1] // sw), 2 * p.batch * height * width * channels
    bytes_ += 2 * p.batch * math.prod(p.image) * p.channels
    for blocks, columns, warps, stages in product((1, 2, 4, 7), (16, 32, 64), (8, 4), (1, 2, 3)):
        if ROWS * blocks >= 2 * max(ROWS, height) or columns >= 2 * max(DEPTH, across):
            continue
        cut = RowBands(p, blocks, columns)
        products = blocks * columns // DEPTH * p.kernel_w * sh
        rows = (blocks + 1) * sh * sw + blocks  # times eight, of ``columns`` columns
        held = _held(cut, stages)
        resident = occupancy(MACHINE, warps, held, 0)
        if products * stages > _CODE or held > _MOST_HELD or not resident:
            continue
        if warps * p.kernel_w * sh * 512 > STATIC_SHARED:
            continue
        tiles = p.batch * math.prod(cut.grid)
        seen = ROWS * columns * rows + ROWS * blocks * SHARES * sum(cut.around)
        for turn in {resident, max(1, resident - 1), 2 * resident, 3 * resident}:
            most = -(-tiles // warps)
            chunks = max(1, min(most, turn * MACHINE.sms // channels))
            steps = -(-tiles // (chunks * warps))
            waves = -(-chunks * channels // (resident * MACHINE.sms))
            full = min(resident, -(-chunks * channels // MACHINE.sms)) * warps
            busy = waves * steps * full / 4 * (products * _PRODUCT + _TILE) / MACHINE.clock
            # Loads that are not ahead come for one block of rows after another.
            load = _LOAD * blocks if stages == 1 else _LOAD / stages
            waits = waves * steps * (load + products * _PRODUCT / MACHINE.clock)
            cache = steps * warps * chunks * channels * 2 * seen / (_CACHE * MACHINE.cache)
            slowest = math.hypot(max(busy, cache, bytes_ / MEMORY), waits, busy / 2)
            ends = _ENDS + _SECOND * (chunks > 1)
            yield slowest + ends, RowBandTile(blocks, columns, warps, stages, chunks)


def _held(cut: RowBands, stages: int) -> int:
    """The registers of a thread: its sums, what it loads, and others."""
    p, (sh, sw) = cut.problem, cut.problem.stride
    # What is loaded alone, as in rows of an odd width, has a register alone.
    of_x, of_dy = (1 if width % 2 else 2 for width in (p.image[1], p.out_image[1]))
    x, dy = sh * sw * cut.share / of_x, (cut.share + sum(cut.around)) / of_dy
    loaded = (cut.blocks + 1) * x + cut.blocks * dy
    if stages > 1:
        loads = stages * loaded
    else:  # two blocks of x and one of dy, and as many more as fit: of halves, all
        loads = max(2 * x + dy - _FEW, loaded if of_x == 1 else 0)
    return 8 * math.ceil(float(4 * p.kernel_w * sh + _OTHERS + loads) / 8)


T = TypeVar("T")


def diversify(
    tiles: Iterable[tuple[float, T]], variant: Callable[[T], Hashable], count: int
) -> tuple[T, ...]:
    """At most ``count`` of ``tiles``, which come with a guess at their times, each once: first the
    best of each ``variant``, up to half of them, as a guess may be wrong of a whole variant, then
    the others.

    >>> diversify([(2.0, "ab"), (1.0, "aa"), (3.0, "ba"), (1.5, "ac")], lambda t: t[0], 4)
    ('aa', 'ba', 'ac', 'ab')
    """
    first: list[T] = []
    others: list[T] = []
    variants: set[Hashable] = set()
    for _, tile in sorted(tiles, key=lambda pair: pair[0]):
        (others if variant(tile) in variants else first).append(tile)
        variants.add(variant(tile))
    half = count // 2
    return tuple(dict.fromkeys(first[:half] + others + first[half:]))[:count]
