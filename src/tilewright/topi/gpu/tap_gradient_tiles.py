"""The tiles worth trying for gradients by the filter whose taps share boxes, best guess first.

The guess is a time, of what tensor cores take, and loads from shared memory, and instructions, and
what comes through the second-level cache and what memory moves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.target.boxes import MOST_STEP
from tilewright.target.devices import REGISTERS, SCHEDULERS, WARP
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.box_gradient_tiles import best_gradient, suits_gradient
from tilewright.topi.gpu.box_products import BARRIERS, MOST
from tilewright.topi.gpu.machine import CACHE, MACHINE, MEMORY, micros, occupancy, sees_nothing
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_factors import up
from tilewright.topi.nn.tap_gradients import FILTERS, box_of_rows, channels_of, filled, is_thin, reach, taps_of
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.pieces.tap_tiles import TapGradientTile
from tilewright.topi.problem import Problem

#: Cycles of a quarter of an SM for a product, and bytes of shared memory that an SM loads in one.
_PRODUCT, _LOADED = 6.06, 128
#: Registers of a thread beside sums and operands; sums that it may have.
_OTHERS, _SUMS = 72, 128
#: Microseconds until a block has its first boxes, and for a step of it; a launch that adds parts.
_BEGIN, _STEP, _ADDING = 2.0, 0.25, 2.0
#: Blocks for each SM in how many parts pixels may be summed.
_CROWD = 6


def conv_of(p: Problem) -> Conv | None:
    """The gradient that such tiles compute in place of a problem's; None where there is none."""
    if not isinstance(p, Conv) or p.pass_ != "wgrad" or not p.channels_last or p.is_depthwise:
        return None
    allowed = p.precision in ("tf32", "tf32x3") if p.dtype == "float32" else (
        p.dtype in ("float16", "bfloat16")
    )
    if not allowed or p.accumulate != "float32" or max(p.stride) > MOST_STEP or sees_nothing(p):
        return None
    return None if p.out_channels % widths(p.dtype).chunk else taps_of(p)


def shared_taps(p: Problem) -> dict[TapGradientTile, float]:
    """Tiles of a gradient by the filter, and what they are predicted to take; none for others."""
    return {} if conv_of(p) is None else _tiles(p)


def suits_taps(p: Problem) -> bool:
    """Whether taps that share boxes are predicted to be faster than those that do not."""
    found = shared_taps(p)
    if not found:
        return False
    return not suits_gradient(p) or min(found.values()) < best_gradient(p)


def tap_gradient_tiles(p: Problem, target: Target) -> list[TapGradientTile]:
    """For :func:`~tilewright.topi.sketches.tap_gradient.schedule_tap_gradient`."""
    found = shared_taps(p)
    return sorted(found, key=lambda tile: found[tile])[:MOST]


@functools.lru_cache(maxsize=64)
def _tiles(problem: Problem) -> dict[TapGradientTile, float]:
    """Tiles, and what they are predicted to take."""
    p, found = conv_of(problem), dict[TapGradientTile, float]()
    assert p is not None
    own, _ = _summed(p)
    for m, n, (r, t), box in product((64, 32, 16), (64, 32, 16, 8), _taps(p), _boxes(p)):
        if p.dtype != "float32" and n == 8:
            continue
        for wm, wn, stages in product((1, 2, 4, 8), (1, 2, 4), (3, 4, 2)):
            filters, channels = m * wm, n * wn
            if p.groups > 1 and not _divides(p, filters, channels, m):
                continue
            if p.groups == 1 and (
                filters >= 2 * max(FILTERS, p.out_channels) or channels >= 2 * max(16, own)
            ):
                continue
            tile = TapGradientTile(filters, channels, *box, wm, wn, r, t, stages, 1)
            if not 4 <= tile.warps <= 12:
                continue
            for each, time in _times(problem, p, tile):
                found[each] = time
    return found


def _divides(p: Conv, filters: int, channels: int, m: int) -> bool:
    """Whether a block has whole groups, or a part of one, and each warp's filters are of one."""
    own, whole = p.channels // p.groups, p.multiplier
    if p.multiplier % m or own % channels or filters > p.out_channels:
        return False
    return whole % filters == 0 or (filters % whole == 0 and channels == own)


def _summed(p: Conv) -> tuple[int, tuple[int, int]]:
    """Channels of a group, or columns of taps of few, and rows and columns of taps besides."""
    if is_thin(p):
        return p.kernel_w * filled(p), (p.kernel_h, 1)
    return p.channels // p.groups, p.kernel


def _taps(p: Conv) -> Iterator[tuple[int, int]]:
    """Over how many warps rows of taps are divided, and columns."""
    _, (rows, columns) = _summed(p)
    for r in (1, 2, 3, 4, 5, 7):
        if rows % r == 0:
            yield r, 1
            if columns > 1 and r == rows:
                yield r, columns


def _boxes(p: Conv) -> list[tuple[int, int, int]]:
    """Boxes of pixels of dy, of which the least is brought beyond images and twice."""
    extents, found = (p.batch, *p.out_image), []
    if max(*p.out_image) == 1:
        return [(n, 1, 1) for n in (32, 64, 128)]
    for images, rows, columns in product((1, 2, 4, 8), (1, 2, 4, 8, 16), (8, 16, 32, 64)):
        box = (images, rows, columns)
        if not 32 <= math.prod(box) <= 256 or any(
            n >= 2 * max(e, least) for n, e, least in zip(box, extents, (1, 1, 8), strict=True)
        ):
            continue
        seen = reach(p, box)
        if max(seen) > LARGEST:
            continue
        whole = math.prod(up(e, n) for e, n in zip(extents, box, strict=True))
        phases = math.prod(min(s, k) for s, k in zip(p.stride, p.kernel, strict=True))
        brought = whole * (1 + phases * math.prod(seen) / math.prod(box))
        found.append((brought + whole, box))
    return [box for _, box in sorted(found)[:8]]


def _times(
    problem: Problem, p: Conv, tile: TapGradientTile
) -> Iterator[tuple[TapGradientTile, float]]:
    """The same tile with as many parts as are worth trying, and what each is predicted to take."""
    (own_m, own_n), size = tile.own, 4 if p.dtype == "float32" else 2
    apart, deep = are_apart(p), 32 // size
    own, kernel = _summed(p)
    taps = -(-kernel[0] // tile.warps_r) * -(-kernel[1] // tile.warps_t)
    left, right = own_m // 16, own_n // 8
    sums = own_m * own_n * taps // WARP
    held = sums * (2 if apart else 1)
    registers = held + (4 * left + 2 * right) * (3 if apart else 1) + _OTHERS
    if sums > _SUMS or registers > min(255 + _OTHERS // 2, REGISTERS // (WARP * tile.warps)):
        return
    phases = math.prod(min(s, k) for s, k in zip(p.stride, p.kernel, strict=True))
    seen = math.prod(reach(p, tile.box)) * phases * channels_of(p, tile)
    if is_thin(p):
        rows = box_of_rows(p, tile)
        if max(rows) > LARGEST:
            return
        seen = math.prod(rows)
    brought = size * (tile.pixels * tile.filters + seen)
    shared = tile.stages * brought + BARRIERS
    resident = occupancy(MACHINE, tile.warps, min(255, registers), shared)
    if not resident:
        return
    steps = tile.pixels // deep
    products = steps * taps * left * right * (3 if apart else 1)
    words = steps * (4 * left + taps * 2 * right)
    loads = words if size == 4 else words / 4
    others = loads * (6 if apart else 1.5)
    warps = tile.warps
    cycles = (
        (warps * products * _PRODUCT / SCHEDULERS) ** 2
        + (warps * words * 4 * WARP / _LOADED) ** 2
        + (warps * (products + loads + others) / SCHEDULERS) ** 2
    ) ** 0.5
    cycles *= 1 + 2 / (resident * warps)
    extents = (p.batch, *p.out_image)
    boxes = math.prod(-(-e // n) for e, n in zip(extents, tile.box, strict=True))
    tiles = -(-p.out_channels // tile.filters) * -(-own // tile.channels)
    memory = problem.bytes / MEMORY
    if is_thin(p):  # rows are copied
        memory += 2 * size * p.batch * p.height * p.width * filled(p) / MEMORY
    results = 4 * p.out_channels * own * math.prod(kernel)
    for splits in _parts(boxes, tiles, resident):
        each = -(-boxes // splits)
        blocks = tiles * splits
        waves = blocks / (MACHINE.sms * resident)
        issue = blocks * each * cycles / (MACHINE.clock * MACHINE.sms)
        cache = blocks * each * brought / CACHE
        cost = float(micros(issue, cache, memory, waves, _BEGIN + each * _STEP, resident, 100))
        if splits > 1 or p != problem:
            cost += _ADDING + 2 * splits * results / CACHE + 0.01 * splits
        yield replace(tile, splits=splits), cost


def _parts(boxes: int, tiles: int, resident: int) -> list[int]:
    """In how many parts pixels are summed: so that each SM has up to as many blocks as it holds, or
    a few more, and in no fewer that have as many boxes at most."""
    slots = resident * MACHINE.sms
    counts = {max(1, n * slots // tiles) for n in (1, 2, 3)}
    return sorted({-(-boxes // -(-boxes // min(boxes, n))) for n in counts})
