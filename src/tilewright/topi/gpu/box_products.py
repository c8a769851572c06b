"""The tiles worth trying for products of boxes on Hopper, best guess first.

The guess is a time, of what tensor cores and stores of results take, what comes through the
second-level cache and what memory moves (:mod:`.box_times`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, product
from operator import itemgetter
from typing import TypeVar

from tilewright.target.target import Target
from tilewright.target.windows import Window, most_offset
from tilewright.topi.gpu.box_lines import copying, crossing, slid_over
from tilewright.topi.gpu.box_shapes import GROUPS, boxes_of, turned_shapes
from tilewright.topi.gpu.box_sizes import (
    CHANNELS,
    STAGES,
    Sizes,
    added_bytes,
    channels_of,
    computes_numbers,
    convolution_of,
    direct_channels,
    each_image,
    suited,
)
from tilewright.topi.gpu.box_times import (
    ADDED,
    ADDED_THERE,
    MOST_ADDED,
    READERS,
    SOON,
    VOLUMES,
    arithmetic,
    rates_of,
    reads_results,
    resident_blocks,
    time_of,
)
from tilewright.topi.gpu.machine import CACHE, MACHINE
from tilewright.topi.gpu.produced_boxes import (
    in_turn,
    produced,
    produced_turned,
    slower,
    whole_turns,
)
from tilewright.topi.nn.box_copies import copies_filter, of_a_group, sliced, widths
from tilewright.topi.nn.box_factors import BESIDE
from tilewright.topi.nn.box_phases import all_phases, is_phased, most_taps
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.pieces.box_tiles import ROWS, BoxProductTile
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.problem import Problem

#: How many times as long it takes a thread whose channels are rows, and that has no two neighbours
#: of them, to store results.
_TURNED = 1.2
#: A launch that adds parts, in microseconds; and what a cluster with producers waits for constants,
#: which others ask for before the kernel before has ended.
_ADDING, _LATE = 0.6, 0.4
#: What a thread that adds takes for a part, in microseconds, and what all read of what the cache
#: moves.
_PART, _SUMMED = 0.1, 0.75
#: Microseconds that a box gains which a block computes behind another, shared by the blocks of an
#: SM, and the stages from which on it gains any.
_BEHIND, _AHEAD = 1.51, 3
#: How many times as long phases of unequal taps take together as equal ones, and where blocks of
#: an SM hide it from one another.
_UNEVEN, _UNEVEN_BESIDE = 1.34, 1.0
#: How much longer large tiles, of which there are three stages, and more than two tiles of an SM
#: take without a producer than predicted.
_PLAIN, _WIDE_TILE = 1.05, 128 * 256
#: How many times as much the cache moves at most, where rows do not begin where its lines do.
_SECTORS = 1.7
#: Bytes of shared memory for barriers, and until swizzled memory begins.
BARRIERS = 1024
#: Blocks of a cluster: four took twice as long as two, of whatever layer.
PAIR = 2
#: How many tiles are worth trying.
MOST = 40

TileT = TypeVar("TileT")


def suits(problem: Problem) -> bool:
    """Whether it is a convolution in 16 or 8 bits or TF32, dense or in groups, whose images TMA can
    bring, or copies of them: channels last. Or one product of matrices that is one."""
    return suited(problem) is not None


def suits_products(problem: Problem) -> bool:
    """Whether rows of the product are pixels, and an SM has room for some tile."""
    p = suited(problem) or each_image(problem)
    return p is not None and p.pass_ != "wgrad" and bool(_product_tiles(problem, split=False))


def price(
    *, split: bool = False, windows: bool = False, beside: int = 1
) -> Callable[[Problem, BoxProductTile, Target], float]:
    """What a template's tiles of a problem are predicted to take, in microseconds."""

    def of_tile(problem: Problem, tile: BoxProductTile, target: Target) -> float:
        return _product_tiles(problem, split=split, windows=windows, beside=beside)[tile]

    return of_tile


def product_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.box_products.schedule_box_products`."""
    return best_of(_product_tiles(problem, split=False))


def split_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.box_splits.schedule_box_splits`."""
    return best_of(_product_tiles(problem, split=True))


def window_split_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For the same where tiles have results that follow one another, over rows and images."""
    return best_of(_product_tiles(problem, split=True, windows=True))


def suits_window_splits(problem: Problem) -> bool:
    """Whether such tiles, in parts, are predicted to be faster."""
    p = suited(problem)
    if p is None or not has_windows(problem):
        return False
    return is_sooner(_product_tiles(problem, split=True, windows=True), problem)


def suits_splits(problem: Problem) -> bool:
    """Whether a pass with few results is predicted to be faster in parts."""
    p = suited(problem)
    if p is None or p.pass_ == "wgrad":
        return False
    return is_sooner(_product_tiles(problem, split=True), problem)


def is_sooner(found: dict[BoxProductTile, float], problem: Problem) -> bool:
    """Whether tiles are predicted to be faster than those that have nothing special."""
    return bool(found) and min(found.values()) < least_time(problem)


def least_time(problem: Problem) -> float:
    """What the best of tiles that have nothing special is predicted to take."""
    return min(_product_tiles(problem, split=False).values(), default=math.inf)


def window_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For the same where tiles have results that follow one another, also over rows and images."""
    return best_of(_product_tiles(problem, split=False, windows=True))


def suits_windows(problem: Problem) -> bool:
    """Whether tiles of results that follow one another are predicted to be faster than boxes."""
    if not has_windows(problem):
        return False
    return is_sooner(_product_tiles(problem, split=False, windows=True), problem)


def has_windows(problem: Problem) -> bool:
    """Whether TMA can copy windows of a problem."""
    p = suited(problem)
    if p is None or isinstance(problem, Gemm) or p.pass_ == "wgrad" or p.rank == 1 or p.block:
        return False
    w = Convolved(p)
    taps = [(k - 1) * d for k, d in zip(w.kernel, w.dilation, strict=True)]
    window = Window(tuple(w.result), tuple(w.stride), tuple(-x for x in w.before))
    if is_phased(p):
        cut = all_phases(p)
        taps, grid = [c.taps - 1 for c in cut], Sizes.of(p, p.dtype).extents[1:]
        window = Window(grid, (1,) * len(cut), tuple(c.first for c in cut))
    far = max(taps) > most_offset(p.rank)
    return min(window.grid) > 1 and not far and not window.limits(w.image)


def row_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For the same where a row of shared memory has several pixels of a block of channels."""
    return best_of(_product_tiles(problem, split=False, beside=BESIDE))


def suits_rows(problem: Problem) -> bool:
    """Whether tiles of such rows are predicted to be faster."""
    p = suited(problem)
    if p is None or p.pass_ != "forward" or not p.block or max(p.stride) > 1 or p.groups > 1:
        return False
    return is_sooner(_product_tiles(problem, split=False, beside=BESIDE), problem)


def best_of(found: dict[TileT, float]) -> list[TileT]:
    """Tiles worth trying, the best guess first."""
    return [tile for tile, _ in sorted(found.items(), key=itemgetter(1))[:MOST]]


def _product_tiles(
    problem: Problem, *, split: bool, windows: bool = False, beside: int = 1
) -> dict[BoxProductTile, float]:
    """Tiles, and what they are predicted to take. Where pixels of a row lie ``beside`` one another,
    neighbours are results of different groups of threads."""
    return _priced(problem, split, windows, beside)


@functools.lru_cache(maxsize=64)
def _priced(
    problem: Problem, split: bool, windows: bool, beside: int
) -> dict[BoxProductTile, float]:  # fmt: skip
    several = each_image(problem)
    p = several or suited(problem)
    assert p is not None
    of = Sizes.of(p, p.accumulate if split else problem.result_dtype)
    longer: float = 1
    if windows:
        longer = VOLUMES if len(of.extents) > 3 else 1
        single = (1,) * (len(of.extents) - 1)
        of = replace(of, extents=(math.prod(of.extents), *single), strides=(1, *single))
    slices, wide, found = sliced(p), p.result_channels, dict[BoxProductTile, float]()
    steps = of.taps * of.parts
    before = copying(convolution_of(problem), p)
    size = 16 // widths(p.dtype).chunk
    crossed = 1 if of.block else crossing(slid_over(p)[0] * size, of.depth * slices)
    # A filter that is copied has long rows.
    short = isinstance(problem, Conv) and problem.layout == p.layout and not copies_filter(problem)
    boxes = {n: boxes_of(of, ROWS * n, several is not None) for n in GROUPS}
    if beside > 1:
        unmoved = max(p.kernel) == 1 and not any(p.padding) and of.extents[-1] % beside == 0
        across = [beside * n for n in ((1, 2, 4, 8, 16) if unmoved else (1,))]
        boxes = {beside: boxes_of(of, ROWS * beside, across=across)}
    alike = computes_numbers(p)
    last = not isinstance(problem, Conv) or (problem.layout == p.layout and not of.block)
    every = channels_of(problem, p)
    direct = direct_channels(problem, p, every)
    shapes = [
        (rows, channels, box, False)
        for groups, channels in product(boxes, direct if beside > 1 else every)
        for rows in [ROWS * groups]
        for box in boxes[groups]
    ]
    # Of two neighbours of a turned one, which are pixels, what is added lies far apart.
    may_turn = not (are_apart(p) or (reads_results(problem) and not split))
    if max(of.extents[1:]) == 1 and slices == 1 and may_turn and beside == 1:
        whole = p.groups == 1  # a tile has channels of one group
        shapes += [
            x for x in turned_shapes(p, of.extents, split) if whole or of_a_group(p)[1] % x[1] == 0
        ]
    own, rates, in_pairs, slow = of.mean * of.parts, rates_of(p), of.written, slower(p)
    most = steps if of.phases == 1 else most_taps(all_phases(p)) * of.parts
    if several is None and slices == beside == 1 and last and not split:
        made = produced(
            problem, p, of, own, list(chain(*boxes.values())), every,
            functools.partial(_after, problem), _behind_one_another if alike else in_turn,
            functools.partial(_brought, problem), direct,
        )  # fmt: skip
        more = produced_turned(problem, p, of, own, shapes, functools.partial(_after, problem))
        alone = _LATE if problem.constants else 0.0
        found = {
            tile: before + cost + alone * (tile.boxes_to * tile.filters_to > 1)
            for tile, cost in (made if direct else chain(made, more))
        }
    apart_rows = max(slow) > 1
    # Where a block has several tiles, a producer makes them faster in 16 bits.
    plain = of.phases == 1 and widths(p.dtype).chunk == 8
    better = {(tile.box, tile.channels) for tile in found if plain and not tile.turned}
    for (rows, channels, box, turned), late in product(shapes, (False, True)):
        there, read = added_bytes(problem, rows, channels) if late else (0, 0)
        if late and (split or not there or read or channels > MOST_ADDED or steps > SOON):
            continue
        a_step, number = (rows * slices + channels) * of.depth, of.boxes(box)
        tiles = number * -(-wide // channels)
        large = tiles > MACHINE.sms or rows * channels > ROWS * CHANNELS[0]
        if (box, channels) in better and large and not (turned or late):
            continue
        into = _parts(most, tiles * of.phases * own / most, own < most) if split else []
        if split and not into:
            continue
        sides = (channels, rows) if turned else (rows, channels)
        directly = channels in direct and not turned
        staged = 0 if split else of.staged(problem, rows, channels, directly) + there
        blocks = of.depth // of.block * (rows + short * channels) if of.block else 0
        blocks *= beside == 1
        apart = turned and of.stored > 1  # threads store pairs of bytes no sooner than two bytes
        written = of.stored if directly else in_pairs
        stored = written * (_TURNED if apart else 1)
        parts = -(-wide // channels)
        if p.groups > 1:  # others have other boxes
            parts = of_a_group(p)[1] // channels if slices == 1 else 1
        many = last and several is None and tiles * of.phases >= MACHINE.sms
        shared = list(clusters(parts, number)) if many else [(1, 1)]
        for stages in STAGES:
            memory = stages * a_step + BARRIERS + staged
            resident = resident_blocks(problem, *sides, memory)
            if not resident or ((turned or (split and of.phases > 1)) and stages < _AHEAD):
                continue
            uneven = (_UNEVEN if resident == 1 else _UNEVEN_BESIDE) if of.phases > 1 else 1
            time = functools.partial(
                time_of, problem, *sides, of.depth * of.terms, stages=stages, resident=resident,
                slices=slices, brought_rows=blocks, added_there=late, crossing=crossed,
                turned=turned, rates=rates,
            )  # fmt: skip
            for splits in into:
                each, blocks_of_all = own / splits, tiles * of.phases * splits
                cost = time(each * uneven, blocks_of_all, size=written, brought=each * a_step)
                moved = 4 * (splits + 1) * math.prod(of.extents) * of.phases * wide
                cost += before + _ADDING + _PART * splits + moved / (_SUMMED * CACHE)
                found[BoxProductTile.of(box, channels, stages, splits, 1, int(turned))] = cost
            for boxes_to, filters_to in [] if split else shared:
                seen = longer * rows * slices / boxes_to
                brought = own * (seen + channels / filters_to) * of.depth
                cluster, each = boxes_to * filters_to, 1
                cost = before + time(
                    own * uneven, tiles * of.phases, size=stored, brought=brought, cluster=cluster
                )
                tile = functools.partial(
                    BoxProductTile.of, box, channels, stages, turned=int(turned),
                    boxes_to=boxes_to, filters_to=filters_to, added=int(late),
                )  # fmt: skip
                if apart_rows:
                    sectors = longer * rows * slices * slow[0] + channels * slow[1]
                    cost = max(cost, tiles * own * sectors * of.depth / (_SECTORS * CACHE))
                few = stages <= 3 and rows * channels >= _WIDE_TILE
                cost *= _PLAIN if better and (few or tiles > 2 * MACHINE.sms) else 1
                found[tile()] = cost
                if stages < _AHEAD or of.phases > 1:
                    continue
                slots = MACHINE.sms * resident // cluster
                if alike:
                    each = _behind_one_another(number // filters_to, tiles // cluster, slots)
                else:
                    each = -(-tiles // cluster // slots)
                if directly and channels > wide:
                    each = whole_turns(each, number // filters_to)
                if each > 1:
                    found[tile(boxes=each)] = cost - _BEHIND * (each - 1) / resident
    return found


def clusters(parts: int, boxes: int) -> Iterator[tuple[int, int]]:
    """How many blocks may share a box, or a filter, of as many tiles along each."""
    yield 1, 1
    if parts % PAIR == 0:
        yield PAIR, 1
    if boxes % PAIR == 0:
        yield 1, PAIR


def _behind_one_another(boxes: int, blocks: int, slots: int) -> int:
    """The most boxes, of those that each tile's channels have, that a block may compute without
    more rounds than ``blocks`` with one each take, where ``slots`` of them are at work at once."""
    rounds, parts = -(-blocks // slots), blocks // boxes
    for each in range(rounds, 1, -1):
        if -(-(-(-boxes // each) * parts) // slots) * each <= rounds:
            return each
    return 1


def _after(problem: Problem, rows: int, columns: int, there: bool) -> float:
    """Microseconds that the epilogue of a tile takes where an SM has no other block, and what is
    added may be ``there`` in shared memory."""
    if not problem.epilogue:
        return 0.0
    read = max(rows, READERS) * columns * reads_results(problem)
    return arithmetic(problem, rows, columns, 1) + read / (ADDED_THERE if there else ADDED)


def _brought(problem: Problem, rows: int, channels: int) -> int:
    """Bytes of what is added to the results of a box where TMA brings all of it."""
    brought, read = added_bytes(problem, rows, channels)
    return 0 if read else brought


def _parts(steps: int, blocks: float, uneven: bool) -> list[int]:
    """In how many parts steps may be summed, so that most SMs have a block and few have many; none
    where blocks are enough for half of them, or for all where some have more steps than others."""
    enough = MACHINE.sms if uneven else MACHINE.sms / 2
    most = int(2 * MACHINE.sms / blocks) if blocks <= enough else 0
    return [n for n in range(2, min(steps, most) + 1) if steps % n == 0][-3:]
