"""The tiles worth trying for products of boxes on Hopper, best guess first.

The guess is a time, of what tensor cores and stores of results take, what comes through the
second-level cache and what memory moves. Its numbers were fitted to forward passes and gradients of
21 layers, most of ResNet-50, on an H200.
"""

from __future__ import annotations

import functools
import math
from itertools import product

from tilewright.target.boxes import MOST_STEP
from tilewright.target.devices import WARP
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.machine import CACHE, MACHINE, MEMORY, micros, occupancy, sees_nothing
from tilewright.topi.nn.box_copies import ROW, in_boxes, is_phased, phases, widths
from tilewright.topi.nn.box_matmul import as_convolution
from tilewright.topi.nn.box_windows import PIXELS, pixels
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.pieces.box_tiles import LANES, ROWS, BoxGradientTile, BoxProductTile
from tilewright.topi.problem import Problem

#: Channels of a tile, warpgroups of a block, and steps that are loaded ahead of the last.
_CHANNELS, _GROUPS, _STAGES = (256, 128, 64, 32, 16, 8), (2, 1, 4), (3, 4, 2)
#: Times that products take as long as they could; more of it for each 64 columns that a tile has
#: fewer of, since the same rows are read again.
_PRODUCTS, _NARROW = 0.47, 54.0
#: What a step waits for its boxes, if none were loaded ahead, and a block for its first, in
#: microseconds; bytes of results that an SM stores in one.
_WAIT, _BEGIN, _STORED = 0.47, 0.68, 22_300
#: What a block waits besides, in microseconds: for the numbers of its channels, before its first
#: step, and for what is added to its results, after the last.
_NUMBERS, _ADDED = 1.4, 3.5
#: A launch that adds parts, or one that copies, in microseconds.
_ADDING = 2.0
#: What a thread that adds takes for a part, in microseconds, and what all read of what the cache
#: moves.
_PART, _SUMMED = 0.15, 0.25
#: Blocks for each SM beyond which a sum in more parts gains nothing.
_CROWD = 8
#: Of the cache, what is read at once by several SMs counts less.
_SHARED_READS = 2.2
#: Bytes of shared memory for barriers, and until swizzled memory begins.
_BARRIERS = 1024
#: Registers of a thread beside its sums, and of fewer rounds than this the last counts.
_OTHERS, _FEW = 50, 21
#: By type of images, or of TF32 with the pass, that of sums.
_KINDS = {
    "float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32",
    "tf32, forward": "float32", "tf32, dgrad": "float32",
}  # fmt: skip
#: How many tiles are worth trying.
_MOST = 40


def _convolution(p: Problem) -> Conv | None:
    """The convolution whose tiles a problem has: itself, or that of a product of matrices."""
    if isinstance(p, Gemm):
        return as_convolution(p)
    return p if isinstance(p, Conv) else None


def _suited(problem: Problem) -> Conv | None:
    """The convolution of a problem that :func:`suits`, as boxes compute it."""
    p = _convolution(problem)
    if p is None or p.is_depthwise or not p.channels_last:
        return None
    kind = f"{p.precision}, {p.pass_}" if p.dtype == "float32" else p.dtype
    if kind not in _KINDS or p.accumulate != _KINDS[kind]:
        return None
    chunk = widths(p.dtype).chunk
    if (p.pass_ != "forward" and p.out_channels % chunk) or max(p.stride) > MOST_STEP:
        return None
    if is_phased(p) and (set(p.dilation) != {1} or p.epilogue):
        return None
    found = None if sees_nothing(p) else in_boxes(p)
    if found is None or p.pass_ != "forward" or found.channels == p.channels:
        return found
    # What threads load themselves is sooner there than a copy, where all is one step of 16 bits.
    return None if chunk == 8 and p.channels * math.prod(p.kernel) <= ROW else found


def suits(problem: Problem) -> bool:
    """Whether it is a convolution in 16 or 8 bits or TF32, dense or in groups, whose images TMA can
    bring, or copies of them: channels last. Or a product of matrices that is one."""
    return _suited(problem) is not None


def suits_products(problem: Problem) -> bool:
    """Whether rows of the product are pixels."""
    p = _suited(problem)
    return p is not None and p.pass_ != "wgrad"


def suits_gradient(problem: Problem) -> bool:
    """Whether pixels are what is summed."""
    p = _suited(problem)
    return p is not None and p.pass_ == "wgrad"


def product_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.box_products.schedule_box_products`."""
    return _best(_product_tiles(problem, split=False))


def split_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.box_splits.schedule_box_splits`."""
    return _best(_product_tiles(problem, split=True))


def suits_splits(problem: Problem) -> bool:
    """Whether a pass with few results is predicted to be faster in parts."""
    p = _suited(problem)
    if p is None or p.pass_ == "wgrad" or is_phased(p):
        return False
    whole, parts = (_product_tiles(problem, split=split) for split in (False, True))
    return bool(parts) and min(parts.values()) < min(whole.values(), default=math.inf)


def _best(found: dict[BoxProductTile, float]) -> list[BoxProductTile]:
    return sorted(found, key=lambda tile: found[tile])[:_MOST]


@functools.lru_cache(maxsize=64)
def _product_tiles(problem: Problem, *, split: bool) -> dict[BoxProductTile, float]:
    """Tiles, and what they are predicted to take."""
    p = _suited(problem)
    assert p is not None
    w, steps_after = Convolved(p), problem.epilogue
    extents, reach, taps_seen, phased = (p.batch, *w.result), [1, *w.stride], w.kernel, 1
    if is_phased(p):
        rows_of = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]
        cut = [phases(p, d) for d in range(2)]
        extents, phased = (p.batch, *rows_of), math.prod(len(c.phases) for c in cut)
        taps_seen = tuple(c.taps for c in cut)
    wide = p.result_channels
    most = next((c for c in reversed(_CHANNELS) if c >= wide), _CHANNELS[0])
    inner = p.multiplier if p.pass_ == "dgrad" else p.channels // p.groups
    own, made = widths(p.dtype), widths(p.accumulate if split else problem.result_dtype)
    step, size, stored = own.step(inner), 16 // own.chunk, 16 // made.chunk
    least = ROW if p.pass_ == "dgrad" and not is_phased(p) else 1
    taps = math.prod(taps_seen) * (own.filled(inner) // step)
    found = {}
    boxes = {ROWS * groups: _boxes(extents, ROWS * groups, reach) for groups in _GROUPS}
    if isinstance(problem, Gemm):
        boxes = {rows: [(1, 1, rows)] for rows in boxes}
    for groups, channels, stages in product(_GROUPS, _CHANNELS, _STAGES):
        if not least <= channels <= max(most, least):
            continue
        if p.groups > 1 and wide // p.groups % channels:
            continue
        rows = ROWS * groups
        shared = stages * (rows + channels) * step * size + _BARRIERS
        if not split:
            shared += rows * (max(made.row, channels) + made.chunk) * stored
            shared += 8 * channels * any(len(x.tensors) > 1 for x in steps_after)
        for box in boxes[rows]:
            if rows > ROWS and any(n >= 2 * e for n, e in zip(box, extents, strict=True)):
                continue  # one of half as many rows has all
            blocks = math.prod(-(-e // n) for e, n in zip(extents, box, strict=True))
            blocks *= -(-wide // channels) * phased
            for splits in _parts(taps, blocks) if split else [1]:
                cost = _time(problem, rows, channels, step * size, taps // splits, blocks * splits,
                             stages, shared, stored)  # fmt: skip
                if cost is not None:
                    if split:
                        moved = 4 * (splits + 1) * math.prod(extents) * wide
                        cost += _ADDING + _PART * splits + moved / (_SUMMED * CACHE)
                    found[BoxProductTile(*box, channels, stages, splits)] = cost
    return found


def _parts(steps: int, blocks: int) -> list[int]:
    """In how many parts steps may be summed, so that most SMs have a block and few have many; none
    where tiles are enough for half of them."""
    most = 2 * MACHINE.sms // blocks if 2 * blocks <= MACHINE.sms else 0
    return [n for n in range(2, min(steps, most) + 1) if steps % n == 0][-3:]


def _boxes(extents: tuple[int, ...], rows: int, reach: list[int]) -> list[tuple[int, int, int]]:
    """Boxes of powers of two with that many results: the two with the least beyond the images."""
    found = []
    sizes = [1 << k for k in range(rows.bit_length())]
    for high, wide in product(sizes, sizes):
        if high * wide > rows:
            continue
        box = (rows // high // wide, high, wide)
        if any(n * step > LARGEST for n, step in zip(box, reach, strict=True)):
            continue
        if any(n >= 2 * e for n, e in zip(box[1:], extents[1:], strict=True)):
            continue
        whole = math.prod(-(-e // n) * n for e, n in zip(extents, box, strict=True))
        found.append((whole, abs(math.log2(high / wide)), box))
    return [box for _, _, box in sorted(found)[:2]]


def gradient_tiles(problem: Problem, target: Target) -> list[BoxGradientTile]:
    """For :func:`~tilewright.topi.sketches.box_gradient.schedule_box_gradient`."""
    p = _suited(problem)
    assert p is not None
    own = p.channels // p.groups
    extents = (p.batch, *p.out_image)
    steps = math.prod(-(-e // n) for e, n in zip(extents, pixels(p), strict=True))
    parts = [n for n in range(1, steps + 1) if steps % n == 0]
    taps, found = math.prod(p.kernel), {}
    for groups, channels, stages in product(_GROUPS, _CHANNELS, _STAGES):
        filters = groups * ROWS
        few = filters > max(ROWS, p.out_channels) or channels > max(ROW, own)
        if few or channels < ROW or (p.groups > 1 and p.multiplier % filters):
            continue
        tiles = taps * -(-p.out_channels // filters) * -(-own // channels)
        shared = 2 * stages * (filters + channels) * PIXELS + _BARRIERS
        for splits in parts:
            if splits > 1 and tiles * splits > _CROWD * MACHINE.sms:
                break
            size = 4 if splits > 1 else 2
            cost = _time(problem, filters, channels, 2 * PIXELS, steps // splits, tiles * splits,
                         stages, shared, size)  # fmt: skip
            if cost is not None:
                moved = 4 * splits * p.out_channels * own * taps
                cost += _ADDING + 2 * moved / MEMORY if splits > 1 else 0
                found[BoxGradientTile(filters, channels, stages, splits)] = cost
    return sorted(found, key=lambda tile: found[tile])[:_MOST]


def _time(
    p: Problem, rows: int, columns: int, step: int, steps: int, blocks: int, stages: int,
    shared: int, size: int,
) -> float | None:  # fmt: skip
    """Microseconds of blocks that add ``steps`` products of ``rows`` by ``columns``, of ``step``
    bytes each, and store results of ``size`` bytes; None where no SM holds one."""
    registers = -(-(columns // 2 + _OTHERS) // 8) * 8
    resident = occupancy(MACHINE, rows // ROWS * LANES // WARP, registers, shared)
    if not resident or registers > 255:
        return None
    rate = 2 * MACHINE.products * MACHINE.clock / (_PRODUCTS + _NARROW / columns)
    alone = steps * rows * columns * step / rate + rows * columns * size / _STORED
    cache = blocks * steps * (rows + columns) * step / (_SHARED_READS * CACHE)
    memory = p.bytes / MEMORY
    waves = blocks / (MACHINE.sms * resident)
    begin = _BEGIN + steps * _WAIT / max(1, stages - 1)
    shapes = {shape for step in p.epilogue for _, shape in step.tensors}
    begin += _NUMBERS * ("channel" in shapes) + _ADDED * ("output" in shapes)
    return float(micros(blocks * alone / MACHINE.sms, cache, memory, waves, begin, resident, _FEW))
