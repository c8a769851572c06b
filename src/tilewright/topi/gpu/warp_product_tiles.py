"""The tiles worth trying for 3xTF32 by warps that take factors apart, best guess first.

The guess is a time, as that of :mod:`~tilewright.topi.gpu.tap_gradient_tiles`, whose warps do the
same.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from itertools import product

from tilewright.target.devices import REGISTERS, WARP
from tilewright.topi.gpu.box_lines import copying
from tilewright.topi.gpu.box_shapes import boxes_of
from tilewright.topi.gpu.box_sizes import Sizes, computes_numbers, suited
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE, MEMORY, occupancy
from tilewright.topi.gpu.plain_boxes import behind_one_another
from tilewright.topi.gpu.tap_gradient_tiles import warp_cycles
from tilewright.topi.nn.box_phases import is_phased
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.tap_tiles import WarpBoxTile
from tilewright.topi.problem import Problem

#: Rows and columns of an instruction, and channels that it sums; products of TF32 for one.
_ROWS, _COLUMNS, _DEEP, _TERMS = 16, 8, 8, 3
#: Registers of a thread beside sums and operands, and sums that it may have.
_OTHERS, _SUMS = 64, 64
#: Microseconds until a block has its first boxes, of an SM's bytes of results in one, and of the
#: barriers of a step.
_BEGIN, _STORED, _STEP = 1.7, 39_500, 0.1
#: How much longer a step takes where an SM has few warps; of the cache, what is read counts less.
_ALONE, _CACHED = 0.91, 0.55
#: How much longer tiles of 15 layers of ResNet-50 took than predicted.
_LONGER = 1.09


@functools.lru_cache(maxsize=64)
def warp_product_times(problem: Problem) -> dict[WarpBoxTile, float]:
    """For :func:`~tilewright.topi.sketches.warp_products.schedule_warp_products`, of 3xTF32 of
    images in one group that boxes can bring as they lie, of a forward pass or a gradient by the
    input without strides, of one tap (of several, each would take the same pixels apart again):
    tiles, and what they are predicted to take, in microseconds."""
    if not isinstance(problem, Conv) or problem.precision != "tf32x3":
        return {}
    own = problem.replace(precision="tf32")
    p, found = suited(own), dict[WarpBoxTile, float]()
    if p is None or problem.pass_ == "wgrad" or p.groups > 1 or is_phased(p) or max(p.kernel) > 1:
        return {}
    of, wide, numbers = Sizes.of(p, problem.result_dtype), p.result_channels, computes_numbers(p)
    deep, steps = of.depth // 4, of.taps * of.parts
    memory = problem.bytes / MEMORY
    for rows, channels in product((64, 128, 256), (32, 64, 128, 256)):
        if channels >= 2 * max(wide, 32):
            continue
        for box, across, parts in product(boxes_of(of, rows), (32, 64), (1, 2, 4, 8)):
            tile = WarpBoxTile(box[0], box[-2], box[-1], channels, across, parts)
            if channels % across or rows % (_ROWS * parts) or not 4 <= tile.groups <= 8:
                continue
            high, left = rows // parts // _ROWS, across // _COLUMNS
            sums = rows // parts * across // WARP
            registers = 2 * sums + 12 + 6 * left + _OTHERS
            if sums > _SUMS or registers > min(255, REGISTERS // (WARP * tile.groups)):
                continue
            words = deep // _DEEP * (4 * high + 2 * left)
            cycles = warp_cycles(
                tile.groups, deep // _DEEP * high * left * _TERMS, words, words, 4, apart=True
            )  # fmt: skip
            number = of.boxes(box)
            tiles = number * -(-wide // channels)
            for stages in (2, 3, 4):
                shared = stages * (rows + channels) * of.depth + 4 * rows * (channels + 4)
                resident = occupancy(MACHINE, tile.groups, registers, shared + BARRIERS)
                if not resident:
                    continue
                slots = MACHINE.sms * resident
                each = -(-tiles // slots)
                if numbers:
                    each = behind_one_another(number, tiles, slots)
                at_once = min(resident, -(-tiles // MACHINE.sms))
                alone = at_once * cycles / MACHINE.clock * (1 + _ALONE / (at_once * tile.groups))
                alone = steps * (alone + _STEP / at_once) + at_once * 4 * rows * channels / _STORED
                issue = -(-tiles // slots) * alone
                cache = _CACHED * tiles * steps * (rows + channels) * of.depth / CACHE
                cost = (issue**4 + cache**4 + memory**4) ** 0.25 + copying(own, p)
                cost += _BEGIN * math.ceil(tiles / slots / each) / math.sqrt(resident)
                found[replace(tile, stages=stages, boxes=each)] = float(_LONGER * cost)
    return found
