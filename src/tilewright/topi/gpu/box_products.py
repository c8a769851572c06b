"""The tiles worth trying for products of boxes on Hopper, best guess first.

The guess is a time, of what tensor cores and stores of results take, what comes through the
second-level cache and what memory moves. Its numbers were fitted to forward passes and gradients of
21 layers, most of ResNet-50, on an H200.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from itertools import product

from tilewright.target.boxes import MOST_STEP
from tilewright.target.devices import WARP
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.epilogue import STEPS
from tilewright.topi.gpu.machine import CACHE, MACHINE, MEMORY, micros, occupancy, sees_nothing
from tilewright.topi.nn.box_copies import (
    ROW,
    Widths,
    in_boxes,
    is_in_halves,
    is_phased,
    of_a_group,
    phases,
    sliced,
    widths,
)
from tilewright.topi.nn.box_matmul import as_convolution
from tilewright.topi.nn.box_windows import PIXELS, pixels
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.pieces.box_tiles import (
    LANES,
    ROWS,
    BoxGradientTile,
    BoxProductTile,
    columns_of,
)
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.problem import Problem

#: Channels of a tile, warpgroups of a block, and steps that are loaded ahead of the last.
_CHANNELS, GROUPS, _STAGES = (256, 128, 64, 32, 16, 8), (2, 1, 4), (3, 4, 2)
#: Channels of which those of a tile are a multiple, and tiles that may divide those of a result.
_LEAST, _FEW_PARTS = 8, 6
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
#: Microseconds that a box gains which a block computes behind another, shared by the blocks of an
#: SM, and the stages from which on it gains any.
_BEHIND, _AHEAD = 1.0, 3
#: Blocks for each SM beyond which a sum in more parts gains nothing.
_CROWD = 8
#: Of the cache, what is read at once by several SMs counts less.
_SHARED_READS = 2.2
#: Cycles of a warp beside its instructions for an element, of which other warps hide the most.
_LATENCY = 7.0
#: Bytes of shared memory for barriers, and until swizzled memory begins.
BARRIERS = 1024
#: Registers of a thread beside its sums, and of fewer rounds than this the last counts.
_OTHERS, _FEW = 50, 21
#: By type of images, or of TF32 with the pass, that of sums.
_KINDS = {
    "float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32",
    "float8_e4m3fn": "float32", "float8_e5m2": "float32",
    **{f"{x}, {pass_}": "float32" for x in ("tf32", "tf32x3") for pass_ in ("forward", "dgrad")},
}  # fmt: skip
#: How many tiles are worth trying.
_MOST = 40


def _convolution(p: Problem) -> Conv | None:
    """The convolution whose tiles a problem has: itself, or that of a product of matrices."""
    if isinstance(p, Gemm):
        return as_convolution(p)
    return p if isinstance(p, Conv) else None


def suited(problem: Problem) -> Conv | None:
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
    return suited(problem) is not None


def suits_products(problem: Problem) -> bool:
    """Whether rows of the product are pixels."""
    p = suited(problem)
    return p is not None and p.pass_ != "wgrad"


def suits_gradient(problem: Problem) -> bool:
    """Whether pixels are what is summed."""
    p = suited(problem)
    return p is not None and p.pass_ == "wgrad"


def product_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.box_products.schedule_box_products`."""
    return best_of(_product_tiles(problem, split=False))


def split_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.box_splits.schedule_box_splits`."""
    return best_of(_product_tiles(problem, split=True))


def suits_splits(problem: Problem) -> bool:
    """Whether a pass with few results is predicted to be faster in parts."""
    p = suited(problem)
    if p is None or p.pass_ == "wgrad" or is_phased(p):
        return False
    return is_sooner(_product_tiles(problem, split=True), problem)


def is_sooner(found: dict[BoxProductTile, float], problem: Problem) -> bool:
    """Whether tiles are predicted to be faster than those that have nothing special."""
    plain = _product_tiles(problem, split=False)
    return bool(found) and min(found.values()) < min(plain.values(), default=math.inf)


def best_of(found: dict[BoxProductTile, float]) -> list[BoxProductTile]:
    return sorted(found, key=lambda tile: found[tile])[:_MOST]


@dataclass(frozen=True)
class Sizes:
    """What tiles of a problem are made for: images, rows and columns of results, and how far those
    of neighbours are apart; taps, phases of results, bytes of a step and steps of a tap; the
    widths of what is stored, and bytes of it."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    taps: int
    phases: int
    depth: int
    parts: int
    made: Widths
    stored: int

    @staticmethod
    def of(p: Conv, result: str) -> Sizes:
        """Those of a problem that boxes can bring, whose results are of that type."""
        w, taps, number = Convolved(p), math.prod(Convolved(p).kernel), 1
        extents = (p.batch, *w.result)
        if is_phased(p):
            rows = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]
            cut = [phases(p, d) for d in range(2)]
            extents, number = (p.batch, *rows), math.prod(len(c.phases) for c in cut)
            taps = math.prod(c.taps for c in cut)
        own, made = widths(p.dtype), widths(result)
        deep, products = of_a_group(p)[0], 1
        if is_in_halves(p):
            deep, products = deep // 2, 3
        deep = own.filled(deep)
        step = own.step(deep)
        parts = products * deep // step
        return Sizes(
            extents, (1, *w.stride), taps, number, step * 16 // own.chunk, parts, made,
            16 // made.chunk,
        )  # fmt: skip

    def staged(self, problem: Problem, rows: int, channels: int) -> int:
        """Bytes of results in shared memory."""
        size = rows * (max(self.made.row, channels) + self.made.chunk) * self.stored
        return size + 8 * channels * any(len(x.tensors) > 1 for x in problem.epilogue)

    def boxes(self, box: tuple[int, int, int]) -> int:
        """How many boxes cover results."""
        return math.prod(-(-e // n) for e, n in zip(self.extents, box, strict=True))

    def is_less(self, box: tuple[int, int, int]) -> bool:
        """Whether one of half as many rows has all that this has."""
        return math.prod(box) > ROWS and any(
            n >= 2 * e for n, e in zip(box, self.extents, strict=True)
        )


@functools.lru_cache(maxsize=64)
def _product_tiles(problem: Problem, *, split: bool) -> dict[BoxProductTile, float]:
    """Tiles, and what they are predicted to take."""
    p = suited(problem)
    assert p is not None
    of = Sizes.of(p, p.accumulate if split else problem.result_dtype)
    slices, wide, steps, found = sliced(p), p.result_channels, of.taps * of.parts, {}
    boxes = {n: boxes_of(of, ROWS * n) for n in GROUPS}
    if isinstance(problem, Gemm):
        boxes = {n: [(1, 1, ROWS * n)] for n in GROUPS}
    for groups, channels, stages in product(GROUPS, channels_of(p), _STAGES):
        rows = ROWS * groups
        a_step = (rows * slices + channels) * of.depth
        shared = stages * a_step + BARRIERS
        if not split:
            shared += of.staged(problem, rows, channels)
        for box in boxes[groups]:
            blocks = of.boxes(box) * -(-wide // channels) * of.phases
            for splits in _parts(steps, blocks) if split else [1]:
                own = steps // splits
                cost = _time(problem, rows, channels, of.depth, own, blocks * splits, stages,
                             shared, of.stored, own * a_step, slices)  # fmt: skip
                if cost is not None:
                    if split:
                        moved = 4 * (splits + 1) * math.prod(of.extents) * wide
                        cost += _ADDING + _PART * splits + moved / (_SUMMED * CACHE)
                    found[BoxProductTile(*box, channels, stages, splits)] = cost
            resident = resident_blocks(problem, rows, channels, shared)
            if resident and not split and stages >= _AHEAD and not _reads_results(problem):
                each = _behind_one_another(of.boxes(box), blocks, MACHINE.sms * resident)
                tile = BoxProductTile(*box, channels, stages)
                gain = _BEHIND * (each - 1) / resident
                found[replace(tile, boxes=each)] = found[tile] - gain
    return found


def _behind_one_another(boxes: int, blocks: int, slots: int) -> int:
    """The most boxes, of those that each tile's channels have, that a block may compute without
    more rounds than ``blocks`` with one each take, where ``slots`` of them are at work at once."""
    rounds, parts = -(-blocks // slots), blocks // boxes
    for each in range(rounds, 1, -1):
        if -(-(-(-boxes // each) * parts) // slots) * each <= rounds:
            return each
    return 1


def _reads_results(p: Problem) -> bool:
    """Whether threads read what is added to each result, and nothing else is under way."""
    return any(shape == "output" for step in p.epilogue for _, shape in step.tensors)


def channels_of(p: Conv) -> list[int]:
    """How many channels of the result a tile may have."""
    (_, made), slices, wide = of_a_group(p), sliced(p), p.result_channels
    if slices > 1:
        return [slices * made]
    least = ROW if p.pass_ == "dgrad" and not is_phased(p) else 1
    most = next((c for c in reversed(_CHANNELS) if c >= wide), _CHANNELS[0])
    found = [
        c for c in _CHANNELS
        if least <= c <= max(most, least) and (p.groups == 1 or made % c == 0)
    ]  # fmt: skip
    if p.groups > 1 or p.pass_ != "forward":
        return found
    # Those of which a few tiles have all, and hardly more.
    even = (-(-wide // (parts * _LEAST)) * _LEAST for parts in range(1, _FEW_PARTS + 1))
    return [*found, *(c for c in dict.fromkeys(even) if c < _CHANNELS[0] and c & (c - 1))]


def _parts(steps: int, blocks: int) -> list[int]:
    """In how many parts steps may be summed, so that most SMs have a block and few have many; none
    where tiles are enough for half of them."""
    most = 2 * MACHINE.sms // blocks if 2 * blocks <= MACHINE.sms else 0
    return [n for n in range(2, min(steps, most) + 1) if steps % n == 0][-3:]


def boxes_of(of: Sizes, rows: int) -> list[tuple[int, int, int]]:
    """Boxes of powers of two with that many results: the two with the least beyond the images, but
    those of which one of half as many rows has all."""
    found, extents = [], of.extents
    sizes = [1 << k for k in range(rows.bit_length())]
    for high, wide in product(sizes, sizes):
        if high * wide > rows:
            continue
        box = (rows // high // wide, high, wide)
        if any(n * step > LARGEST for n, step in zip(box, of.strides, strict=True)):
            continue
        if any(n >= 2 * e for n, e in zip(box[1:], extents[1:], strict=True)):
            continue
        whole = math.prod(-(-e // n) * n for e, n in zip(extents, box, strict=True))
        found.append((whole, abs(math.log2(high / wide)), box))
    return [box for _, _, box in sorted(found)[:2] if not of.is_less(box)]


def gradient_tiles(problem: Problem, target: Target) -> list[BoxGradientTile]:
    """For :func:`~tilewright.topi.sketches.box_gradient.schedule_box_gradient`."""
    p = suited(problem)
    assert p is not None
    own = p.channels // p.groups
    extents = (p.batch, *p.out_image)
    steps = math.prod(-(-e // n) for e, n in zip(extents, pixels(p), strict=True))
    parts = [n for n in range(1, steps + 1) if steps % n == 0]
    taps, found = math.prod(p.kernel), {}
    for groups, channels, stages in product(GROUPS, _CHANNELS, _STAGES):
        filters = groups * ROWS
        few = filters > max(ROWS, p.out_channels) or channels > max(ROW, own)
        if few or channels < ROW or (p.groups > 1 and p.multiplier % filters):
            continue
        tiles = taps * -(-p.out_channels // filters) * -(-own // channels)
        shared = 2 * stages * (filters + channels) * PIXELS + BARRIERS
        for splits in parts:
            if splits > 1 and tiles * splits > _CROWD * MACHINE.sms:
                break
            size = 4 if splits > 1 else 2
            brought = steps // splits * (filters + channels) * 2 * PIXELS
            cost = _time(problem, filters, channels, 2 * PIXELS, steps // splits, tiles * splits,
                         stages, shared, size, brought)  # fmt: skip
            if cost is not None:
                moved = 4 * splits * p.out_channels * own * taps
                cost += _ADDING + 2 * moved / MEMORY if splits > 1 else 0
                found[BoxGradientTile(filters, channels, stages, splits)] = cost
    return sorted(found, key=lambda tile: found[tile])[:_MOST]


def _time(
    p: Problem, rows: int, columns: int, step: int, steps: int, blocks: int, stages: int,
    shared: int, size: int, brought: int, slices: int = 1,
) -> float | None:  # fmt: skip
    """Microseconds of blocks that add ``steps`` products of ``rows`` by ``columns``, of ``step``
    bytes each, of factors of which they bring ``brought`` bytes, and store results of ``size``
    bytes; None where no SM holds one. Of ``slices`` of the rows, each multiplies its part of the
    columns."""
    resident = resident_blocks(p, rows, columns, shared)
    if not resident:
        return None
    narrow = _NARROW / columns_of(columns // slices)
    rate = 2 * MACHINE.products * MACHINE.clock / (_PRODUCTS + narrow)
    alone = steps * rows * columns * step / rate + rows * columns * size / _STORED
    alone += arithmetic(p, rows, columns, resident)
    cache = blocks * brought / (_SHARED_READS * CACHE)
    memory = p.bytes / MEMORY
    waves = blocks / (MACHINE.sms * resident)
    begin = _BEGIN + steps * _WAIT / max(1, stages - 1)
    shapes = {shape for step in p.epilogue for _, shape in step.tensors}
    begin += _NUMBERS * ("channel" in shapes) + _ADDED * ("output" in shapes)
    return float(micros(blocks * alone / MACHINE.sms, cache, memory, waves, begin, resident, _FEW))


def arithmetic(p: Problem, rows: int, columns: int, resident: int) -> float:
    """Microseconds that an SM with ``resident`` blocks issues what is computed of the results of
    a tile beyond their sums: nothing of the same block overlaps it."""
    count = sum(STEPS[step.name].instructions for step in p.epilogue)
    warps = resident * rows // ROWS * LANES // WARP
    hidden = 1 + _LATENCY / warps**2
    return rows * columns * count * hidden / (MACHINE.lanes * MACHINE.clock)


def resident_blocks(p: Problem, rows: int, columns: int, shared: int) -> int:
    """Blocks that an SM holds."""
    held = 2 if are_apart(p) else 1
    registers = -(-(held * columns // 2 + _OTHERS) // 8) * 8
    if registers > 255:
        return 0
    found: int = occupancy(MACHINE, rows // ROWS * LANES // WARP, registers, shared)
    return found
