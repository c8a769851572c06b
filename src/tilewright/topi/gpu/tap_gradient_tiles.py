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
from tilewright.target.instructions.tma_load import ALIGN, LARGEST
from tilewright.topi.gpu.box_lines import COPYING, LINE, crossing
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE, MEMORY, occupancy, sees_nothing
from tilewright.topi.nn.tap_gradients import (
    FILTERS,
    are_copied,
    begins_at_chunks,
    box_of_rows,
    channels_of,
    filled,
    has_boxes,
    is_flat,
    is_thin,
    pixel_box,
    reach,
    rows_of,
    taps_of,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.pieces.tap_tiles import TapGradientTile
from tilewright.topi.problem import Problem

#: Cycles of a quarter of an SM for a product, by bytes of an operand's elements; of an SM for words
#: that a warp loads; and by how much instructions count. The power by which these overlap.
_PRODUCT, _WORDS, _ISSUE, _POWER = {2: 6.76, 4: 6.40}, {2: 0.56, 4: 0.45}, 0.87, 2.0
#: How much longer a step takes where an SM has few warps, and microseconds of its barriers.
_ALONE, _STEP = 0.91, 0.22
#: Registers of a thread beside sums and operands; sums that it may have.
_OTHERS, _SUMS = 56, 128
#: Registers that a thread may need beyond these.
_SPARE = 16
#: Microseconds until a block has its first boxes; of a launch that adds parts and of each part, and
#: how often what these are counts of what memory moves.
_BEGIN, _ADDING, _PART, _ADDED = 1.7, 2.0, 0.03, 1.28
#: Of the cache, what is read counts less; rows of boxes that are shorter take as long.
_CACHED, _SHORT = {2: 0.85, 4: 0.55}, 128
#: By how much a time counts beside those of :mod:`~tilewright.topi.gpu.box_gradient_tiles`, which
#: are too long where taps have few channels.
_BESIDE = 1.2
#: The same of several taps where there are strides, or rows that lie in several lines of memory.
_BESIDE_SHORT = 0.85
#: Both of float32, beside :mod:`~tilewright.topi.gpu.turned_gradient_tiles`.
_BESIDE_FLOAT = (0.95, 0.9)
#: Floats of a row of shared memory that has all banks.
_LINE = 32
#: Of how many rounds of blocks the last, which is not full, counts.
_ROUNDS = 3


def conv_of(p: Problem) -> Conv | None:
    """The gradient that such tiles compute in place of a problem's; None where there is none."""
    if not isinstance(p, Conv) or p.pass_ != "wgrad" or not p.channels_last or p.is_depthwise:
        return None
    allowed = (
        p.precision in ("tf32", "tf32x3")
        if p.dtype == "float32"
        else (p.dtype in ("float16", "bfloat16"))
    )
    if not allowed or p.accumulate != "float32" or max(p.stride) > MOST_STEP or sees_nothing(p):
        return None
    made = taps_of(p)
    return made if made is not None and has_boxes(made) else None


@functools.lru_cache(maxsize=64)
def tap_times(p: Problem) -> dict[TapGradientTile, float]:
    """For :func:`~tilewright.topi.sketches.tap_gradient.schedule_tap_gradient`, where taps of a
    gradient by the filter may share boxes: tiles, and what they are predicted to take, in
    microseconds, as it counts beside others."""
    conv = conv_of(p)
    if conv is None:
        return {}
    assert isinstance(p, Conv)
    size = 4 if p.dtype == "float32" else 2
    pixels = (size * n for n in (p.channels, p.out_channels))
    lines = (crossing(n, min(n, LINE)) for n in pixels)
    short = max(p.kernel) > 1 and max(*lines, *p.stride) > 1
    beside = (_BESIDE_FLOAT if size == 4 else (_BESIDE, _BESIDE_SHORT))[short]
    return {tile: beside * time for tile, time in _tiles(p, conv)}


def _tiles(problem: Problem, p: Conv) -> Iterator[tuple[TapGradientTile, float]]:
    """Tiles, and what they are predicted to take."""
    own, _ = _summed(p)
    few = (24,) if is_thin(p) and not begins_at_chunks(p) else ()  # loaded by elements
    for m, n, (above, r, t) in product((64, 32, 16), (64, 32, *few, 16, 8), _taps(p)):
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
            # Of fewer boxes at once, and of TF32, a producer makes tiles no faster.
            produced = int(stages > 2 and p.dtype != "float32")
            tile = TapGradientTile(filters, channels, wm, wn, r, t, stages, 1, above, produced)
            if not 4 <= tile.warps <= 12:
                continue
            yield from _times(problem, p, tile)


def _divides(p: Conv, filters: int, channels: int, m: int) -> bool:
    """Whether a block has whole groups, or a part of one, and each warp's filters are of one."""
    own, whole = p.channels // p.groups, p.multiplier
    if p.multiplier % m or own % channels or filters >= 2 * p.out_channels:
        return False
    return whole % filters == 0 or (filters % whole == 0 and channels == own)


def _summed(p: Conv) -> tuple[int, tuple[int, int]]:
    """Channels of a group, or columns of taps of few, and rows and columns of taps besides."""
    if is_thin(p):
        return p.kernel_w * filled(p), (p.kernel_h, 1)
    return p.channels // p.groups, p.kernel


def _taps(p: Conv) -> Iterator[tuple[int, int, int]]:
    """How many rows of taps a block has, if not all, and over how many warps these are divided, and
    columns."""
    _, (rows, columns) = _summed(p)
    for r in (1, 2, 3, 4, 5, 7):
        if rows % r == 0:
            yield 0, r, 1
            if columns > 1 and r == rows:
                yield 0, r, columns
    if rows > 1 and not is_thin(p):
        yield 1, 1, 1


def _times(
    problem: Problem, p: Conv, tile: TapGradientTile
) -> Iterator[tuple[TapGradientTile, float]]:
    """The same tile with as many parts as are worth trying, and what each is predicted to take."""
    (own_m, own_n), size, (own, kernel) = tile.own, 4 if p.dtype == "float32" else 2, _summed(p)
    apart, deep, thin = are_apart(p), 32 // size, is_thin(p)
    above = tile.rows or kernel[0]
    rows, columns = -(-above // tile.warps_r), -(-kernel[1] // tile.warps_t)
    left, right = own_m // 16, own_n // 8
    sums = own_m * own_n * rows * columns // WARP
    held = 4 * left + 2 * right
    registers = sums + held + _OTHERS
    if apart:  # also the sums of a step, parts of operands, and where rows of these are
        registers += sums + held // 2 + pixel_box(p)[2]
    if sums > _SUMS or registers + _SPARE > min(255, REGISTERS // (WARP * tile.warps)):
        return
    row, channels = rows_of(p), channels_of(p, tile.filters, tile.channels)
    if tile.filters % row[0] or (channels % row[1] and not thin):
        return
    pixels = pixel_box(p)
    number = math.prod(pixels)
    seen_by = (above, p.kernel_w)
    phases = math.prod(min(s, k) for s, k in zip(p.stride, seen_by, strict=True))
    seen = math.prod(reach(p, pixels, tile.rows))
    if thin:
        box = box_of_rows(p, tile.channels)
        if max(box) > LARGEST:
            return
        phases, channels, seen = 1, 1, math.prod(box)
    elif seen * row[1] * size % ALIGN and phases * channels > row[1]:
        return  # where the next box would begin
    boxes = size * number * tile.filters, size * seen * phases * channels
    shared = tile.stages * sum(boxes) + BARRIERS
    resident = occupancy(MACHINE, tile.warps, min(255, registers), shared)
    if not resident:
        return
    short = [max(r * size + 12, _SHORT) / (r * size) for r in row]
    inside = (1.0, 1.0) if thin or size == 4 else _inside(p, pixels, above)
    brought = boxes[0] * short[0] * inside[0] + boxes[1] * (1 if thin else short[1]) * inside[1]

    steps, warps, taps = number // deep, tile.warps, rows * columns
    products = steps * taps * left * right * (3 if apart else 1)
    shared_rows: float = rows
    step = p.stride[0]
    if not thin:  # what rows of taps share is loaded once
        loaded = sum(pixels[1] + len(range(k, rows, step)) - 1 for k in range(min(step, rows)))
        shared_rows = loaded / pixels[1] if pixels[1] > 1 else rows
    if size == 4:  # short rows conflict in banks
        left *= 1 + (row[0] < _LINE)
        right *= 1 + (row[1] < _LINE and not thin)
    words = steps * (4 * left + shared_rows * columns * 2 * right)
    loads = words if size == 4 else words / 4
    if size == 2 and thin and not begins_at_chunks(p):  # by elements
        words += steps * shared_rows * columns * 2 * right
        loads = steps * (left + shared_rows * columns * 4 * right)
    busy = warp_cycles(warps, products, words, loads, size, apart) / MACHINE.clock
    extents = (p.batch, *p.out_image)
    boxes_of_all = math.prod(-(-e // n) for e, n in zip(extents, pixels, strict=True))
    tiles = -(-p.out_channels // tile.filters) * -(-own // tile.channels) * (kernel[0] // above)
    memory = problem.bytes / MEMORY
    assert isinstance(problem, Conv)
    copied = are_copied(problem)
    image, grad = (p.batch * math.prod(space) for space in (p.image, p.out_image))
    rows = thin and not is_flat(p)  # are copied
    if rows:
        memory += 2 * size * image * filled(p) / MEMORY
    memory += (
        2 * size * (copied[0] * image * p.channels + copied[1] * grad * p.out_channels) / MEMORY
    )
    results = 4 * p.out_channels * own * math.prod(kernel)
    for splits in _parts(boxes_of_all, tiles, resident):
        each = -(-boxes_of_all // splits)
        blocks = tiles * splits
        waves = blocks / (MACHINE.sms * resident)
        at_once = min(resident, -(-blocks // MACHINE.sms))
        alone = at_once * busy * (1 + _ALONE / (at_once * warps)) + _STEP / at_once
        issue = (max(1.0, waves) if waves > _ROUNDS else math.ceil(waves)) * each * alone
        cache = _CACHED[size] * blocks * each * brought / CACHE
        cost = float((issue**4 + cache**4 + memory**4) ** 0.25)
        cost += _BEGIN * math.ceil(waves) / math.sqrt(resident) + COPYING * (rows + sum(copied))
        if splits > 1 or p != problem:
            cost += _ADDING + _PART * splits + _ADDED * splits * results / MEMORY
        yield replace(tile, splits=splits), cost


def _inside(p: Conv, pixels: tuple[int, int, int], above: int) -> tuple[float, float]:
    """What parts of boxes of dy, and of what ``above`` rows of taps see of x, are no padding, which
    nothing brings."""
    _, *sizes = pixels
    grad, image = 1.0, 1.0
    for d, (size, taps) in enumerate(zip(sizes, (above, p.kernel[1]), strict=True)):
        count, step = -(-p.out_image[d] // size), p.stride[d]
        seen = (size - 1) * step + (taps - 1) * p.dilation[d] + 1
        begins = [k * size * step - p.padding[d] for k in range(count)]
        within = sum(max(0, min(x + seen, p.image[d]) - max(x, 0)) for x in begins)
        grad *= p.out_image[d] / (count * size)
        image *= within / (count * seen)
    return grad, image


def warp_cycles(
    warps: int, products: float, words: float, loads: float, size: int, apart: bool
) -> float:  # fmt: skip
    """Cycles of an SM for what each of some warps multiplies, and the words that it loads from
    shared memory by some instructions, of elements of ``size`` bytes that are taken ``apart``, or
    not."""
    made: float = (
        (warps * products * _PRODUCT[size] / SCHEDULERS) ** _POWER
        + (warps * words * _WORDS[size]) ** _POWER
        + (_ISSUE * warps * (products + loads * (6 if apart else 2)) / SCHEDULERS) ** _POWER
    ) ** (1 / _POWER)
    return made


def _parts(boxes: int, tiles: int, resident: int) -> list[int]:
    """In how many parts pixels are summed: so that each SM has up to as many blocks as it holds, or
    a few more, and in no fewer that have as many boxes at most."""
    slots = resident * MACHINE.sms
    counts = {max(1, n * slots // tiles) for n in (1, 2, 3)}
    return sorted({-(-boxes // -(-boxes // min(boxes, n))) for n in counts})
