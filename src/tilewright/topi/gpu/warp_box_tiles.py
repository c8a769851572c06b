"""The tiles worth trying for groups of few channels by warps from whole boxes, best guess first.

The guess is a time: of what a block does for one box after the other, much of which overlaps.
"""

from __future__ import annotations

import functools
import math
from itertools import product

from tilewright.target.devices import SCHEDULERS, WARP
from tilewright.target.instructions.tma_load import ALIGN, LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.box_products import BARRIERS, Sizes, best_of, suited
from tilewright.topi.gpu.machine import CACHE, MACHINE, MEMORY, occupancy
from tilewright.topi.gpu.whole_boxes import best_whole
from tilewright.topi.nn.box_copies import of_a_group, sliced
from tilewright.topi.nn.box_factors import reach
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.tap_tiles import WarpBoxTile
from tilewright.topi.problem import Problem

#: Cycles of a quarter of an SM for a product, and bytes of shared memory that an SM moves in one.
_PRODUCT, _MOVED = 6.06, 128
#: Microseconds until a block has its first box, and of a box by itself; the power by which what
#: overlaps adds up.
_BEGIN, _BOX, _POWER = 2.5, 0.6, 2.0
#: Registers of a thread beside sums and fragments.
_OTHERS = 56


def suits_slices(problem: Problem) -> bool:
    """Whether a problem has groups of which a row of shared memory has several."""
    p = suited(problem)
    if p is None or sliced(p) == 1 or p.dtype not in ("float16", "bfloat16"):
        return False
    return isinstance(problem, Conv) and problem.rank == 2 and bool(_tiles(problem))


def suits_warps(problem: Problem) -> bool:
    """Whether warps are predicted to be faster than warpgroups."""
    return suits_slices(problem) and min(_tiles(problem).values()) < best_whole(problem)


def warp_box_tiles(problem: Problem, target: Target) -> list[WarpBoxTile]:
    """For :func:`~tilewright.topi.sketches.warp_boxes.schedule_warp_boxes`."""
    return best_of(_tiles(problem))


@functools.lru_cache(maxsize=64)
def _tiles(problem: Problem) -> dict[WarpBoxTile, float]:
    """Tiles, and what they are predicted to take."""
    p = suited(problem)
    assert p is not None
    of, found = Sizes.of(p, problem.result_dtype), dict[WarpBoxTile, float]()
    slices, wide, (deep, made) = sliced(p), p.result_channels, of_a_group(p)
    channels = slices * made
    filters = of.taps * of.phases * channels * deep * 2
    for rows, columns, images in product((1, 2, 4, 8, 16), (8, 16), (1, 2, 4)):
        box = (images, rows, columns)
        if any(n >= 2 * max(e, least) for n, e, least in zip(box, of.extents, (1, 1, 8), strict=True)):
            continue
        if not 16 <= math.prod(box) <= 256:
            continue
        seen = reach(p, box)
        brought = 2 * math.prod(seen) * slices * deep
        if max(seen) > LARGEST or brought % ALIGN:
            continue
        boxes = of.boxes(box)
        others = wide // channels
        for own, parts, stages in product((16, 32), (1, 2, 4), (2, 3)):
            tile = WarpBoxTile(*box, channels, own, parts, stages)
            pixels = math.prod(tile.of_groups)
            if made % own or math.prod(box) < 16 * parts or pixels % 16 or tile.groups > 16:
                continue
            if tile.of_groups[2] < 8 or (tile.of_groups[1] < 2 and tile.of_groups[2] < 16):
                continue
            sums = pixels * own * of.phases // WARP
            taps = of.taps * of.phases * own * deep // (2 * WARP)
            registers = sums + min(taps, 72) + 8 + _OTHERS
            staged = 2 * math.prod(box) * of.phases * (channels + 8)
            shared = stages * brought + filters + staged + BARRIERS
            resident = occupancy(MACHINE, tile.groups, min(255, registers), shared)
            if sums > 128 or not resident:
                continue
            each = min(boxes, -(-boxes * others // (MACHINE.sms * resident)))
            blocks = -(-boxes // each) * others
            turns = -(-blocks // (MACHINE.sms * resident)) * each
            busy = min(resident, -(-blocks // MACHINE.sms))
            products = pixels // 16 * (own // 8) * (deep // 16) * of.taps * of.phases
            loads = pixels // 16 * (deep // 16) * of.taps * of.phases
            conflicts = 2 if of.phases == 1 and p.stride[1] > 1 else 1
            warps = tile.groups
            cycles = (
                (warps * products * _PRODUCT / SCHEDULERS) ** _POWER
                + (warps * loads * 4 * conflicts + (3 * staged + brought) / _MOVED) ** _POWER
            ) ** (1 / _POWER)
            overlapping = (
                turns * busy * cycles / MACHINE.clock,
                boxes * others * brought / CACHE, problem.bytes / MEMORY, _BOX * turns,
            )  # fmt: skip
            cost = _BEGIN + sum(x**_POWER for x in overlapping) ** (1 / _POWER)
            found[WarpBoxTile(*box, channels, own, parts, stages, each)] = cost
    return found
