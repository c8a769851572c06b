"""The tiles worth trying for products of whole boxes on Hopper, best guess first.

The guess is a time: of what a block does for one box after the other, much of which overlaps. Its
numbers were fitted to 700 tiles of 57 layers, those of ResNet-50, in groups and with few channels,
on an H200, where the tiles it takes are 4 % slower than the best of each.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from itertools import product

from tilewright.target.instructions.tma_load import ALIGN, LARGEST
from tilewright.topi.gpu.box_lines import copying
from tilewright.topi.gpu.box_shapes import GROUPS, boxes_of
from tilewright.topi.gpu.box_sizes import (
    Sizes,
    added_bytes,
    channels_of,
    convolution_of,
    direct_channels,
    has_short_rows,
    stores_last,
    suited,
)
from tilewright.topi.gpu.box_times import (
    SHORT_ROWS,
    WAITED,
    arithmetic,
    in_sectors,
    moved_bytes,
    resident_blocks,
)
from tilewright.topi.gpu.first_filters import time_of_single, turned_tiles
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE, MEMORY
from tilewright.topi.gpu.produced_boxes import DIRECT, rows_brought, slower
from tilewright.topi.nn.box_factors import reach
from tilewright.topi.nn.box_problems import (
    ROW,
    is_in_halves,
    is_turned,
    sliced,
    widths,
)
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.pieces.box_added import holds
from tilewright.topi.pieces.box_tiles import ROWS, BoxProductTile, columns_of
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.problem import Problem

#: Boxes for which a block has memory; one where it computes no other, and more in bytes, whose
#: boxes are small: how many microseconds a box gains then of one tap that has so few bytes.
_STAGES, _MORE, _GAINED, _SMALL = (1, 2, 3), 5, 0.17, 3 << 13
#: By how much times count of products, of stores of results, of the cache, of memory, and of a box
#: by itself in microseconds; all of these overlap, the more the higher the power.
_PRODUCTS, _STORES, _CACHE, _MEMORY, _BOX, _POWER = 1.28, 0.189, 0.942, 0.998, 0.514, 1.94
#: Microseconds until a block has its first box; how often what memory takes to bring those of all
#: blocks counts besides, but in 8 bits; and bytes of boxes that an SM brings in one, which counts
#: where nothing is multiplied meanwhile.
_BEGIN, _FIRST, _BROUGHT = 1.05, 0.6, 81_300
#: The same of what is added to results and brought ahead, for each of the blocks of an SM and once
#: more, as often as it counts beside a box where there are two; and of what threads read.
ADDED, _ADDED_ONCE, _ADDED_LATE, _READ = 0.2, 1.5, 3.0, 4.0
#: By how much a time counts beside those of :mod:`~tilewright.topi.gpu.box_products`, and more for
#: each row of a tile beyond 128: what is not predicted is hidden by other blocks.
_BESIDE, _LARGE = 1.013, 1e-4
#: By how much more in three dimensions, in 8 bits, and once or, of several taps, twice more in
#: blocks of channels, where a time was more than predicted; and of boxes of several planes whose
#: rows are short, in bytes.
VOLUMES, _BYTES, _PLANES, _THIN = 0.15, 0.1, 0.35, 32
#: By what part less boxes of bytes take for each group of threads but the first: what a box takes
#: beside its rows counts for more of these.
_TALL = 0.04
#: How many times as long tiles of bytes take that hold numbers in registers, from how many channels
#: on, and those of which threads read them again for each box.
_HELD, _WIDE, _READ_AGAIN = 0.83, 128, 1.15
#: Bytes of results that an SM stores in a microsecond, and results for which it reads the numbers
#: of their channels, twice as many beside a producer; and how long that takes with one.
_STORED, _NUMBERS, _PRODUCED = 22_300, 14_000, 0.97
#: The same of parts of results with such numbers that could leave from registers.
_THROUGH = 1.15
#: The most blocks of an SM that have a single box each, which is brought in steps of channels, and
#: microseconds of a single box that is brought in steps of channels: of a launch, of the blocks
#: of an SM, of a byte of a block, of its products, of few channels, of further warpgroups,
#: of stores, and of a step; and of a byte that is awaited as a whole. Fitted to 90 tiles of
#: ResNet-50's layers at batch 1, to 10 %, on an H200.
_BUSY, _SINGLE, _AT_ONCE = 4, (1.3, 1.3, 0.8e-6, 0.8, 0.052, 0.137, 0.27, 0.0125), 3e-6
#: Bytes of a row of a block of channels; and how many times as long as these tiles were those take
#: whose steps, all of which are asked for at once, are written out, and free nothing.
_ROW, _FREED = 32, 0.86
#: By what part tiles take longer whose rows are no whole sectors of memory, and channels of one.
_PARTIAL, _SECTOR = 0.05, 16
#: Boxes of an SM up to which blocks may have several though it has room for more blocks.
_SEVERAL = 4
#: How many taps of a filter are many, of fewer boxes of each tap are as fast; and by rows of taps
#: for which a block has memory that brings them again for each box, how much a time counts.
_MANY, _AGAIN = 9, {2: 0.98, 3: 0.75, 4: 0.75}
#: Channels of a part of results, the most first; and boxes of a block, at least, which hide that
#: parts of those before go through shared memory, though results could leave from registers.
_PARTS, _HIDING = (128, 64, 32), 3
#: Cycles of an instruction for each of its columns, or if there are few for reading its rows and,
#: for each column, those of the filter.
_COLUMN, _ROWS_READ, _COLUMN_READ = 0.5, 16.0, 0.25
#: Columns of instructions of slices that wait for one another longer than they take.
_FEW_COLUMNS = 16


@functools.lru_cache(maxsize=64)
def whole_times(problem: Problem, pooled: bool = False) -> dict[BoxProductTile, float]:
    """For :func:`~tilewright.topi.sketches.whole_boxes.schedule_whole_boxes`: tiles of a forward
    pass or a gradient by the input, and what they are predicted to take, in microseconds. A block
    computes as many boxes as there are for it if all are at work at once. No results that are
    ``pooled`` leave from registers."""
    p = suited(problem)
    if p is None or p.pass_ == "wgrad":
        return {}
    of, found = Sizes.of(p, problem.result_dtype, whole=True), {}
    if is_in_halves(p) or (of.taps > 1 and of.phases == 1 and p.stride[-1] > 1):
        return {}
    slices, wide, steps = sliced(p), p.result_channels, of.taps * of.parts
    halves, slow = widths(p.dtype).chunk == 8, max(slower(p))
    deep = p.out_channels if p.pass_ == "dgrad" else p.channels
    pairs = of.taps == 1 and len(of.extents) <= 3 and not is_turned(p) and deep % (2 * ROW) == 0
    together = 2 if pairs else 1
    memory, before = _MEMORY * moved_bytes(problem) / MEMORY, copying(convolution_of(problem), p)
    every = channels_of(problem, p)
    direct = [] if pooled else direct_channels(problem, p, every, whole=True)
    numbered = "channel" in problem.epilogue_shapes
    by_parts = slices == 1 and stores_last(problem, p)
    row = Convolved(p).kernel[-1]
    many = of.taps > max(_MANY, row) and of.phases == 1
    many = many and not (are_apart(problem) or problem.is_quantized)
    in_blocks = has_short_rows(problem, p, whole=True)
    for groups, channels in product(GROUPS, every):
        rows, filters = ROWS * groups, steps * channels * of.depth
        directly = channels in direct
        kept = holds(problem, rows, channels, False)[1] if directly else 0
        staged = of.staged(problem, rows, channels, directly)
        columns = columns_of(channels // slices, p.dtype)
        partly = in_sectors(channels * of.stored, wide * of.stored)
        added, read = added_bytes(problem, rows, channels)
        cycles = max(_COLUMN * columns, _ROWS_READ + _COLUMN_READ * columns)
        instructions = groups * (channels // columns) * steps * (of.depth // 32)
        products = instructions * cycles / MACHINE.clock
        # Two blocks take as long as one alone, whose short instructions wait for one another.
        hidden = 2 if halves and slices > 1 and columns <= _FEW_COLUMNS else 1
        written = of.stored if directly else of.written
        stores = rows * channels * written / _STORED
        stores *= DIRECT if directly and of.stored == written == 2 else 1
        others = -(-wide // channels) * of.phases
        parts = _parts(problem, of, channels, directly) if by_parts and not added + read else ()
        if directly and wide < channels:  # conditions would be around sums
            parts = ()
        for box in _boxes(of, groups):
            seen = reach(p, box)
            if max(seen) > LARGEST:
                continue
            part, boxes = math.prod(seen) * slices * of.depth, of.boxes(box)
            if of.block and part > (block := math.prod(seen) * of.block) and block % ALIGN:
                continue  # where the next block would begin
            once = part * of.parts
            short = once / of.block if of.block else 0  # rows
            streams = (0, *_AGAIN) if many and not added else (0,)
            more = (_MORE,) if problem.is_quantized and of.taps == 1 and once <= _SMALL else ()
            for stages, own, streamed in product((*_STAGES, *more), (0, *parts), streams):
                if part % ALIGN and stages * of.parts > 1:  # where the next one would begin
                    continue
                if streamed and (own or stages != 2):
                    continue
                if streamed and 2 * once + filters + staged + BARRIERS <= MACHINE.block_shared:
                    continue  # it is kept
                held = streamed * row * channels * of.depth or filters
                left = staged if own in (0, channels) else of.staged(problem, rows, own)
                shared = stages * (once + added) + held + left + BARRIERS
                resident = resident_blocks(problem, rows, channels, shared, kept)
                if not resident:
                    continue
                # Of few boxes a block may have more than where SMs are full.
                sizes = (resident, 1) if boxes * others <= _SEVERAL * MACHINE.sms else (resident,)
                for each in {min(boxes, -(-boxes * others // (MACHINE.sms * n))) for n in sizes}:
                    if (each == 1) != (stages == 1):
                        continue
                    if own and (stages == 1 or (of.taps > 1 and groups <= 2)):
                        continue
                    if directly and own not in (0, channels) and each < _HIDING:
                        continue
                    blocks = -(-boxes // each) * others
                    turns = -(-blocks // (MACHINE.sms * resident)) * each
                    busy = min(resident, -(-blocks // MACHINE.sms))
                    numbers = rows * channels / (_NUMBERS * (2 if own else 1))
                    numbers *= numbered and not (kept or problem.is_quantized)
                    epilogue = arithmetic(problem, rows, channels, busy) + numbers
                    again = boxes * others if streamed else blocks
                    cache = (boxes * others * once + again * filters) / CACHE
                    overlapping = (
                        _PRODUCTS * turns * max(busy, hidden) * products,
                        turns * busy * (_STORES * stores + epilogue),
                        _CACHE * cache, memory, _BOX * turns,
                        turns * (ADDED * busy + _ADDED_ONCE) * added / _STORED,
                        _READ * turns * busy * read / _STORED,
                        turns * busy * short / (SHORT_ROWS * MACHINE.clock),
                    )  # fmt: skip
                    cost = before + _BEGIN + sum(x**_POWER for x in overlapping) ** (1 / _POWER)
                    cost += busy * filters * in_blocks / (_ROW * SHORT_ROWS * MACHINE.clock)
                    if stages > 1 and not problem.is_quantized:
                        cost += _FIRST * min(blocks, busy * MACHINE.sms) * once / MEMORY
                    if stages < 3 and not streamed:  # a filter's steps take longer than a box
                        late = once + added * (_ADDED_LATE if stages == 2 else 1)
                        cost += turns * busy * late / _BROUGHT
                    beside = _BESIDE + _LARGE * max(0, rows - 128) + VOLUMES * (len(of.extents) > 3)
                    beside += _BYTES * (problem.is_quantized + bool(of.block) * min(of.taps, 2))
                    beside += _PLANES * (of.depth <= _THIN and len(box) > 3 and box[1] > 1)
                    through = own and not (directly and own == channels)
                    beside *= _PRODUCED if through else _AGAIN.get(streamed, 1.0)
                    beside *= _THROUGH if through and directly and numbered else 1
                    if problem.is_quantized:
                        beside *= partly * (1 - _TALL * (groups - 1))
                        beside *= _READ_AGAIN if numbered and not kept else 1
                        beside *= _HELD if kept and channels >= _WIDE and not own else 1
                    tile = BoxProductTile.of(
                        box, channels, stages, boxes=each, staged=own, streamed=streamed
                    )
                    found[tile] = beside * cost - _GAINED * turns * (stages == _MORE)
            shared, blocks = once + filters + added + BARRIERS, boxes * others
            shared += of.staged(problem, rows, channels)
            busy = -(-blocks // MACHINE.sms)
            if of.phases > 1 or slices > 1 or busy > _BUSY:
                continue
            whole = BoxProductTile.of(box, channels, 1)
            if problem.is_quantized and whole in found and not before:  # as those that were fitted
                first = replace(whole, stages=of.parts // together + 1, kept=1)
                several = of.parts > together and directly
                for tile in (whole, first) if several else (whole,):
                    found[tile] = max(memory, time_of_single(
                        problem, of, tile, blocks, of.parts * math.prod(seen), filters, directly,
                        in_blocks,
                    ))  # fmt: skip
            if not halves or (directly and of.stored != 2):
                continue
            if busy > resident_blocks(problem, rows, channels, shared):
                continue
            late = (added + _READ * read) / _STORED + numbered * rows * channels / _NUMBERS
            waited = before + WAITED * (numbered and added + read > 0)
            if problem.epilogue:
                late += arithmetic(problem, rows, channels, busy)
            single = waited + busy * late + _of_one_box(
                blocks / MACHINE.sms, once + filters, products, channels, groups,
                busy * rows * channels * of.written, steps,
            )  # fmt: skip
            if slow > 1:
                seen_rows = math.prod(seen) + of.taps * channels
                single = max(single, rows_brought(slow, seen_rows, of.parts, blocks))
            single = max(single, memory)
            if of.parts > together:  # all of which are asked for at once
                stages = of.parts // together + 1
                found[BoxProductTile.of(box, channels, stages, staged=channels)] = _FREED * single
            if whole in found:
                single += _AT_ONCE * (once + filters)
                found[whole] = max(found[whole], single)
    turned = turned_tiles(problem, p, of, True, together)
    return found | {tile: before + cost for tile, cost in turned}


def _of_one_box(
    blocks: float, brought: int, products: float, channels: int, groups: int, stored: int,
    steps: int,
) -> float:  # fmt: skip
    """Microseconds of tiles of a single box each that steps of channels bring, for each SM some
    ``blocks``, ``brought`` bytes each, and ``products`` in microseconds, of ``steps``."""
    begin, block, byte, product, narrow, tall, store, step = _SINGLE
    found = begin + block * blocks + byte * brought + product * products + step * steps
    found += narrow * ROWS / channels + tall * (groups - 1) + store * stored / _STORED
    return found * (1 + _PARTIAL * (channels % _SECTOR > 0))


def _parts(problem: Problem, of: Sizes, channels: int, directly: bool) -> list[int]:
    """Channels of results that warps store at once beside a producer; none where that is not
    faster: what leaves from registers as bytes does not wait for others, and gains where there is
    more to do."""
    if directly and of.stored != 2:
        return [channels] if problem.is_quantized and of.taps > 1 and problem.epilogue else []
    found = [n for n in _PARTS if channels % n == 0 and not (directly and n == channels)][:1]
    return [channels, *found] if directly else found


def _boxes(of: Sizes, groups: int) -> list[tuple[int, ...]]:
    return _read_in_parts(of, groups) if of.taps > 1 else boxes_of(of, ROWS * groups)


def _read_in_parts(of: Sizes, groups: int) -> list[tuple[int, ...]]:
    """Boxes of which instructions read parts: each warpgroup has eight rows of eight, as far apart
    as those of the image, or one row where that has no more."""
    *outer, high, _ = of.extents
    rows, columns = (1, 64) if high == 1 else (8, 8)
    more = [n for n in range(1, groups + 1) if groups % n == 0]
    found = []
    for shares in product(more, repeat=len(outer)):
        left, rest = divmod(groups, math.prod(shares))
        if not rest:
            last = (rows, columns * left) if rows == 1 else (rows * left, columns)
            found.append((*shares, *last))
    return [box for box in found if not of.is_less(box)]
