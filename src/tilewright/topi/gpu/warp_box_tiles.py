"""The tiles worth trying for groups of few channels by warps from whole boxes, best guess first.

The guess is a time: of what a block does for one box after the other, much of which overlaps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from tilewright.target.devices import SCHEDULERS, WARP
from tilewright.target.instructions.tma_load import ALIGN, LARGEST
from tilewright.topi.gpu.box_lines import COPYING
from tilewright.topi.gpu.box_sizes import Sizes, suited
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE, MEMORY, occupancy, sees_nothing
from tilewright.topi.nn.box_factors import in_eights, reach, up
from tilewright.topi.nn.box_phases import all_phases, is_phased
from tilewright.topi.nn.box_problems import by_pixels, of_a_group, sliced, widths
from tilewright.topi.nn.tap_gradients import begins_at_chunks, filled, is_flat
from tilewright.topi.nn.thin_boxes import depth, is_thin_forward
from tilewright.topi.nn.thin_boxes import reach as thin_reach
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.tap_tiles import APART, WarpBoxTile, reads_turned
from tilewright.topi.problem import Problem

#: Cycles of a quarter of an SM for a product of 16 channels, and of 8; by how much instructions
#: count; cycles of an SM for a load of pixels and for a word of taps; bytes that it moves in one.
_PRODUCT, _ISSUE, _PIXELS, _TAPS, _MOVED = (6.36, 4.27), 0.39, 1.5, 0.83, 71.4
#: Microseconds until a block has its first box and after its last, for a vector of the filter that
#: a thread copies before, and of a box by itself; the power by which what overlaps adds up.
_BEGIN, _FILL, _BOX, _POWER = 3.12, 0.0026, 0.0136, 6.29
#: How much longer it takes where an SM has few warps, of which none hides what another waits for,
#: without a producer and with one.
_ALONE = (1.65, 0.15)
#: By how much less what a box takes counts where all threads store results of several phases,
#: which are more than is brought; and microseconds of which a block with more boxes hides more.
_PHASES, _HIDDEN = 0.88, 1.8
#: How many times as long products take where an SM has few warps; the least that are not few, of
#: one phase and of several.
_IDLE, _WARPS = 1.35, (4, 8)
#: How often memory counts, and the cache; microseconds more for each byte that is stored, not read,
#: and for each that warps store in rows of less than 64 bytes.
_MEMORY, _CACHE, _STORED, _SHORT = 0.98, 0.025, 0.055e-6, 0.136e-6
#: Bytes of boxes that an SM brings in a microsecond where there is memory for two of them.
_BROUGHT = 820_000
#: Channels that fill 64 bytes.
_LONG = 32
#: Channels of a warp, and of a result that has few.
_OWN, _FEW = (8, 16, 32), 32
#: Registers of a thread beside sums and fragments, and those that one of groups has at most.
_OTHERS, _REGISTERS = 100, 240
#: How many times as long an element of a filter takes that is copied by itself as a vector.
_SINGLE = 4
#: Columns of results from which on each warp may store what it has, of its own.
_NARROW = 4
#: Channels that fill a sector of memory: rows that are shorter took three times as long.
_SECTOR = 16
#: Rows of a tile, beside all, half or a quarter of those of an image, where these are more than a
#: few: of fewer, small boxes lost what they left out.
_ROWS, _LEAST_ROWS = (1, 2, 4, 8, 16), 6
#: Channels of a tile of images of few.
_MOST = 128
#: How many times as long loads of pixels by words take, and by elements.
_SINGLY = (2, 4)
#: Registers of taps that a compiler keeps at most.
_KEPT = 36


def _suits(problem: Problem) -> bool:
    """Whether results have few channels of a group, of which a row of shared memory has several; or
    few at all, of which all phases of a gradient read the same pixels; or images have few."""
    if not isinstance(problem, Conv) or problem.rank != 2 or problem != by_pixels(problem):
        return False
    if is_thin_forward(problem):
        return not sees_nothing(problem)
    p = suited(problem)
    if p is None or p.pass_ == "wgrad" or p.dtype not in ("float16", "bfloat16"):
        return False
    few = p.groups == 1 and p.result_channels <= _FEW and is_phased(p)
    return sliced(p) > 1 or few


def warp_form(problem: Problem, tile: WarpBoxTile) -> str:
    """The declaration of a problem."""
    return "thin boxes" if is_thin_forward(problem) else "seen boxes"


@dataclass(frozen=True)
class _Work:
    """What tiles of a problem are made for: images of results and extents in them; taps, columns of
    these, products of all phases of a result, and whether they are in eights; phases of results;
    slices of a row, channels of all results and of a tile, and what is summed of a tap; how often
    loads of pixels conflict in banks; what a box of results sees, and how many bytes of an element
    of that are brought; microseconds of memory for all boxes, bytes of results, and microseconds of
    a copy."""

    extents: tuple[int, ...]
    taps: int
    columns: int
    products: int
    eights: bool
    phases: int
    slices: int
    wide: int
    channels: int
    deep: int
    made: int
    conflicts: int
    reach: Callable[[tuple[int, ...]], tuple[int, ...]]
    brought: int
    memory: float
    stored: int
    copying: float = 0

    @staticmethod
    def of(problem: Conv) -> _Work:
        if is_thin_forward(problem):
            return _Work._thin(problem)
        p = suited(problem)
        assert p is not None
        of, slices, wide, (deep, made) = (
            Sizes.of(p, problem.result_dtype), sliced(p), p.result_channels, of_a_group(p),
        )  # fmt: skip
        channels = slices * made if slices > 1 else next(n for n in _OWN if n >= wide)
        deep = widths(p.dtype).filled(deep)
        conflicts = 2 if of.phases == 1 and p.stride[1] > 1 else 1
        columns = all_phases(p)[-1].taps if is_phased(p) else p.kernel[-1]
        return _Work(
            of.extents, of.taps, columns, math.prod(problem.kernel),
            slices > 1 and in_eights(problem), of.phases, slices, wide, channels, deep, made,
            conflicts, functools.partial(reach, p), 2 * slices * deep,
            *_memory(problem, problem.bytes),
        )  # fmt: skip

    @staticmethod
    def _thin(p: Conv) -> _Work:
        parts, each = -(-p.out_channels // _MOST), filled(p)
        channels = up(-(-p.out_channels // parts), 8)
        rows = 2 * p.batch * p.height * (p.padding[1] + p.width) * each
        image = 2 * p.batch * p.height * p.width * p.channels
        copied = 0 if is_flat(p) else image + rows
        apart = p.stride[1] * each
        conflicts = apart // 8 if begins_at_chunks(p) else _SINGLY[apart % 2]
        return _Work(
            (p.batch, *p.out_image), p.kernel_h, 1, p.kernel_h, False, 1, 1, p.out_channels,
            channels, depth(p), p.out_channels, conflicts, functools.partial(thin_reach, p), 2,
            *_memory(p, p.bytes if copied == 0 else p.bytes - image + rows),
            COPYING + copied / MEMORY if copied else 0,
        )  # fmt: skip


def _memory(p: Conv, moved: int) -> tuple[float, int]:
    """Microseconds that memory takes for some bytes, of which it stores the result, and those of
    that."""
    stored = 2 * math.prod(p.result.shape)
    return moved / MEMORY + _STORED * max(0, 2 * stored - moved), stored


@functools.lru_cache(maxsize=64)
def warp_times(problem: Problem) -> dict[WarpBoxTile, float]:
    """For :func:`~tilewright.topi.sketches.warp_boxes.schedule_warp_boxes`: tiles, and what they
    are predicted to take, in microseconds."""
    if not isinstance(problem, Conv) or not _suits(problem):
        return {}
    of, found = _Work.of(problem), dict[WarpBoxTile, float]()
    slices, channels, deep, thin = of.slices, of.channels, of.deep, is_thin_forward(problem)
    # Of groups that are joined, and turned, threads copy a filter by elements.
    joined = problem.groups > 1 and of.made != of_a_group(problem)[1]
    turned = reads_turned(problem, of.eights)
    single = not turned and (joined or problem.pass_ == "dgrad")
    vector = math.gcd(problem.channels // problem.groups, 8) if not single else 1 / _SINGLE
    steps = widths(problem.dtype).step(deep)
    filters = of.taps * of.phases * 2
    filters *= deep * (channels + APART) if turned else channels * deep // steps * (steps + APART)
    cut = {-(-of.extents[1] // n) for n in (1, 2, 4)}
    every = sorted({*_ROWS, *(n for n in cut if _LEAST_ROWS < n < _ROWS[-1])})
    for rows, columns, images in product(every, (8, 16), (1, 2, 4)):
        box = (images, rows, columns)
        least = zip(box, of.extents, (1, 1, 9), strict=True)
        if any(n >= 2 * max(e, few) for n, e, few in least):
            continue
        if not 16 <= math.prod(box) <= 256:
            continue
        seen = of.reach(box)
        brought = math.prod(seen) * of.brought
        if max(seen) > LARGEST or (brought % ALIGN and not thin):
            continue
        boxes = math.prod(-(-e // n) for e, n in zip(of.extents, box, strict=True))
        others = -(-of.wide // channels)
        for own, parts, stages, producer in product(_OWN, (1, 2, 4, 8), (2, 3), (0, 1)):
            tile = WarpBoxTile(*box, channels, own, parts, stages, 1, producer)
            pixels = math.prod(tile.of_groups)
            if channels % own or (slices > 1 and (own == 8 or of.made % own)) or tile.groups > 16:
                continue
            if math.prod(box) < 16 * parts or pixels % 16 or pixels * parts != math.prod(box):
                continue
            if producer and (of.extents[-1] < _NARROW or own < min(channels, _SECTOR)):
                continue
            own_images, _, across = tile.of_groups
            if across < 8 or own_images * across < 16:
                continue
            sums = pixels * own * of.phases // WARP
            taps = of.taps * of.phases * own * deep // (2 * WARP)
            registers = sums + min(taps, _KEPT) + _OTHERS
            staged = 2 * math.prod(box) * of.phases * (channels + 8)
            shared = stages * brought + filters + staged + BARRIERS
            resident = occupancy(MACHINE, tile.groups + producer, min(255, registers), shared)
            if registers > (255 if thin else _REGISTERS) or not resident:
                continue
            each = min(boxes, -(-boxes * others // (MACHINE.sms * resident)))
            blocks = -(-boxes // each) * others
            turns = -(-blocks // (MACHINE.sms * resident)) * each
            busy = min(resident, -(-blocks // MACHINE.sms))
            warps, cycles = tile.groups, _cycles(of, tile, 3 * staged + brought)
            together = of.phases > 1 and not producer
            cycles *= _PHASES if together else 1
            cycles *= _IDLE if busy * warps < _WARPS[of.phases > 1] else 1
            short = producer and own < min(_LONG, channels)
            overlapping = (
                turns * (busy + _ALONE[producer] / warps) * cycles / MACHINE.clock,
                _CACHE * boxes * others * brought / CACHE,
                _MEMORY * (of.memory + _SHORT * of.stored * short), _BOX * turns,
            )  # fmt: skip
            fill = busy * filters / (2 * vector * warps * WARP)
            cost = _BEGIN + _FILL * fill + sum(x**_POWER for x in overlapping) ** (1 / _POWER)
            cost += of.copying + _HIDDEN / turns
            cost += (stages == 2 and not together) * turns * busy * brought / _BROUGHT
            found[replace(tile, boxes=each)] = cost
    return found


def _cycles(of: _Work, tile: WarpBoxTile, moved: int) -> float:
    """Cycles of an SM for a box, in which ``moved`` bytes go to its shared memory, or from it."""
    images, high, across = tile.of_groups
    rows, warps, (_, seen, _) = images * across // 16, tile.groups, of.reach((1, high, across))
    fragments = 1 if of.eights else of.deep // 16
    products = rows * high * (tile.own // 8) * fragments * of.products
    loads = rows * seen * (of.deep // 16) * of.columns
    words = of.products * fragments * (tile.own // 8) * (1 if of.eights else 2)
    return math.hypot(
        warps * products * _PRODUCT[of.eights] / SCHEDULERS,
        warps * (loads * of.conflicts * _PIXELS + words * _TAPS) + moved / _MOVED,
        _ISSUE * warps * (products + 3 * loads + 2 * words) / SCHEDULERS,
    )
