"""The tiles worth trying for products of boxes on Hopper, best guess first.

The guess is a time, of what tensor cores and stores of results take, what comes through the
second-level cache and what memory moves. Its numbers were fitted to 1700 tiles of the forward
passes and gradients of 22 layers of ResNet-50, at batch 64 and 1, and of linear layers, in float16
on an H200, where the tiles it takes are 2 % slower than the best of each that was measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, product
from operator import itemgetter
from typing import TypeVar

from tilewright.ir.dtype import dtype
from tilewright.target.boxes import MOST_STEP
from tilewright.target.devices import WARP
from tilewright.target.target import Target
from tilewright.target.windows import Window, most_offset
from tilewright.topi.gpu.box_lines import copying, crossing, slid_over
from tilewright.topi.gpu.box_shapes import FEW_PARTS, GROUPS, boxes_of, turned_shapes
from tilewright.topi.gpu.machine import CACHE, MACHINE, MEMORY, micros, occupancy, sees_nothing
from tilewright.topi.gpu.produced_boxes import in_turn, produced, slower
from tilewright.topi.nn.box_copies import (
    ROW,
    Widths,
    as_brought,
    copies_filter,
    half_step,
    in_boxes,
    is_in_halves,
    is_turned,
    of_a_group,
    sliced,
    widths,
)
from tilewright.topi.nn.box_factors import BESIDE
from tilewright.topi.nn.box_matmul import as_convolution, as_convolutions
from tilewright.topi.nn.box_phases import all_phases, is_phased
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.conv_shapes import BLOCKED
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.pieces.box_tiles import (
    LANES,
    ROWS,
    BoxProductTile,
    columns_of,
)
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.pieces.thread_order import in_order
from tilewright.topi.problem import Problem

#: Channels of a tile, and steps that are loaded ahead of the last.
CHANNELS, STAGES = (256, 128, 64, 32, 16, 8), (3, 4, 2)
#: Channels of which those of a tile are a multiple.
_LEAST = 8
#: How many times as long it takes a thread whose channels are rows, and that has no two neighbours
#: of them, to store results.
_TURNED = 1.2
#: What a block waits besides for the numbers of its channels, before its first step, in
#: microseconds, unless channels are rows, of which a thread keeps a few in 16 bits; to how many
#: results an SM adds in one what its threads read, and what TMA has brought; and the most channels
#: of a tile, and steps, of which it brings that: warps that have many sums each are few, and wait
#: for what they read of shared memory, which many steps need.
_NUMBERS, _ADDED, _ADDED_THERE, _MOST_ADDED, _SOON = 1.4, 10_000, 40_000, 128, 8
#: Rows of a tile of which the warps hide from one another what they read to add it.
_READERS = 128
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
#: The same of instructions that multiply slices of rows, which are short; and of the pixels that
#: TMA brings of windows in three dimensions.
_SLICED, _VOLUMES = 1.4, 2.4
#: How much longer large tiles, of which there are three stages, and more than two tiles of an SM
#: take without a producer than predicted.
_PLAIN, _WIDE_TILE = 1.05, 128 * 256
#: How many times as much the cache moves at most, where rows do not begin where its lines do.
_SECTORS = 1.7
#: Rows of 32 bytes that TMA brings an SM in a cycle, of those that take turns with products.
SHORT_ROWS = 0.6
#: By what part a step is slower whose rows all lie in one line of memory more.
_CROSSED = 0.5
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
#: Blocks of a cluster: four took twice as long as two, of whatever layer.
PAIR = 2
#: How many tiles are worth trying.
MOST = 40

TileT = TypeVar("TileT")


@dataclass(frozen=True)
class Rates:
    """What steps and blocks take.

    Parameters
    ----------
    products, narrow, cluster : how many times as long products take as they could; more of it for
        each column fewer than one, since the same rows are read again, and in a cluster.
    begin, wait : microseconds that a block waits for its first step, and a step for its boxes if
        none were loaded ahead.
    stored, alone : bytes of results that an SM stores in a microsecond, and how much of that time
        nothing else overlaps where it has one block.
    reads, kept : how many times as much the cache moves of what several SMs read, and memory of
        what the cache still has.
    """

    products: float
    narrow: float
    cluster: float
    begin: float
    wait: float
    stored: float
    alone: float
    reads: float
    kept: float


#: Those of results; of those in 8 bits, fitted to 110 tiles of the same forward passes, and in
#: float32, to 85 of forward passes and gradients in TF32; and of gradients by the filter.
_RESULTS = Rates(0.261, 78.4, 0.302, 1.6, 0.58, 37_500, 0.3, 3.69, 1.25)
_BYTES = Rates(0.504, 61.0, 0.302, 1.1, 0.379, 82_700, 0.15, 2.83, 1.14)
_WIDE = Rates(0.624, 86.0, 0.302, 1.6, 0.421, 39_500, 0.14, 2.0, 1.18)
SUMS_OF_PIXELS = Rates(0.57, 43.0, 0.45, 0.26, 0.44, 26_600, 0.0, 1.83, 4.3)


def convolution_of(p: Problem) -> Convolution | None:
    """The convolution whose tiles a problem has: itself, or that of a product of matrices."""
    if isinstance(p, Gemm):
        return as_convolution(p)
    return p if isinstance(p, Convolution) else None


def suited(problem: Problem) -> Convolution | None:
    """The convolution of a problem that :func:`suits`, as boxes compute it."""
    p = convolution_of(problem)
    if p is None or p.is_depthwise or not (as_brought(p).channels_last or as_brought(p).block):
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
    if found is None or p.pass_ != "forward" or found.channels == p.channels or found.groups > 1:
        return found
    # What threads load themselves is sooner there than a copy, where all is one step of 16 bits.
    return None if chunk == 8 and p.channels * math.prod(p.kernel) <= ROW else found


def each_image(problem: Problem) -> Convolution | None:
    """The convolution of images with a filter each that several products of matrices are."""
    if not isinstance(problem, Gemm) or problem.batch == 1 or are_apart(problem):
        return None
    return as_convolutions(problem) if suited(problem.replace(batch=1)) is not None else None


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
    if p is None or not has_windows(problem) or is_phased(p):
        return False
    return is_sooner(_product_tiles(problem, split=True, windows=True), problem)


def suits_splits(problem: Problem) -> bool:
    """Whether a pass with few results is predicted to be faster in parts."""
    p = suited(problem)
    if p is None or p.pass_ == "wgrad" or is_phased(p):
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


@dataclass(frozen=True)
class Sizes:
    """What tiles of a problem are made for: images of results and extents in them, and how far
    those of neighbours are apart; taps, and those that a result has in the mean of the phases;
    phases of results, bytes of a step and steps of a tap; the widths of what is stored, and bytes
    of it; where channels lie in blocks, bytes of one; and how many products a step sums of each two
    numbers that it brings."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    taps: int
    mean: float
    phases: int
    depth: int
    parts: int
    made: Widths
    stored: int
    block: int = 0
    terms: float = 1.0

    @property
    def written(self) -> int:
        """Bytes of a result as writing it counts: threads write pairs of bytes as pairs of 16
        bits."""
        return max(self.stored, 2)

    @staticmethod
    def of(p: Convolution, result: str) -> Sizes:
        """Those of a problem that boxes can bring, whose results are of that type."""
        w, taps, number = Convolved(p), math.prod(Convolved(p).kernel), 1
        mean: float = taps
        extents = (p.batch, *w.result)
        if is_phased(p):
            rows = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]
            cut = all_phases(p)
            extents, number = (p.batch, *rows), math.prod(len(c.phases) for c in cut)
            taps = math.prod(c.taps for c in cut)
            mean = math.prod(sum(n for _, n in c.seen) for c in cut) / number
        own, made = widths(p.dtype), widths(result)
        deep = of_a_group(p)[0]
        step, terms = own.step(own.filled(deep)), 1.0
        if is_in_halves(p):
            step, terms = 2 * half_step(deep), 1.5
        parts = own.filled(deep) // step if terms == 1 else deep // step
        return Sizes(
            extents, (1, *w.stride), taps, mean, number, step * 16 // own.chunk, parts, made,
            16 // made.chunk, p.block * 16 // own.chunk, terms,
        )  # fmt: skip

    def staged(self, problem: Problem, rows: int, channels: int, directly: bool = False) -> int:
        """Bytes of results in shared memory, unless they leave ``directly``, and of numbers."""
        chunk, numbers = self.made.chunk, 8 * channels * computes_numbers(problem)
        if directly:
            return numbers
        whole = min(self.made.row, max(channels, chunk))
        row = -(-(channels - chunk) // whole) * whole + chunk
        return rows * row * self.stored + numbers

    def boxes(self, box: tuple[int, ...]) -> int:
        """How many boxes cover results."""
        return math.prod([-(-e // n) for e, n in zip(self.extents, box, strict=True)])

    def is_less(self, box: tuple[int, ...]) -> bool:
        """Whether one of half as many rows has all that this has."""
        return math.prod(box) > ROWS and any(
            n >= 2 * e for n, e in zip(box, self.extents, strict=True)
        )


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
        longer = _VOLUMES if len(of.extents) > 3 else 1
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
    may_turn = not (are_apart(p) or (_reads_results(problem) and not split))
    if max(of.extents[1:]) == 1 and slices == 1 and may_turn and beside == 1:
        whole = p.groups == 1  # a tile has channels of one group
        shapes += [
            x for x in turned_shapes(p, of.extents, split) if whole or of_a_group(p)[1] % x[1] == 0
        ]
    own, rates, in_pairs, slow = of.mean * of.parts, rates_of(p), of.written, slower(p)
    if several is None and slices == beside == 1 and last and not split:
        made = produced(
            problem, p, of, own, list(chain(*boxes.values())), every,
            functools.partial(_after, problem), _behind_one_another if alike else in_turn,
            functools.partial(_brought, problem), direct,
        )  # fmt: skip
        alone = _LATE if problem.constants else 0.0
        found = {
            tile: before + cost + alone * (tile.boxes_to * tile.filters_to > 1)
            for tile, cost in made
        }
    apart_rows = max(slow) > 1
    # Where a block has several tiles, a producer makes them faster in 16 bits.
    plain = of.phases == 1 and widths(p.dtype).chunk == 8
    better = {(tile.box, tile.channels) for tile in found if plain}
    for (rows, channels, box, turned), late in product(shapes, (False, True)):
        there, read = added_bytes(problem, rows, channels) if late else (0, 0)
        if late and (split or not there or read or channels > _MOST_ADDED or steps > _SOON):
            continue
        a_step, number = (rows * slices + channels) * of.depth, of.boxes(box)
        tiles = number * -(-wide // channels)
        large = tiles > MACHINE.sms or rows * channels > ROWS * CHANNELS[0]
        if (box, channels) in better and large and not (turned or late):
            continue
        into = _parts(steps, tiles) if split else []
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
            if not resident:
                continue
            uneven = (_UNEVEN if resident == 1 else _UNEVEN_BESIDE) if of.phases > 1 else 1
            time = functools.partial(
                time_of, problem, *sides, of.depth * of.terms, stages=stages, resident=resident,
                slices=slices, brought_rows=blocks, added_there=late, crossing=crossed,
                turned=turned, rates=rates,
            )  # fmt: skip
            for splits in into:
                each = steps // splits
                cost = time(each, tiles * splits, size=written, brought=each * a_step)
                moved = 4 * (splits + 1) * math.prod(of.extents) * wide
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
                if each > 1:
                    found[tile(boxes=each)] = cost - _BEHIND * (each - 1) / resident
    return found


def direct_channels(
    problem: Problem, p: Convolution, channels: Iterable[int], whole: bool = False
) -> list[int]:
    """Of channels that tiles may have, which are no rows of instructions, those whose results leave
    shared memory out: of a problem that is computed as ``p``, in ``whole`` boxes or not."""
    copied = isinstance(problem, Conv) and (problem.layout != p.layout or copies_filter(problem))
    if is_turned(p) or (p.block and not (whole or copied)) or sliced(p) > 1:
        return []
    return [c for c in channels if in_order(problem, p.result_channels, c)]


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
    read = max(rows, _READERS) * columns * _reads_results(problem)
    return arithmetic(problem, rows, columns, 1) + read / (_ADDED_THERE if there else _ADDED)


def _brought(problem: Problem, rows: int, channels: int) -> int:
    """Bytes of what is added to the results of a box where TMA brings all of it."""
    brought, read = added_bytes(problem, rows, channels)
    return 0 if read else brought


def _reads_results(p: Problem) -> bool:
    """Whether threads read what is added to each result."""
    return "output" in p.epilogue_shapes


def added_bytes(problem: Problem, rows: int, channels: int) -> tuple[int, int]:
    """Bytes of what is added to the results of a box: that TMA brings, and that threads read."""
    names = {name for x in problem.epilogue for name, shape in x.tensors if shape == "output"}
    brought = read = 0
    for shape, kind in (problem.inputs()[name] for name in names):
        w, size = widths(kind), rows * channels * dtype(kind).bytes
        if shape[-1] % w.chunk == 0 and channels % w.row == 0:
            brought += size
        else:
            read += size
    return brought, read


def computes_numbers(p: Problem) -> bool:
    """Whether an epilogue computes numbers of channels, of which others are read as they are."""
    return any(len(step.tensors) > 2 for step in p.epilogue)


def channels_of(problem: Problem, p: Convolution) -> list[int]:
    """How many channels of the result a tile may have: whole blocks, where it has such."""
    return [c for c in _channels_of(p) if c % result_block(problem) == 0]


def result_block(problem: Problem) -> int:
    """Channels of a block of the result; 1 where they do not lie in such."""
    return BLOCKED.get(problem.result_layout, 1) if isinstance(problem, Conv) else 1


def _channels_of(p: Convolution) -> list[int]:
    (_, made), slices, wide = of_a_group(p), sliced(p), p.result_channels
    if slices > 1:
        return [slices * made]
    least = ROW if is_turned(p) else 1
    most = next((c for c in reversed(CHANNELS) if c >= wide), CHANNELS[0])
    found = [
        c for c in CHANNELS
        if least <= c <= max(most, least) and (p.groups == 1 or made % c == 0)
    ]  # fmt: skip
    if p.groups > 1 or p.pass_ != "forward":
        return found
    # Those of which a few tiles have all, and hardly more.
    even = (-(-wide // (parts * _LEAST)) * _LEAST for parts in range(1, FEW_PARTS + 1))
    return [*found, *(c for c in dict.fromkeys(even) if c < CHANNELS[0] and c & (c - 1))]


def _parts(steps: int, blocks: int) -> list[int]:
    """In how many parts steps may be summed, so that most SMs have a block and few have many; none
    where tiles are enough for half of them."""
    most = 2 * MACHINE.sms // blocks if 2 * blocks <= MACHINE.sms else 0
    return [n for n in range(2, min(steps, most) + 1) if steps % n == 0][-3:]


def time_of(
    p: Problem, rows: int, columns: int, step: float, steps: float, blocks: int, stages: int,
    resident: int, size: float, brought: float, slices: int = 1, brought_rows: int = 0,
    cluster: int = 1, added_there: bool = False, crossing: float = 1, turned: bool = False,
    rates: Rates = _RESULTS,
) -> float:  # fmt: skip
    """Microseconds of blocks that add ``steps`` products of ``rows`` by ``columns``, of ``step``
    bytes each, of factors of which they bring ``brought`` bytes, of each step ``brought_rows`` that
    are short, and store results of ``size`` bytes. Of ``slices`` of the rows, each multiplies its
    part of the columns; an SM holds ``resident`` blocks. What is added to results is in shared
    memory where it is ``added_there``. A row that is brought lies in ``crossing`` lines of memory,
    in the mean. Channels are rows where they are ``turned``."""
    times = rates.products + rates.narrow / columns_of(columns // slices, p.dtype)
    times += rates.cluster * (cluster > 1)
    rate = 2 * MACHINE.products * MACHINE.clock / times
    stores = rows * columns * size / rates.stored
    multiplied = rows * columns * step / rate * (1 + _CROSSED * (crossing - 1))
    if brought_rows:
        multiplied = max(multiplied, brought_rows / (SHORT_ROWS * MACHINE.clock))
    alone = steps * multiplied + stores
    cache = blocks * brought / (rates.reads * CACHE)
    memory = p.bytes / (rates.kept * MEMORY)
    waves = blocks / (MACHINE.sms * resident)
    begin = rates.begin + steps * rates.wait / (stages - 1) + rates.alone * stores * (resident == 1)
    if p.epilogue:
        alone += arithmetic(p, rows, columns, resident)
        added = _ADDED_THERE if added_there else _ADDED
        alone += rows * columns * _reads_results(p) / added
        few = turned and not p.is_quantized
        begin += _NUMBERS * ("channel" in p.epilogue_shapes and not few)
    found = micros(blocks * alone / MACHINE.sms, cache, memory, waves, begin, resident, _FEW)
    return float(found) * (_SLICED if slices > 1 else 1)


def rates_of(p: Problem) -> Rates:
    """What steps and blocks take of a problem's types."""
    return _BYTES if p.is_quantized else _WIDE if p.dtype == "float32" else _RESULTS


def arithmetic(p: Problem, rows: int, columns: int, resident: int) -> float:
    """Microseconds that an SM with ``resident`` blocks issues what is computed of the results of
    a tile beyond their sums: nothing of the same block overlaps it."""
    count = p.epilogue_instructions
    warps = resident * rows // ROWS * LANES // WARP
    hidden = 1 + _LATENCY / warps**2
    return rows * columns * count * hidden / (MACHINE.lanes * MACHINE.clock)


def resident_blocks(p: Problem, rows: int, columns: int, shared: int) -> int:
    """Blocks that an SM holds."""
    held = 2 if are_apart(p) else 1
    registers = -(-(held * columns // 2 + _OTHERS) // 8) * 8
    if registers > 255:
        return 0
    return _resident(rows // ROWS * LANES // WARP, registers, shared)


@functools.lru_cache(maxsize=4096)
def _resident(warps: int, registers: int, shared: int) -> int:
    return int(occupancy(MACHINE, warps, registers, shared))
